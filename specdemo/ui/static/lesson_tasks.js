// What there is to do in a step of the lesson: turn a knob, guess before looking, work out where
// drafting pays.

import { h } from "./dom.js";
import { sum } from "./figures.js";
import { plural, times } from "./format.js";
import { pickRound } from "./lesson_rounds.js";

const MAX_GUESS = 15;

const task = (label, title, ...content) =>
  h(
    "div",
    { class: "sd-ask", role: "group", "aria-label": label },
    h("p", {}, h("strong", { text: title })),
    content,
  );

const choices = (buttons) => h("div", { class: "sd-choices" }, buttons);

/** Several recordings that differ in one setting. */
export function knobTask(lesson, step) {
  const { label, options } = step.knob;
  const note = h("p", { class: "sd-key", text: "" });
  const updateNote = () => {
    note.textContent = knobNote(lesson.view.trace);
  };
  const buttons = options.map((option) =>
    h("button", {
      type: "button",
      class: "sd-btn",
      "aria-pressed": String(option.trace === step.trace),
      text: option.label,
      onclick: async (e) => {
        buttons.forEach((b) => b.setAttribute("aria-pressed", String(b === e.currentTarget)));
        await lesson.stage(step, option.trace);
        updateNote();
      },
    }),
  );
  updateNote();
  return task(label, label, choices(buttons), note);
}

function knobNote({ rounds, done }) {
  const accepted = sum(rounds, (r) => r.accepted) / Math.max(rounds.length, 1);
  const speedup = done?.speedup ?? 1;
  return `${rounds.length} rounds, ${accepted.toFixed(2)} accepted drafts per round, ${times(speedup)} the speed of plain decoding.`;
}

/** A question to answer before looking; the answer comes from the recording where it can. */
export function guessTask(lesson, step) {
  const isAboutRound = step.ask.kind === "accepted";
  const { question, options, answer, why } = isAboutRound
    ? acceptedQuestion(pickRound(lesson.view.trace, (step.moment || {}).round))
    : step.ask;
  const reply = h("p", { class: "sd-answer", role: "status" });
  const buttons = options.map((text, k) =>
    h("button", {
      type: "button",
      class: "sd-btn",
      text,
      onclick: () => {
        buttons.forEach((b, i) => {
          b.classList.toggle("sd-right", i === answer);
          b.setAttribute("aria-pressed", String(i === k));
        });
        reply.textContent = `${k === answer ? "✓ Right. " : "✗ Not quite. "}${why}`;
        if (isAboutRound) lesson.stand({ ...step.moment, stage: "verify" });
      },
    }),
  );
  return task("Question", `Guess first: ${question}`, choices(buttons), reply);
}

function acceptedQuestion({ draft, accepted }) {
  const n = Math.max(...draft.depth);
  return {
    question: `The longest branch of this draft has ${plural(n, "token")}. How many will the target keep?`,
    options: Array.from({ length: Math.min(n, MAX_GUESS) + 1 }, (_, k) => String(k)),
    answer: accepted,
    why:
      accepted === n
        ? "All of them: then the target's own next token comes on top, for free."
        : `${accepted}. The first wrong token ends the round: everything after it was drafted on a wrong beginning.`,
  };
}

/** The break-even calculation with one slider. */
export function costTask(trace) {
  const rounds = trace.rounds.filter((r) => r.verify);
  const mean = (value) => sum(rounds, value) / Math.max(rounds.length, 1);
  const draft = mean((r) => r.verify.draft_seconds * 1000);
  const check = mean((r) => r.verify.verify_seconds * 1000);
  const last = trace.ar.at(-1);
  const plain = last ? (last.t * 1000) / Math.max(trace.ar.length - 1, 1) : 1;
  const out = h("p", { class: "sd-answer", role: "status" });
  const update = () => {
    const tau = Number(slider.value);
    const gain = (tau * plain) / (draft + check);
    slider.setAttribute("aria-valuetext", `${tau} tokens per round, ${times(gain)}`);
    const pays = gain >= 1 ? "– it pays." : "– it does not pay.";
    const costs = `(${draft.toFixed(1)} ms draft + ${check.toFixed(1)} ms check)`;
    const breakEven = ((draft + check) / plain).toFixed(2);
    out.textContent = `${tau.toFixed(1)} tokens per round × ${plain.toFixed(1)} ms (one plain token) ÷ ${costs} = ${times(gain)} ${pays} Break-even lies at ${breakEven} tokens per round.`;
  };
  const slider = h("input", {
    type: "range",
    min: 1,
    max: 8,
    step: 0.1,
    value: mean((r) => r.count).toFixed(1),
    "aria-label": "Tokens per round",
    class: "sd-scrub",
    oninput: update,
  });
  update();
  return task("Break-even", "Move one knob: tokens per round", slider, out);
}
