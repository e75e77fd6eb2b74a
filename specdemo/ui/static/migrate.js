// Older versions of a trace to today's; `specdemo/traces.py` does the same for the command line.

const RENAMED_PARAMS = { follow: "markov_head", sleep: "adaptive" };

/** The events of a trace of this version as those of the current one; what cannot be read is left alone. */
export function migrate(events, version) {
  return version === 1 ? events.map((e) => migrateEvent(e, events[0])) : events;
}

/**
 * Version 1 -> 2: the baseline and each round's predicted time stand in the events, scores say
 * whose they are, options have their names of today and yes/no options are truth values.
 */
export function migrateEvent(e, start) {
  const change = { start: startEvent, draft: draftEvent, verify: verifyEvent }[e.kind];
  return change ? change(e, start) : e;
}

function startEvent(e) {
  const params = isRecord(e.params) ? { params: newParams(e.params) } : {};
  return { ...e, ...params, baseline_ms: rounded(baselineMs(e)) };
}

function newParams(params) {
  return Object.fromEntries(
    Object.entries(params).map(([name, value]) => [
      Object.hasOwn(RENAMED_PARAMS, name) ? RENAMED_PARAMS[name] : name,
      value === "yes" ? true : value === "no" ? false : value,
    ]),
  );
}

function draftEvent(e) {
  if (!isRecord(e.notes) || !Array.isArray(e.notes.drafts)) return e;
  return { ...e, notes: { ...e.notes, drafts: e.notes.drafts.map(draftScores) } };
}

/** Where the target's scores chose, `own` was the drafter's and `score` the target's. */
function draftScores(draft) {
  if (!isRecord(draft)) return draft;
  const { score, own, ...rest } = draft;
  return own === undefined || own === null
    ? { ...rest, drafter_score: score ?? null }
    : { ...rest, drafter_score: own, target_score: score ?? null };
}

function verifyEvent(e, start) {
  const pass = passMs(start, e.rows);
  const drafting = Number.isFinite(e.draft_seconds) ? e.draft_seconds * 1000 : 0;
  return { ...e, predicted_ms: pass === null ? null : rounded(pass + drafting) };
}

/** [[rows, ms], ...] of the target passes measured at load, by rows. */
function costs({ cost_ms }) {
  return Object.entries(isRecord(cost_ms) ? cost_ms : {})
    .map(([rows, ms]) => [Number(rows), ms])
    .filter(([rows, ms]) => rows > 0 && Number.isFinite(ms) && ms > 0)
    .sort((a, b) => a[0] - b[0]);
}

/** The cost of the cheapest pass measured that has so many rows. */
function passMs(start, rows) {
  const wide = costs(start).filter(([width]) => width >= rows);
  return wide.length ? Math.min(...wide.map(([, ms]) => ms)) : null;
}

/** The faster of the plain lane's pass and the one-row kernel's. */
function baselineMs(start) {
  const table = new Map(costs(start));
  const passes = [start.one_row_ms || table.get(1), table.get(start.ar_width ?? 1)];
  const known = passes.filter((ms) => Number.isFinite(ms));
  return known.length ? Math.min(...known) : null;
}

const isRecord = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

/** Six significant digits, as the events have. */
const rounded = (value) => (value === null ? null : Number(value.toPrecision(6)));
