// Whether the totals at a trace's end follow from its events; `specdemo/trace_figures.py` asks the
// same on the command line.

const ROUNDED = 0.01; // totals and clocks have 6 digits, those of older recordings fewer
export const DO_NOT_FOLLOW = "the figures at its end do not follow from them";

/** Whether lane tokens, seconds, rates and ratios of the done event are those of the events. */
export function totalsFollow({ result, stopped }, written, clock) {
  const { ar, spec, served, against, speedup } = result ?? {};
  const left = against?.spec;
  // a serving engine counts tokens that it does not show, and goes on where a race is stopped
  const follows = (lane, name) =>
    !lane ||
    ((served || lane.tokens === written[name]) &&
      ((served && stopped) || near(lane.seconds, clock[name])) &&
      (!lane.tokens_per_second || near(lane.tokens_per_second * lane.seconds, lane.tokens - 1)));
  const plain = ar && Math.max(ar.tokens_per_second, ar.one_row_tokens_per_second);
  const fast = spec?.tokens_per_second;
  const byText = served && !(plain && fast); // the same text in so many seconds
  return (
    follows(ar, "ar") &&
    follows(spec, "spec") &&
    follows(left, "against") &&
    (byText ? ratioIs(speedup, ar?.seconds, spec?.seconds) : ratioIs(speedup, fast, plain)) &&
    ratioIs(against?.speedup, left?.tokens_per_second, plain) &&
    ratioIs(against?.ratio, fast, left?.tokens_per_second)
  );
}

const ratioIs = (told, of, over) => (told ?? null) === null || (over && near(told * over, of));

const near = (told, of) =>
  Math.abs(told - of) <= ROUNDED * Math.max(Math.abs(told), Math.abs(of)) + 1e-9;
