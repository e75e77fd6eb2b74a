// How much of a race is on screen when the playhead stands at a moment of it.

import { countUntil } from "./trace.js";

/**
 * What the views draw: `t` seconds; `step` of the timeline or null; its `round` or null and the
 * `stage` of it; `ended`; tokens `ar` and `spec` of the lanes and their clocks; `rounds` begun and
 * checked. `player` is {at, t, pinned}: the step of the timeline (-1: none), seconds, at the end.
 */
export function stateAtPlayhead(trace, player, running) {
  const { timeline, rounds } = trace;
  const { pinned } = player;
  const at = pinned ? timeline.length - 1 : player.at;
  const step = at >= 0 ? timeline[at] : null;
  const ended = pinned || (at === timeline.length - 1 && player.t >= trace.end);
  const round = (step && rounds[step.round]) || null;
  const checked = Boolean(round && round.verify && ["verify", "ar"].includes(step.kind));
  const t = pinned ? trace.end : player.t;
  const ar = ended ? trace.ar.length : countUntil(trace.ar, t);
  const spec = ended && !running ? trace.spec.length : tokensUpTo(trace, round, checked);
  const lastChecked = checked && step.round === rounds.length - 1;
  return {
    t,
    step,
    round,
    ended,
    ar,
    spec,
    stage: checked ? "verify" : step && step.kind === "draft" ? "draft" : "denoise",
    arClock: ar < trace.ar.length && !pinned ? t : clockOf(trace.ar, ar),
    specClock: ended || lastChecked ? clockOf(trace.spec, spec) : t,
    rounds: step ? Math.max(0, step.round + (checked ? 1 : 0)) : 0,
  };
}

/** Tokens of the drafted lane when this round is under way, or checked. */
function tokensUpTo({ spec }, round, checked) {
  if (!round) return Math.min(1, spec.length);
  return Math.min(round.first + (checked ? round.count : 0), spec.length);
}

/** Seconds on a lane's clock after n of its tokens. */
const clockOf = (tokens, n) => (n ? tokens[n - 1].t : 0);
