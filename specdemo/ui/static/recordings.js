// The recorded races of the page: a menu, and an address for each.

import { h } from "./dom.js";
import { list } from "./format.js";
import { lessonPlace, openTab, recordingPlace, showPlace } from "./place.js";

export class Recordings {
  constructor(view, names) {
    this.view = view;
    this.names = list(names);
    this.menu = h(
      "select",
      { class: "sd-select", onchange: () => this.choose(this.menu.value) },
      h("option", { value: "", text: "choose …" }),
      this.names.map((name) => h("option", { value: name, text: name })),
    );
    this.root = h("label", { class: "sd-recordings" }, "Recorded race ", this.menu);
    const follow = () => this.follow();
    window.addEventListener("hashchange", follow);
    setTimeout(follow, 0); // the view that this is part of is made first
  }

  /** Opens what the address names: a step of the lesson, or a recording. */
  follow() {
    const { hash } = location;
    if (lessonPlace(hash)) openTab("Lesson");
    const name = recordingPlace(hash);
    if (!name) return;
    openTab("Race");
    if (this.names.includes(name)) this.show(name);
    else
      this.view.say("This link names a recording that is not here; choose another below.", "error");
  }

  choose(name) {
    if (!name) return;
    showPlace(`recording-${name}`);
    this.show(name);
  }

  async show(name) {
    const { view } = this;
    if (view.running) {
      view.say("A race runs here: press Stop or wait for its end, then choose again.", "status");
      return;
    }
    const events = await view.options.server.recorded_trace({ name });
    if (!list(events).length || view.running) return;
    this.menu.value = name;
    view.load(events, "recording");
  }
}
