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
  const all = h("p", { class: "sd-key", text: "" });
  Promise.all(options.map(({ trace }) => lesson.folded(trace))).then(
    (traces) => (all.textContent = knobSummary(step, traces)),
    () => {}, // the page goes, or the recording did not come: its button says so
  );
  return task(label, label, choices(buttons), note, all);
}

/** What the recordings of a setting say side by side; `traces` in the order of its options. */
export function knobSummary({ knob: { label, options } }, traces) {
  const counts = traces.map(({ rounds }) => rounds.length);
  const said = options.map((option, k) => `${option.label}: ${knobNote(traces[k])}`);
  const ending = counts.every((n) => n === counts[0])
    ? ` All settings need the same ${plural(counts[0], "round")}: what differs is the time that a round takes.`
    : "";
  return `${label}. ${said.join(" ")}${ending}`;
}

function knobNote({ rounds, done }) {
  const accepted = sum(rounds, (r) => r.accepted) / Math.max(rounds.length, 1);
  const speed = done?.speedup ? `, ${times(done.speedup)} the speed of plain decoding` : "";
  return `${rounds.length} rounds, ${accepted.toFixed(2)} accepted draft tokens per round${speed}.`;
}

/**
 * {question, options, answer} of a step, from the recording where it can; null if the recording
 * does not know it.
 */
export function questionOf({ ask, moment }, trace) {
  switch (ask?.kind) {
    case "accepted":
      return trace.rounds.length
        ? acceptedQuestion(pickRound(trace, moment?.round), (id) => trace.word(id))
        : null;
    case "pass":
      return passQuestion(trace);
    default:
      return ask ?? null;
  }
}

/** A question to answer before looking. Nothing if the recording does not know it. */
export function guessTask(lesson, step) {
  const isAboutRound = step.ask.kind === "accepted";
  const found = questionOf(step, lesson.view.trace);
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

/** The break-even calculation at so many tokens per round. */
export function breakEvenWords(tokens, costs) {
  const { plain, draft, check } = costs;
  const gain = speedupAt(tokens, costs);
  const pays = gain >= 1 ? "– it pays." : "– it does not pay.";
  const parts = `(${draft.toFixed(2)} ms draft + ${check.toFixed(2)} ms verify)`;
  const breakEven = ((draft + check) / plain).toFixed(2);
  return `${tokens.toFixed(2)} tokens per round × ${plain.toFixed(2)} ms (one token of the baseline) ÷ ${parts} = ${times(gain)} ${pays} Break-even lies at ${breakEven} tokens per round.`;
}

/** Why the sum's last digit is not that of the race, where it is not. */
function roundedWords({ done }, costs) {
  const here = times(speedupAt(costs.tokens, costs));
  return done?.speedup && times(done.speedup) !== here
    ? ` The race says ${times(done.speedup)}, this sum ${here}: it is computed from the rounded numbers shown here.`
    : "";
}

/** The break-even calculation with one slider, against the same baseline as the speed-up. */
export function costTask(trace) {
  const costs = roundCosts(trace);
  const out = h("p", { class: "sd-answer", role: "status" });
  const update = () => {
    const tokens = Number(slider.value);
    const gain = speedupAt(tokens, costs);
    slider.setAttribute("aria-valuetext", `${tokens} tokens per round, ${times(gain)}`);
    out.textContent = breakEvenWords(tokens, costs);
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
    text: `The baseline is plain decoding as the speed-up of the race takes it: the faster of the left lane and the one-row baseline.${roundedWords(trace, costs)}`,
  });
  return task("Break-even", "Move the slider: tokens per round", slider, out, note);
}
