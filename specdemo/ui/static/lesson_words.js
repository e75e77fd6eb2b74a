// Below the lesson's steps: what the words mean, and the papers.

import { h } from "./dom.js";
import { list } from "./format.js";

/** Whether a link leads to arxiv.org and nowhere else. */
function isArxiv(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  return url?.protocol === "https:" && url.hostname === "arxiv.org";
}

export function wordsAndPapers({ glossary, papers }) {
  return h(
    "div",
    { class: "sd-lesson-more" },
    h("button", {
      type: "button",
      class: "sd-btn",
      text: "Print the teacher's notes",
      onclick: () => window.print(),
    }),
    h(
      "details",
      { class: "sd-glossary" },
      h("summary", { text: "Glossary" }),
      h(
        "dl",
        {},
        list(glossary).map(([term, meaning]) => [
          h("dt", { text: term }),
          h("dd", { text: meaning }),
        ]),
      ),
    ),
    h(
      "details",
      { class: "sd-papers" },
      h("summary", { text: "Papers" }),
      h(
        "ul",
        {},
        list(papers)
          .filter(([, , address]) => isArxiv(address))
          .map(([title, who, href]) =>
            h(
              "li",
              {},
              h("a", { href, target: "_blank", rel: "noopener noreferrer", text: title }),
              ` (${who})`,
            ),
          ),
      ),
    ),
  );
}
