// Figures over rounds, with their denominators. Baseline and predictions are read from the events.

import { plural, times } from "./format.js";

// of a serving engine's round, from attached/tell.py
export const UNTOLD = "what was drafted is not told";
const MIN_TOKENS = 8; // a race of fewer has no speed-up: one round or one pause decides it
const MIN_ROUNDS = 3; // fewer tell nothing about how busy the machine is
// measured over predicted time from which something else was computing: on a quiet machine 0.96 to
// 1.07 in either lane, and up to 1.9 in both behind a prompt of 2,700 tokens
const BUSY = 1.5;
const SKEW = 1.3; // one lane's over the other's: the speed-up is off by as much
const LONG_TEXT = 1000; // tokens from which passes take visibly longer than those measured at load

/**
 * The left lane's clock times this is the clock of the baseline (1 = the left lane is the
 * baseline).
 */
export function baselineScale({ start }) {
  return start.baseline_ms && start.ar_ms ? Math.min(1, start.baseline_ms / start.ar_ms) : 1;
}

/** True if the speculative lane is too short to say how fast it is. */
export const tooShort = ({ spec }) => spec < MIN_TOKENS;

/** What a drafter runs on, where its kind has no weights of its own; else null. */
export const borrowedWeights = ({ weights, borrowed }) => (borrowed ? weights : null);

/** Measured over predicted time of these rounds; 0 without predictions, or with too few rounds. */
export function slowdown(trace, rounds) {
  if (rounds.length < MIN_ROUNDS || !isPredicted(trace, rounds)) return 0;
  return sum(rounds, measuredMs) / (sum(rounds, (r) => r.verify.predicted_ms) || 1);
}

/**
 * What the clocks of both lanes say about the machine, once `ar` tokens and `rounds` are there:
 * {unreliable, words}; no words where they took what they should.
 */
export function clocks(trace, ar, rounds) {
  const right = slowdown(trace, rounds) || null;
  const left = plainSlowdown(trace, ar);
  const known = [left, right].filter(Boolean);
  if (!known.length) return { unreliable: false, words: "" };
  const most = Math.max(...known);
  const least = Math.min(...known);
  const isLong = trace.start.prompt_tokens + ar > LONG_TEXT;
  const disturbed = most > SKEW * least || (most > BUSY && !isLong);
  if (!disturbed && most <= BUSY && least >= 1 / BUSY) return { unreliable: false, words: "" };
  const what = [right && `rounds took ${times(right)}`, left && `the left lane ${times(left)}`];
  const measured = `${what.filter(Boolean).join(", ")} what the costs measured at load predict`;
  if (least < 1 / BUSY)
    return {
      unreliable: true,
      words: `The machine was busy when the model was loaded: ${measured}.`,
    };
  return disturbed
    ? { unreliable: true, words: `The machine was busy: ${measured}. Run again when it is idle.` }
    : { unreliable: false, words: `Passes over a long text take longer: ${measured}.` };
}

/** Measured over expected time of the plain lane's first `n` tokens; null with too few. */
function plainSlowdown({ ar, start }, n) {
  if (n <= MIN_TOKENS || !start.ar_ms) return null;
  return (1000 * ar[n - 1].t) / ((n - 1) * start.ar_ms);
}

/**
 * True if the race knows its baseline, and each of these checked rounds what it should have taken.
 */
export function isPredicted({ start }, rounds) {
  return Boolean(start.baseline_ms) && rounds.every((r) => r.verify.predicted_ms !== null);
}

/** Milliseconds that a checked round took. */
export const measuredMs = (round) => (round.t1 - round.t0) * 1000;

export const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);

/**
 * [tokens, speed-up] after each round: the baseline's clock over the speculative lane's, for the
 * same number of tokens.
 */
export function speedupSeries(trace, rounds = trace.rounds) {
  const points = [];
  const scale = baselineScale(trace);
  for (const r of rounds) {
    if (!r.verify || !r.t1) continue;
    const n = r.first + r.count;
    const plain = trace.ar[n - 1];
    if (plain && plain.t > 0) points.push([n, (plain.t * scale) / r.t1]);
  }
  return points;
}

/**
 * [tokens, predicted speed-up] after each round: tokens x baseline pass over the predicted time so
 * far; empty without predictions.
 */
export function predictedSeries(trace, rounds = trace.rounds) {
  const { baseline_ms } = trace.start;
  const checked = rounds.filter((r) => r.verify);
  if (!isPredicted(trace, checked)) return [];
  const points = [];
  let plain = 0;
  let ms = 0;
  for (const r of checked) {
    // with fewer threads than the race began with, the baseline has a price of its own
    plain += r.count * (r.verify.baseline_ms || baseline_ms);
    ms += r.verify.predicted_ms;
    if (ms > 0) points.push([r.first + r.count, plain / ms]);
  }
  return points;
}

/**
 * Per depth: rounds that drafted it, rounds in which the target got as far as testing it, rounds
 * that kept it.
 */
export function acceptanceByDepth(rounds) {
  const rows = [];
  // how many were drafted is not told: no share can be known
  if (rounds.some((r) => r.draft && r.draft.notes.why === UNTOLD)) return rows;
  for (const r of rounds) {
    if (!r.draft || !r.verify || !r.draft.tokens.length) continue;
    const drafted = Math.max(...r.draft.depth);
    // past the end of the answer nothing was tested
    const deepest = r.verify.cut ? Math.min(r.accepted, drafted) : drafted;
    for (let d = 1; d <= deepest; d++) {
      rows[d - 1] = rows[d - 1] || { depth: d, drafted: 0, tested: 0, kept: 0 };
      rows[d - 1].drafted += 1;
      if (r.accepted >= d - 1) rows[d - 1].tested += 1;
      if (r.accepted >= d) rows[d - 1].kept += 1;
    }
  }
  return rows;
}

/** What a ratio says, after the number; `even` if it is no difference. */
export function speedWords(trace, ratio, even) {
  if (trace.start.method === "ar")
    return "plain decoding against itself: any difference is timing noise";
  return ratio < 1 && !even
    ? "the speed of plain decoding: slower here"
    : "the speed of plain decoding";
}

/**
 * {word, note, look} about whether both lanes write the same; `done` is null while the race runs.
 */
export function comparison(trace, { ar, spec }, differs, done) {
  const { rule } = trace.start;
  if (trace.start.engine) return servedComparison(trace.start.engine, done);
  const same = Math.min(ar, spec);
  if (rule && rule !== "match")
    return {
      word: "same distribution",
      note: `the rule “${rule}” keeps the distribution, not the sample`,
      look: "distribution",
    };
  if (done && done.stopped && same < 2)
    // the first token is the prefill's: no round wrote any
    return { word: "–", note: "stopped before there was anything to compare", look: "none" };
  if (done && done.stopped)
    return {
      word: differs < 0 ? "identical so far" : `differs at ${differs}`,
      note: `stopped after ${plural(same, "common token")}`,
      look: differs < 0 ? "same" : "differs",
    };
  if (differs >= 0 || (done && done.difference !== null)) return difference(differs, done);
  if (done && done.identical) {
    const n = trace.spec.length;
    return {
      word: "identical",
      note: n > 1 ? `all ${n} tokens, id for id` : "one token",
      look: "same",
    };
  }
  return same
    ? { word: "identical so far", note: plural(same, "common token"), look: "same" }
    : { word: "–", note: "both lanes must write the same", look: "none" };
}

/** What a serving engine's two texts have in common; it promises nothing. */
function servedComparison(engine, done) {
  const note = `${engine} does not promise otherwise`;
  const found = (done && done.served) || {};
  if (found.comparison === "tokens")
    return { word: "the same tokens", note: `here; ${engine} does not promise it`, look: "none" };
  if (found.comparison === "text")
    return { word: "the same text", note: `here; ${engine} does not promise it`, look: "none" };
  if (found.comparison === "parted")
    return { word: `they part at character ${found.parted_at}`, note, look: "none" };
  return { word: "–", note: done ? "not compared" : "compared at the end", look: "none" };
}

function difference(differs, done) {
  const gap = done ? done.top2_gap : null;
  const note =
    gap === null
      ? "first different position"
      : `gap of the two best logits there: ${gap.toPrecision(3)}`;
  return { word: `differs at ${done?.difference ?? differs}`, note, look: "differs" };
}
