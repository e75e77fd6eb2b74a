// How much of a race is on screen when the playhead stands at a moment of it.

import { countUntil } from "./trace.js";

/**
 * What the views draw: `t` seconds; `step` of the timeline or null; its `round` or null and the
 * `stage` of it; `ended`; tokens `left` and `spec` of the lanes and their clocks, `ar` of plain
 * decoding, which is the left lane unless that is a method; `rounds` begun and
 * checked; the round `opened` up. `player` is {at, t, pinned}: the step of the timeline (-1: none),
 * seconds, at the end.
 */
export function stateAtPlayhead(trace, player, running) {
  const { timeline, rounds } = trace;
  const at = player.pinned ? timeline.length - 1 : player.at;
  const step = timeline[at] ?? null;
  const round = rounds[step?.round] ?? null;
  const stage = stageOf(step, round);
  const checked = stage === "verify";
  const ended = player.pinned || (at === timeline.length - 1 && player.t >= trace.end);
  const t = player.pinned ? trace.end : player.t;
  const ar = ended ? trace.ar.length : countUntil(trace.ar, t);
  const spec = ended && !running ? trace.spec.length : tokensUpTo(trace, round, checked);
  const left = ended ? trace.left.length : countUntil(trace.left, t);
  const clockAt = (tokens, n) => (player.pinned || n === tokens.length ? clockOf(tokens, n) : t);
  const specStands = ended || (checked && round.index === rounds.length - 1);
  return {
    t,
    step,
    round,
    stage,
    ended,
    ar,
    spec,
    left,
    arClock: clockAt(trace.ar, ar),
    leftClock: clockAt(trace.left, left),
    specClock: specStands ? clockOf(trace.spec, spec) : t,
    rounds: round ? round.index + Number(checked) : 0,
    opened: player.pinned && !running ? (bestRound(rounds) ?? round) : round,
  };
}

const STAGE_WORDS = { denoise: "denoising", draft: "drafted", verify: "verified" };

/**
 * Where the playhead stands, beside the bar. While a replay moves only the round is told: the strip
 * gives each part of it more time than its clock does.
 */
export function whereWords({ rounds }, { round, stage }, replays) {
  if (!round) return "before the first round";
  const where = `round ${round.index + 1} of ${rounds.length}`;
  return replays ? where : `${where}, ${STAGE_WORDS[stage]}`;
}

/**
 * The round that is shown when a race has come to rest, as its last one often drafts nothing: the
 * last one of those with the most accepted drafts; null if nothing was drafted.
 */
function bestRound(rounds) {
  return rounds
    .filter((r) => r.verify && r.draft && r.draft.tokens.length)
    .reduce((best, r) => (best && best.accepted > r.accepted ? best : r), null);
}

/** denoise, draft or verify; the plain lane's last steps leave the last round checked. */
function stageOf(step, round) {
  if (round && round.verify && (step.kind === "verify" || step.kind === "ar")) return "verify";
  return step && step.kind === "draft" ? "draft" : "denoise";
}

/** Tokens of the speculative lane when this round is under way, or checked. */
function tokensUpTo({ spec }, round, checked) {
  if (!round) return Math.min(1, spec.length);
  return Math.min(round.first + (checked ? round.count : 0), spec.length);
}

/** Seconds on a lane's clock after n of its tokens. */
const clockOf = (tokens, n) => (n ? tokens[n - 1].t : 0);
