// The rounds that the lesson stands at.

import { acceptedPath } from "./draft_tree.js";

/**
 * A round worth showing: `best` (most drafts accepted), `broken` (ends in a correction), `bonus`
 * (the first that ends in one), `branching`, else the first.
 */
export function pickRound(trace, which) {
  const drafted = trace.rounds.filter((r) => r.verify && r.draft && r.draft.tokens.length);
  const rounds = drafted.length ? drafted : trace.rounds;
  const score = {
    best: (r) => r.accepted,
    broken: (r) =>
      r.verify.kept.some((k) => k.source === "correction") ? Math.min(r.accepted, 4) : -1,
    bonus: (r) => Number(r.verify.kept.some((k) => k.source === "bonus")),
    branching: (r) => (acceptedPath(r).some((node, k) => node !== k) ? r.accepted : -1),
  }[which];
  if (!score) return rounds[0];
  return rounds.reduce((best, r) => (score(r) > score(best) ? r : best));
}
