// What happened in a round, in one or two sentences.

import { isBranching } from "./draft_tree.js";
import { boxed, plural, seconds } from "./format.js";

// the label of its step, from drafters/parts/candidates.py
export const MARKOV_HEAD = "Markov head";

/** Sentences about the round at a stage of it: denoise, draft or verify. */
export function summary(trace, round, stage) {
  const { draft, verify } = round;
  if (stage === "denoise" || !draft) return denoising(round);
  const made = drafted(draft, verify);
  if (stage === "draft" || !verify)
    return `${made}. Next, the target checks all of them in one pass.`;
  const pass = `The target read ${plural(verify.rows, "row")} in one pass of ${seconds(verify.verify_seconds)}`;
  const kept = draft.tokens.length ? ` and kept ${round.accepted}` : "";
  return `${made}. ${pass}${kept}.${ownToken(trace, round)}${dropped(verify)}`;
}

/** What stands in place of a view where the round drafted nothing; null where it did. */
export function nothingDrafted({ draft, frames }) {
  if (!draft || draft.tokens.length || frames.length) return null;
  const { why } = draft.notes;
  return `Nothing was drafted in this round${why ? ` (${why})` : ""}: the target wrote one token alone. Choose another round above.`;
}

function denoising(round) {
  const frame = round.frames.at(-1);
  if (!frame) return "The drafter is at work.";
  const how =
    frame.label === MARKOV_HEAD
      ? "in one pass; then a Markov head lets each word follow from the one before it"
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
  const hope = expected === null ? "" : `; ${expected.toFixed(1)} tokens expected`;
  return `${made}${why ? ` (${why})` : ""}${hope}`;
}

/** The token that the target wrote itself. */
function ownToken(trace, { draft, verify }) {
  const own = verify.kept.find((k) => k.source !== "accepted");
  if (!own) return "";
  const word = `“${boxed(own.text || trace.word(own.id))}”`;
  if (own.source === "plain") return ` It wrote ${word} itself.`;
  if (own.source === "correction")
    return ` Then it put its own ${word} where the draft went wrong.`;
  const right = isBranching(draft)
    ? "The branch it followed was right to its end"
    : "Everything was right";
  return ` ${right}, so its own next token ${word} came free.`;
}

function dropped({ cut }) {
  if (!cut) return "";
  return ` ${plural(cut, "token")} after the stop ${cut === 1 ? "was" : "were"} dropped.`;
}
