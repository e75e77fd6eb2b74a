// The panel that asks what the race would have come to otherwise, beside what it came to.

import { h } from "./dom.js";
import { predictedSeries } from "./figures.js";
import { times } from "./format.js";
import { possible, replay } from "./what_if.js";

const ASIS = { size: 0, draft: 1, verify: 1, batch: 1 };
const KNOBS = [
  { key: "gamma", label: "γ: positions drafted, at most", low: 1, step: 1 },
  { key: "size", label: "Tree size: nodes", low: 0, step: 1 },
  { key: "draft", label: "Cost of drafting", low: 0, high: 4, step: 0.1 },
  { key: "verify", label: "Cost of the target's pass", low: 0.2, high: 4, step: 0.1 },
  { key: "batch", label: "Batch: streams decoded together", low: 1, high: 64, step: 1 },
];

export class WhatIf {
  constructor(view) {
    this.view = view;
    this.key = null; // the race whose limits the sliders have
    this.knobs = Object.fromEntries(KNOBS.map((knob) => [knob.key, this.knob(knob)]));
    this.words = h("p", { class: "sd-what-words", role: "status" });
    this.lane = h("select", { class: "sd-select", onchange: () => this.update(true) });
    this.lanes = h("label", { hidden: true }, "lane ", this.lane);
    this.how = h("p", { class: "sd-note" });
    const reset = { type: "button", class: "sd-btn", text: "As it was" };
    this.controls = h(
      "div",
      { class: "sd-what-knobs" },
      Object.values(this.knobs).map((knob) => knob.root),
      h("button", { ...reset, onclick: () => this.reset() }),
    );
    this.root = h(
      "details",
      {
        class: "sd-card sd-what",
        "data-part": "what-if",
        ontoggle: () => this.update(true),
        onkeydown: (e) => e.stopPropagation(),
      },
      h("summary", { text: "What if? The same race with another draft, cost or batch" }),
      this.lanes,
      this.words,
      this.controls,
      this.how,
    );
  }

  knob({ key, label, low, high = low, step }) {
    const value = h("output", {});
    const input = h("input", {
      type: "range",
      min: low,
      max: high,
      step,
      value: ASIS[key] ?? low,
      "aria-label": label,
      "data-knob": key,
      oninput: () => this.show(),
    });
    const root = h("label", {}, h("span", { text: label }), input, value);
    return { root, input, value };
  }

  get ask() {
    return Object.fromEntries(
      Object.entries(this.knobs).map(([key, { input }]) => [key, Number(input.value)]),
    );
  }

  /** The trace of the lane that is asked about: the right one, or the left one's method. */
  get trace() {
    const { trace } = this.view;
    return this.lane.value === "left" && trace.against ? trace.against : trace;
  }

  /** What this lane came to over plain decoding; null if it was not measured to its end. */
  get measured() {
    const { done, against } = this.view.trace;
    return (this.trace === against ? done?.against?.speedup : done?.speedup) ?? null;
  }

  /** Where both lanes draft, one of them is chosen. */
  offerLanes() {
    const { against, start } = this.view.trace;
    this.lanes.hidden = !against;
    const kept = against ? this.lane.value : "right";
    const option = (value, method) => h("option", { value, text: `${value}: ${method}` });
    const left = against ? [option("left", against.start.method)] : [];
    this.lane.replaceChildren(option("right", start.method), ...left);
    this.lane.value = kept || "right";
  }

  /** As the race was recorded. */
  reset() {
    for (const [key, { input }] of Object.entries(this.knobs))
      input.value = key === "gamma" ? input.max : ASIS[key];
    this.show();
  }

  /** Once a race stands still; while one runs nothing is computed beside it. */
  update(settled) {
    const { trace, run } = this.view;
    if (!this.root.open || !settled) return;
    const key = `${run}|${trace.events.length}|${this.lane.value}`;
    if (key === this.key) return;
    this.offerLanes();
    this.key = `${run}|${trace.events.length}|${this.lane.value}`;
    this.limits = possible(this.trace);
    const { why, depth, size, columns } = this.limits;
    this.controls.hidden = Boolean(why);
    this.how.textContent = "";
    this.words.textContent = why;
    if (why) return;
    this.knobs.gamma.input.max = depth;
    this.knobs.size.input.max = columns ? size : 0;
    this.knobs.size.input.disabled = !columns;
    this.reset();
  }

  show() {
    const { ask, trace } = this;
    const unit = { draft: "×", verify: "×" };
    for (const [key, { input, value }] of Object.entries(this.knobs)) {
      const text = `${input.value}${unit[key] ?? ""}`;
      value.textContent = key === "size" && !ask.size ? "as drafted" : text;
      input.setAttribute("aria-valuetext", value.textContent);
    }
    const real = this.measured;
    const recorded = predictedSeries(trace).at(-1)?.[1];
    const then = replay(trace, ask);
    const perRound = then.rounds ? (then.tokens / then.rounds).toFixed(2) : "–";
    this.words.textContent = [
      then.speedup ? `Predicted: ${times(then.speedup)} the speed of plain decoding` : "",
      `, ${perRound} tokens per round. The race itself: `,
      real ? `${times(real)} measured` : "not measured to its end",
      recorded ? `, ${times(recorded)} by the same costs.` : ".",
    ].join("");
    this.how.textContent = howWords(this.limits, ask, then, trace);
  }
}

/** Where the figure is from: a replay of the recorded drafts, and what is a formula in it. */
function howWords({ columns, depth }, ask, then, trace) {
  const words = [];
  words.push(
    ask.size
      ? `A replay: every round grows a tree of ${ask.size} nodes from the recorded candidates and their probabilities, and the target's own text says how far it is right.`
      : "A replay of the recorded drafts, cut at γ.",
  );
  if (ask.gamma === depth) words.push(`No position behind ${depth} was drafted, so γ ends there.`);
  if (!columns)
    words.push(
      trace.start.rule === "match"
        ? "Candidates were not recorded for every position, so trees cannot be grown."
        : `Under the rule “${trace.start.rule}” another tree would have written another text, so trees cannot be grown.`,
    );
  if (then.inside)
    words.push(
      `${then.inside} of ${then.rounds} rounds begin inside a recorded one and take the rest of its draft, made from farther back: a new draft there would be better.`,
    );
  if (ask.batch > 1)
    words.push(
      `The batch is a formula: ${ask.batch} streams count as one pass over ${ask.batch} times the rows, by the costs measured for one stream, drafting grows alike, and reading each stream's cache is left out.`,
    );
  words.push("Times are those of passes measured at load, and of drafting as recorded.");
  return words.join(" ");
}
