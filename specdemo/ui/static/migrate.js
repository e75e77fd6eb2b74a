// Traces of version 1 in version 2; `specdemo/traces.py` does the same for the command line.

const MARKOV_HEAD_OPTION = { follow: "markov_head" };
// options that have another name or another type now; their values were "yes" and "no"
const RENAMED_OPTIONS = {
  block: MARKOV_HEAD_OPTION,
  tree: MARKOV_HEAD_OPTION,
  d2sd: MARKOV_HEAD_OPTION,
  best: { ...MARKOV_HEAD_OPTION, sleep: "adaptive" },
  specdiff2: { argmax: "argmax" },
};

/**
 * The events of a trace of version 1 as those of version 2: options and scores have their names of
 * today, and the events say what the recorded costs predict. What cannot be read stays as it is.
 */
export function migrate(events) {
  const [start] = events;
  const baseline = baselineMs(start);
  const predicted = events.filter(isRound).map((e) => predictedMs(start, e));
  let round = 0;
  return events.map((e, i) => {
    if (e.kind === "start") return { ...e, ...newParams(e), baseline_ms: rounded(baseline) };
    if (e.kind === "draft") return newScores(e);
    if (isRound(e)) return { ...e, predicted_ms: rounded(predicted[round++]) };
    const isEnd = e.kind === "done" && i === events.length - 1 && predicted.length > 0;
    return isEnd && isRecord(e.result) ? newTotals(e, events, baseline, predicted) : e;
  });
}

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

const isRound = (e) => e.kind === "verify";

/** Six significant digits, as all numbers of a trace have; half to even, as Python rounds. */
function rounded(value) {
  if (value === null) return null;
  const [digits, exponent] = value.toExponential(60).split("e");
  const half = /^(-?\d\.\d{4}[02468])50*$/.exec(digits);
  return Number(half ? `${half[1]}e${exponent}` : value.toPrecision(6));
}

function newParams({ method, params }) {
  if (!isRecord(params)) return {};
  const renamed = Object.hasOwn(RENAMED_OPTIONS, method) ? RENAMED_OPTIONS[method] : {};
  const option = ([name, value]) => {
    const today = Object.hasOwn(renamed, name) ? renamed[name] : null;
    if (today === null || (today !== name && Object.hasOwn(params, today))) return [name, value];
    return [today, ["yes", "no"].includes(value) ? value === "yes" : value];
  };
  return { params: Object.fromEntries(Object.entries(params).map(option)) };
}

/** `own` was the drafter's score where `score` was the target's, else `score` was the drafter's. */
function newScores(e) {
  if (!isRecord(e.notes) || !Array.isArray(e.notes.drafts)) return e;
  const drafts = e.notes.drafts.map((draft) => {
    if (!isRecord(draft) || !Object.hasOwn(draft, "score")) return draft;
    const { score, own, ...rest } = draft;
    return Object.hasOwn(draft, "own")
      ? { ...rest, drafter_score: own, target_score: score }
      : { ...rest, drafter_score: score };
  });
  return { ...e, notes: { ...e.notes, drafts } };
}

function newTotals(e, events, baseline, predicted) {
  const tokens = events
    .filter(isRound)
    .reduce((total, { kept }) => total + (Array.isArray(kept) ? kept.length : 0), 0);
  const ms = predicted.reduce((total, round) => total + round, 0);
  const isKnown = tokens && baseline && ms && !predicted.includes(null);
  const predicted_speedup = isKnown ? rounded((tokens * baseline) / ms) : null;
  return { ...e, result: { ...e.result, predicted_speedup } };
}

/** Rows -> milliseconds of the target passes measured at load. */
function passes({ cost_ms }) {
  const entries = Object.entries(isRecord(cost_ms) ? cost_ms : {});
  return new Map(
    entries
      .filter(([rows, ms]) => /^\d{1,5}$/.test(rows) && Number.isFinite(ms))
      .map(([rows, ms]) => [Number(rows), ms]),
  );
}

/** The faster of the plain lane's pass and the one-row kernel's. */
function baselineMs(start) {
  const plain = [passes(start).get(start.ar_width ?? 1), start.one_row_ms].filter(
    (ms) => Number.isFinite(ms) && ms !== 0,
  );
  return plain.length ? Math.min(...plain) : null;
}

/** The cheapest pass that holds the round's rows, and its drafting time. */
function predictedMs(start, { rows = 1, draft_seconds = 0 }) {
  const wide = [...passes(start)].filter(([width]) => width >= rows).map(([, ms]) => ms);
  return wide.length && Number.isFinite(draft_seconds)
    ? Math.min(...wide) + draft_seconds * 1e3
    : null;
}
