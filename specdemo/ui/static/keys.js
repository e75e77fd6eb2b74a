// The keys of the race view, as a list to open.

import { h } from "./dom.js";

const KEYS = [
  ["Space", "play or pause"],
  ["← →", "one step back or on"],
  ["Page Up, Page Down", "one round back or on, as clickers send"],
  ["Home, End", "to the start, to the end"],
  ["P", "present: the race alone, in large type"],
  ["B", "while presenting: blank the screen"],
  ["Esc", "end presenting, close what is open"],
  ["Enter", "in the prompt: run; Shift + Enter: a new line"],
  ["arrows, Enter", "in a text: from token to token, open its round"],
];

export const keyList = () =>
  h(
    "details",
    { class: "sd-keys" },
    h("summary", { text: "Keys" }),
    h(
      "dl",
      {},
      KEYS.map(([key, what]) => [h("dt", {}, h("kbd", { text: key })), h("dd", { text: what })]),
    ),
  );
