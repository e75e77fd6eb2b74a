// What there is to do in a step of the lesson: change a setting, guess before looking, work out
// where drafting pays.

import { h } from "./dom.js";
import { isBranching } from "./draft_tree.js";
import { sum } from "./figures.js";
import { boxed, plural, times } from "./format.js";
import { passQuestion, roundCosts, speedupAt } from "./lesson_figures.js";
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
  const speed = done?.speedup ? `, ${times(done.speedup)} the speed of plain decoding` : "";
  return `${rounds.length} rounds, ${accepted.toFixed(2)} accepted draft tokens per round${speed}.`;
}

/**
 * A question to answer before looking; the answer comes from the recording where it can. Nothing if
 * the recording does not know it.
 */
export function guessTask(lesson, step) {
  const { trace } = lesson.view;
  const isAboutRound = step.ask.kind === "accepted";
  const asked = {
    accepted: () =>
      acceptedQuestion(pickRound(trace, (step.moment || {}).round), (id) => trace.word(id)),
    pass: () => passQuestion(trace),
  }[step.ask.kind];
  const found = asked ? asked() : step.ask;
  if (!found) return "";
  const { question, options, answer } = found;
  const reply = h("p", { class: "sd-answer", role: "status" });
  const buttons = options.map(({ text, why }, k) =>
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

/** `word` gives the text of a token id. */
export function acceptedQuestion(round, word) {
  const { draft, accepted, verify } = round;
  const n = Math.max(...draft.depth);
  const what = isBranching(draft) ? "The longest branch of this draft" : "This draft";
  return {
    question: `${what} has ${plural(n, "token")}. How many will the target accept?`,
    options: Array.from({ length: Math.min(n, MAX_GUESS) + 1 }, (_, k) => ({
      text: String(k),
      why: acceptedReply(k, accepted, n, (i) => boxed(word(verify.kept[i]?.id), 20)),
    })),
    answer: accepted,
  };
}

function acceptedReply(guess, accepted, n, kept) {
  if (guess < accepted)
    return `More than ${guess}: the target also takes “${kept(guess)}” at position ${guess + 1}, as drafted.`;
  if (guess > accepted)
    return `Fewer than ${guess}: at position ${accepted + 1} the target itself writes “${kept(accepted)}”; what was drafted behind it continued another text.`;
  return accepted === n
    ? "All of them: then the target's own next token is added, the bonus."
    : `${accepted}. The first rejected token ends the round: everything after it was conditioned on a wrong prefix.`;
}

/** The break-even calculation with one slider, against the same baseline as the speed-up. */
export function costTask(trace) {
  const costs = roundCosts(trace);
  const { plain, draft, check } = costs;
  const out = h("p", { class: "sd-answer", role: "status" });
  const update = () => {
    const tokens = Number(slider.value);
    const gain = speedupAt(tokens, costs);
    slider.setAttribute("aria-valuetext", `${tokens} tokens per round, ${times(gain)}`);
    const pays = gain >= 1 ? "– it pays." : "– it does not pay.";
    const parts = `(${draft.toFixed(2)} ms draft + ${check.toFixed(2)} ms verify)`;
    const breakEven = ((draft + check) / plain).toFixed(2);
    out.textContent = `${tokens.toFixed(2)} tokens per round × ${plain.toFixed(2)} ms (one token of the baseline) ÷ ${parts} = ${times(gain)} ${pays} Break-even lies at ${breakEven} tokens per round.`;
  };
  const slider = h("input", {
    type: "range",
    min: 1,
    max: 8,
    step: 0.01,
    value: costs.tokens.toFixed(2),
    "aria-label": "Tokens per round",
    class: "sd-scrub",
    oninput: update,
  });
  update();
  const note = h("p", {
    class: "sd-key",
    text: "The baseline is plain decoding as the speed-up above takes it: the faster of the left lane and the one-row baseline.",
  });
  return task("Break-even", "Move the slider: tokens per round", slider, out, note);
}
