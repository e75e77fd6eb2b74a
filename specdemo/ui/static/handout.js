// The teacher's notes as a handout of two pages: nothing on the screen, what is printed of the
// lesson.

import { h } from "./dom.js";
import { list } from "./format.js";
import { withFigures } from "./lesson_figures.js";
import { Trace } from "./trace.js";

export function handout(steps) {
  const nothing = new Trace();
  return h(
    "div",
    { class: "sd-handout", "aria-hidden": "true" },
    h("h1", { text: "SpecDemo: notes for the teacher" }),
    h("p", {
      text: `The lesson has ${steps.length} steps; each has an address (#lesson-…) that students can open. P presents, Page Up and Page Down step through the rounds, the quiz switch stops each round before its verdict.`,
    }),
    h(
      "div",
      { class: "sd-handout-steps" },
      steps.map((step, i) => stepNotes(step, i, nothing)),
    ),
  );
}

function stepNotes(step, i, nothing) {
  const { ask } = step;
  const right = ask?.options?.[ask.answer];
  return h(
    "section",
    {},
    h("h2", {}, `${i + 1}. ${step.title}`, h("small", { text: ` #lesson-${step.id}` })),
    h("p", {}, h("strong", { text: "Look at " }), step.look),
    withFigures(list(step.teacher), nothing).map((text) => h("p", { text })),
    right ? h("p", {}, h("em", { text: ask.question }), ` ${right.text}. ${right.why}`) : null,
  );
}
