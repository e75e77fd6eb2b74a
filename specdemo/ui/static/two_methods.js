// What is said in a race between two methods, where plain decoding runs beside both.

import { comparison, speedupSeries } from "./figures.js";
import { plural, times } from "./format.js";

const laneRate = (tokens, seconds) => (tokens > 1 && seconds > 0 ? (tokens - 1) / seconds : 0);

/** The right lane's rate over the left one's so far, or of the whole race; null if unknown. */
export function rightOverLeft(trace, { spec, specClock, left, leftClock, ended }) {
  const whole = ended && trace.done ? trace.done.against.ratio : null;
  const [right, other] = [laneRate(spec, specClock), laneRate(left, leftClock)];
  return whole ?? (right && other ? right / other : null);
}

/** Both methods over plain decoding, which is measured in the same race. */
export function overPlain(trace, state, rounds) {
  const whole = state.ended ? trace.done : null;
  const right = whole ? whole.speedup : lastOf(speedupSeries(trace, rounds));
  const checked = trace.against.rounds.filter((r) => r.verify && r.t1 <= state.t);
  const left = whole ? whole.against.speedup : lastOf(speedupSeries(trace.against, checked));
  const said = (ratio) => (ratio === null ? "–" : times(ratio));
  return `Over plain decoding, a third lane of this race: ${said(left)} left, ${said(right)} right. `;
}

const lastOf = (series) => series.at(-1)?.[1] ?? null;

/** As `comparison`, of all three lanes; `differs` and `leftDiffers` are positions or -1. */
export function compareAll(trace, state, differs, leftDiffers) {
  const done = state.ended ? trace.done : null;
  const right = comparison(trace, state, differs, done);
  const { against } = trace;
  const shown = { ar: state.ar, spec: state.left };
  const whole = done && { ...done.against, stopped: done.stopped };
  const left = comparison(against, shown, leftDiffers, whole);
  if (right.look !== "same" || left.look === "none") return right;
  if (left.look !== "same") return { ...left, note: `left lane: ${left.note}` };
  if (!done || done.stopped) return right;
  const same = plural(trace.spec.length, "token");
  return { ...right, note: `${same} of all three lanes, plain decoding's included, id for id` };
}
