// The words of the panel about one token, and about one candidate of a round.

import { boxed, percent, seconds } from "./format.js";
import { MARKOV_HEAD } from "./round_summary.js";

const SOURCE_WORDS = {
  first: "first token, from reading the prompt",
  plain: "plain: written by the target only",
  accepted: "accepted: drafted, and the target agreed",
  correction: "correction: the target's own token where the draft was wrong",
  bonus: "bonus: the target's own next token, after it accepted a draft to its end",
};
const STATUS_WORDS = {
  accepted: "accepted by the target",
  rejected: "rejected: the target chose another token here",
  unreached: "not reached: something before it was rejected",
  dropped: "the target agreed, but the answer had ended before it",
};

/** Lines about token number i of a lane. */
export function tokenLines(trace, token, i) {
  const lines = [
    [boxed(token.text || trace.word(token.id), 40), "head"],
    [SOURCE_WORDS[token.source], token.source],
    `position ${i} · token id ${token.id}`,
  ];
  if (token.round !== null) lines.push(`round ${token.round + 1} of ${trace.rounds.length}`);
  if (token.p != null) lines.push(`target's probability p = ${percent(token.p)}`);
  if (token.q != null) lines.push(`drafter's probability q = ${percent(token.q)}`);
  if (token.rank) lines.push(`place ${token.rank} among the drafter's candidates`);
  else if (token.source === "correction") lines.push("not among the drafter's candidates shown");
  if (token.step != null) lines.push(settledIn(trace.rounds[token.round], token.step));
  if (token.logprob !== null) lines.push(`log-probability ${token.logprob.toFixed(3)}`);
  if (token.t) lines.push(`at ${seconds(token.t)} of this lane's clock`);
  return lines;
}

/** Which denoising step settled a token, or that the Markov head did after them. */
function settledIn(round, step) {
  const frames = round ? round.frames : [];
  const last = frames.find((frame) => frame.step === step && frame.row === frames[0].row);
  return last && last.label === MARKOV_HEAD
    ? "settled by the Markov head, after the denoising"
    : `settled in denoising step ${step + 1}`;
}

/** Lines about candidate number i of a round. */
export function candidateLines(trace, { draft, verify }, i) {
  const lines = [[boxed(trace.word(draft.tokens[i]), 40), "head"]];
  const status = verify && verify.status[i];
  if (status) lines.push([STATUS_WORDS[status] || status, status]);
  const origin = draft.origin[i] ? ` · from ${draft.origin[i]}` : "";
  lines.push(`${draft.depth[i]} after the anchor${origin}`);
  if (draft.q[i] !== null) lines.push(`drafter's probability q = ${percent(draft.q[i])}`);
  if (verify && verify.p[i] != null) lines.push(`target's probability p = ${percent(verify.p[i])}`);
  const pick = verify && verify.picks[draft.parent[i] + 1];
  if (pick != null) lines.push(`the target's own choice here: “${boxed(trace.word(pick), 24)}”`);
  return lines;
}
