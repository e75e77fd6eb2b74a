// What happened in a round, in one or two sentences.

import { isBranching } from "./draft_tree.js";
import { UNTOLD } from "./figures.js";
import { boxed, plural, seconds } from "./format.js";

// the label of its step, from drafters/parts/candidates.py
export const MARKOV_HEAD = "Markov head";

/** Sentences about the round at a stage of it: denoise, draft or verify. */
export function summary(trace, round, stage) {
  const { draft, verify } = round;
  if (stage === "denoise" || !draft) return denoising(round);
  if (trace.start.engine)
    return servedRound(round) + (verify ? ownToken(trace, round) + dropped(verify) : "");
  const made = drafted(draft, verify);
  if (stage === "draft" || !verify) {
    const next = draft.tokens.length ? "verifies all of them" : "decodes one token";
    return `${made}. Next, the target ${next} in one pass.`;
  }
  return `${made}. ${targetPass(round)}${ownToken(trace, round)}${dropped(verify)}`;
}

/** The target's pass: what it verified and accepted, its rows and time. */
function targetPass({ draft, verify, accepted }) {
  const n = draft.tokens.length;
  const time = seconds(verify.verify_seconds);
  const rows = plural(verify.rows, "row");
  if (!n) return `The target's pass of ${rows} took ${time}.`;
  const padding = verify.rows > n + 1 ? " and padding" : "";
  return `The target verified ${plural(n, "draft token")} (${rows} with the anchor${padding}) in one pass of ${time} and accepted ${accepted}.`;
}

/**
 * What stands in place of a view where the round drafted nothing, and that another of `rounds` can
 * be chosen if one of them did; null where it did.
 */
export function nothingDrafted({ draft, frames }, rounds) {
  if (!draft || draft.tokens.length || frames.length) return null;
  const { why } = draft.notes;
  const others = rounds.some((r) => r.draft?.tokens.length || r.frames.length);
  return `Nothing was drafted in this round${why ? ` (${why})` : ""}: the target generated one token alone.${others ? " Choose another round above." : ""}`;
}

/** A round of a serving engine, which tells neither times nor drafts that were rejected. */
function servedRound({ draft, accepted, count }) {
  if (draft.notes.why)
    return `One chunk, taken for one pass, brought ${plural(count, "token")}; ${draft.notes.why}.`;
  const n = draft.tokens.length;
  if (!n) return "Nothing was drafted.";
  const fallen = accepted < n ? ", whose rejected ones (“·”) it does not name" : "";
  return `The engine drafted ${plural(n, "token")}${fallen}; it accepted ${accepted}.`;
}

function denoising(round) {
  const frame = round.frames.at(-1);
  if (!frame) return "The drafter is at work.";
  const how =
    frame.label === MARKOV_HEAD
      ? "in one pass; then a Markov head conditions each token on the previous one"
      : plural(frame.steps, "step");
  return `Denoising: ${plural(frame.ids.length, "position")} at once, ${how}.`;
}

function drafted(draft, verify) {
  const n = draft.tokens.length;
  const time = seconds(draft.seconds || (verify && verify.draft_seconds) || 0);
  const shape = isBranching(draft) ? " in a tree" : "";
  const { why, expected } = draft.notes;
  const made = n
    ? `The drafter proposed ${plural(n, "token")}${shape} in ${time}`
    : "Nothing was drafted";
  const hope =
    expected === null
      ? ""
      : `; ${expected.toFixed(1)} expected tokens this round (with the target's own)`;
  return `${made}${why ? ` (${why})` : ""}${hope}`;
}

/** The target's own token. */
function ownToken(trace, { draft, verify }) {
  const own = verify.kept.find((k) => k.source !== "accepted");
  if (!own || draft.notes.why === UNTOLD) return "";
  const word = `“${boxed(own.text || trace.word(own.id))}”`;
  if (own.source === "plain") return ` It generated ${word} itself.`;
  if (own.source === "correction") return ` It replaced the first rejected token by ${word}.`;
  const end = isBranching(draft) ? "Accepted to a leaf" : "Accepted to the end of the draft";
  return ` ${end}; bonus token ${word}.`;
}

function dropped({ cut }) {
  if (!cut) return "";
  return ` Behind the end of the answer ${plural(cut, "token")} ${cut === 1 ? "was" : "were"} dropped.`;
}
