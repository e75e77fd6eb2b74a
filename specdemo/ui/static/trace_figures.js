// Whether the totals at a trace's end follow from its events; `specdemo/trace_figures.py` asks the
// same on the command line.

const ROUNDED = 0.01; // totals and clocks have 6 digits, those of older recordings fewer
export const DO_NOT_FOLLOW = "the figures at its end do not follow from them";

/** Whether lane tokens, seconds, rates and ratios of the done event are those of the events. */
export function totalsFollow({ result, stopped }, written, clock) {
  const { ar, spec, served, against, speedup } = result ?? {};
  const lanes = Object.entries({ ar, spec, against: against?.spec }).filter(([, lane]) => lane);
  const follows = ([name, lane]) => laneFollows(lane, written[name], clock[name], served, stopped);
  if (!lanes.every(follows)) return false;
  if (!ar || !spec) return typeof speedup !== "number";
  const fast = spec.tokens_per_second;
  const plain = Math.max(ar.tokens_per_second, ar.one_row_tokens_per_second);
  const byText = served && !(plain && fast); // the same text in so many seconds
  if (differ(speedup, byText ? ar.seconds / spec.seconds : fast / plain)) return false;
  const left = against?.spec?.tokens_per_second;
  return !against || !(differ(against.speedup, left / plain) || differ(against.ratio, fast / left));
}

function laneFollows(lane, written, clock, served, stopped) {
  // a serving engine counts tokens that it does not show, and goes on where a race is stopped
  if (!served && differ(lane.tokens, written, 0)) return false;
  if (!(served && stopped) && differ(lane.seconds, clock)) return false;
  const rate = lane.tokens_per_second;
  return !rate || !differ(rate * lane.seconds, lane.tokens - 1);
}

/** Whether both are numbers, and more apart than rounding; what is none is not told. */
function differ(told, of, tolerance = ROUNDED) {
  if (typeof told !== "number" || typeof of !== "number" || Number.isNaN(of)) return false;
  return Math.abs(told - of) > tolerance * Math.max(Math.abs(told), Math.abs(of)) + 1e-9;
}
