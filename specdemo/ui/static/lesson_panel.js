// A card of the lesson for an experiment, beside its words and above the race.

import { h } from "./dom.js";

export const panel = (title, ...content) =>
  h(
    "section",
    { class: "sd-card sd-experiment", "data-part": "experiment", "aria-label": title },
    h("h3", { text: title }),
    content,
  );
