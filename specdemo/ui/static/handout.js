// The teacher's notes as a handout: nothing on the screen, what is printed of the lesson.

import { h } from "./dom.js";
import { list, times } from "./format.js";
import { MOST_USERS } from "./lesson_batch.js";
import { roundCosts, withFigures } from "./lesson_figures.js";
import { batches, breakEvenUsers } from "./lesson_models.js";
import { breakEvenWords, knobSummary, questionOf } from "./lesson_tasks.js";
import { Trace } from "./trace.js";

export class Handout {
  /** `folded` gives a promise of the recording of a name. */
  constructor({ steps, sweeps }, folded) {
    this.steps = list(steps);
    this.sweeps = sweeps ?? {};
    this.folded = folded;
    this.isFilled = false;
    this.notes = h("div", { class: "sd-handout-steps" });
    this.root = h(
      "div",
      { class: "sd-handout", "aria-hidden": "true" },
      h("h1", { text: "SpecDemo: notes for the teacher" }),
      h("p", {
        text: `The lesson has ${this.steps.length} steps; students can open each at its address. P presents, Page Up and Page Down step through the rounds, the quiz switch stops each round before its verdict. Answers and figures are those of the recordings that the lesson shows.`,
      }),
      this.notes,
    );
    this.draw(new Map());
  }

  /** Fills in what the recordings say, once the lesson is on the screen. */
  fillWhenSeen(lesson) {
    if (this.isFilled || !lesson.checkVisibility()) return;
    this.isFilled = true;
    this.fill().catch(() => (this.isFilled = false)); // tried again at the next step
  }

  async fill() {
    const traces = new Map();
    for (const name of new Set(this.steps.flatMap(recordingsOf)))
      traces.set(name, await this.folded(name));
    this.draw(traces);
  }

  /** `traces`: the recordings that are here, by name. */
  draw(traces) {
    this.notes.replaceChildren(
      ...this.steps.map((step, i) => stepNotes(step, i, traces, this.sweeps[step.sweep])),
    );
  }
}

/** The recordings that a step's notes speak of. */
const recordingsOf = ({ trace, knob }) => [trace, ...(knob?.options ?? []).map((o) => o.trace)];

function stepNotes(step, i, traces, sweep) {
  const trace = traces.get(step.trace) ?? new Trace();
  const asked = questionOf(step, trace);
  const right = asked?.options?.[asked.answer];
  const address = `${location.origin}${location.pathname}#lesson-${step.id}`;
  return h(
    "section",
    {},
    h("h2", {}, `${i + 1}. ${step.title}`, h("small", { text: address })),
    h("p", {}, h("strong", { text: "Look at " }), step.look),
    withFigures(list(step.teacher), trace).map((text) => h("p", { text })),
    right ? h("p", {}, h("em", { text: asked.question }), ` ${right.text}. ${right.why}`) : null,
    expected(step, traces, sweep).map((text) =>
      h("p", {}, h("em", { text: "To be seen: " }), text),
    ),
  );
}

/** What students find with the step's experiment, as far as its recordings are here. */
export function expected(step, traces, sweep) {
  const said = [];
  const trace = traces.get(step.trace);
  const settings = (step.knob?.options ?? []).map((option) => traces.get(option.trace));
  if (settings.length && settings.every(Boolean)) said.push(knobSummary(step, settings));
  if (sweep) said.push(bestOf(sweep));
  if (step.cost && trace) {
    const costs = roundCosts(trace);
    said.push(breakEvenWords(costs.tokens, costs));
  }
  const batch = step.experiment === "batch" && trace && batches(trace);
  if (batch) said.push(batchWords(batch));
  return said;
}

function bestOf({ axis, lines }) {
  const best = list(lines).map(({ name, points }) => {
    const { x, speedup } = points.reduce((a, b) => (b.speedup > a.speedup ? b : a));
    return `${name}: ${times(speedup)} at ${axis} ${x}`;
  });
  return `highest speed-up measured over all prompts, ${best.join("; ")}.`;
}

function batchWords(batch) {
  const from = breakEvenUsers(batch, MOST_USERS);
  const one = `${times(batch.at(1).gain)} for one user`;
  return from === null
    ? `${one}, and still a gain for ${MOST_USERS}.`
    : `${one}; from ${from} users on drafting no longer pays.`;
}
