// The two entries: a Gradio component and a page of its own.

import { closeOnEscape } from "./drawer.js";
import { helpFields } from "./fields.js";
import { Lesson } from "./lesson.js";
import { guardNumbers } from "./number_fields.js";
import { showSharedPrompt } from "./shared_link.js";
import { View } from "./view.js";

/** In Gradio: `watch` calls back whenever the Python side sends a new value. */
export function mountGradio(element, props, server, watch) {
  const view = props.lesson
    ? new Lesson(element, { server, content: props.lesson })
    : new View(element, { server, recordings: props.recordings });
  const take = () => view.receive(props.value);
  watch("value", take);
  if (!showSharedPrompt(view)) take();
  if (view.isMain) {
    closeOnEscape();
    helpFields();
    guardNumbers((text) => view.say(text, "status", true));
  }
  element.specdemo = view; // for a look at the state from outside: console and tests
}

/** In an exported page: the events lie in the document, and what is to be said about them. */
export function mountPage(element, events) {
  const view = new View(element, { standalone: true });
  view.load(events, "recording");
  view.warnIfCut();
  if (element.dataset.note) view.say(element.dataset.note, "status");
  element.specdemo = view;
}
