// What the block strip shows, in one sentence.

import { isBranching } from "./draft_tree.js";
import { boxed, plural } from "./format.js";
import { MARKOV_HEAD } from "./round_summary.js";
import { isChainOfPasses, isCopied } from "./strip_model.js";

/** A sentence about a moment of `momentOf`. */
export function stripWords(trace, moment) {
  const { round, kind } = moment;
  if (kind === "masks") return masksWords(round);
  if (kind === "denoise") return stepWords(trace, moment);
  const n = round.draft ? round.draft.tokens.length : 0;
  if (kind === "draft") return draftWords(round, n);
  if (kind === "check")
    return n
      ? `The target verifies ${n === 1 ? "the draft token" : `all ${n} draft tokens`} in one pass.`
      : "Nothing is drafted: the target decodes one token.";
  return verdictWords(trace, moment, n);
}

function masksWords({ frames }) {
  if (!frames.length) return "The drafter is at work.";
  return isChainOfPasses(frames)
    ? "The drafter writes one token after the other."
    : `The drafter starts from ${plural(frames[0].ids.length, "mask")}.`;
}

function stepWords(trace, { round, upto }) {
  const frame = round.frames.slice(0, upto).at(-1);
  if (!frame) return masksWords(round);
  if (frame.label === MARKOV_HEAD)
    return "The drafter's Markov head conditions each token on the one before it.";
  if (isChainOfPasses(round.frames))
    return `Pass ${frame.step + 1} of the autoregressive drafter: one more token.`;
  if (/^branch/.test(frame.label))
    return "Second stage: where a rejection is likely, the drafter denoises the rest anew.";
  const left = frame.masked.filter(Boolean).length;
  const which = whichStep(trace, round, frame);
  return left
    ? `${which}: ${frame.ids.length - left} positions are filled in, ${plural(left, "mask")} left.`
    : `${which}: all positions are filled in at once.`;
}

/** A Markov head's frame, the last, is no step; before one has come nobody knows of it. */
function whichStep(trace, round, { step, steps }) {
  const hasHead = trace.rounds.some((r) => r.frames.some((f) => f.label === MARKOV_HEAD));
  if (!hasHead && !round.draft) return `Denoising step ${step + 1}`;
  const count = steps - Number(hasHead);
  return count > 1 ? `Denoising step ${step + 1} of ${count}` : "One denoising step";
}

function draftWords({ draft }, n) {
  if (!n) return "Nothing is drafted: the target decodes one token.";
  if (isCopied(draft)) return `${plural(n, "token")} copied from earlier text.`;
  return `${plural(n, "token")} proposed${isBranching(draft) ? " in a tree" : ""}.`;
}

function verdictWords(trace, { round, walked }, n) {
  const own = round.verify.kept.find((k) => k.source !== "accepted");
  const word = own ? `“${boxed(own.text || trace.word(own.id))}”` : "";
  if (!n) return `Nothing was drafted: the target wrote ${word} itself.`;
  if (walked <= round.accepted) return "The target's verdict, from left to right.";
  const depth = Math.max(...round.draft.depth);
  const kept = `Kept ${round.accepted} of ${plural(depth, "position")}`;
  if (!own) return `${kept}.`;
  const how = own.source === "correction" ? "corrected the next to" : "added";
  const bonus = own.source === "bonus" ? " as a bonus" : "";
  return `${kept}; the target ${how} ${word}${bonus}: ${plural(round.count, "token")} for one pass.`;
}
