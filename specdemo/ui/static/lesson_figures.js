// Figures that the lesson reads from its recordings, so that no text claims what was not measured.

import { baselineScale, borrowedWeights, sum } from "./figures.js";
import { times } from "./format.js";

const ms = (value) => (value === undefined ? null : `${value.toFixed(1)} ms`);

/** What a text may name in braces; null where the recording does not know it. */
const FIGURES = {
  pass_1: ({ start }) => ms(start.pass_ms[1]),
  pass_16: ({ start }) => ms(start.pass_ms[16]),
  pass_64: ({ start }) => ms(start.pass_ms[64]),
  borrowed: ({ start }) => inWords(borrowedWeights(start)),
  speedup: ({ done }) => (done?.speedup ? times(done.speedup) : null),
};

/** Weights, without the name by which models.yaml knows a kind of drafter. */
const inWords = (weights) =>
  weights &&
  weights.replace(/none trained for \S+ yet/, "none trained for this kind of drafter yet");

/** The texts with their figures, without those of which the recording lacks one. */
export function withFigures(texts, trace) {
  return texts.flatMap((text) => {
    const names = [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
    const values = new Map(names.map((name) => [name, FIGURES[name](trace)]));
    if ([...values.values()].includes(null)) return [];
    return [text.replace(/\{(\w+)\}/g, (_, name) => values.get(name))];
  });
}

/**
 * The question what a pass over eight tokens takes, by the costs measured for this recording; null
 * if it has none.
 */
export function passQuestion({ start: { pass_ms } }) {
  const [one, eight] = [pass_ms[1], pass_ms[8]];
  if (!one || !eight) return null;
  return {
    question: `On the machine of this recording a pass over one token takes ${ms(one)}. What does one pass over eight tokens take?`,
    options: [
      {
        text: ms(8 * one),
        why: "That would be eight passes, each of which reads all the weights again. One pass reads them once for all eight tokens.",
      },
      {
        text: ms(eight),
        why: `It takes ${(eight / one).toFixed(2)} times as long, not eight times: the weights are read once for all eight. Speculative decoding uses this.`,
      },
      {
        text: ms(one / 8),
        why: "It cannot be faster than over one token: all weights are read in either case.",
      },
    ],
    answer: 1,
  };
}

const hundredths = (value) => Math.round(value * 100) / 100;

/**
 * Mean tokens of a round and what they cost, in ms rounded as they are shown: `plain` a token of
 * the baseline that speed-ups are taken against, `draft` and `check` the parts of a round.
 */
export function roundCosts(trace) {
  const rounds = trace.rounds.filter((r) => r.verify);
  const mean = (value) => hundredths(sum(rounds, value) / Math.max(rounds.length, 1));
  const last = trace.ar.at(-1);
  const left = last ? (last.t * 1000) / Math.max(trace.ar.length - 1, 1) : 1;
  return {
    tokens: mean((r) => r.count),
    plain: hundredths(left * baselineScale(trace)),
    draft: mean((r) => r.verify.draft_seconds * 1000),
    check: mean((r) => (r.verify.verify_seconds + r.verify.rest_seconds) * 1000),
  };
}

/** The speed-up at so many tokens per round, from the rounded costs, as a reader computes it. */
export const speedupAt = (tokens, { plain, draft, check }) => (tokens * plain) / (draft + check);
