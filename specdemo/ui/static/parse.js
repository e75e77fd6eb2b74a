// A trace file's text to its events, or one sentence about what is wrong with it;
// `specdemo/traces.py` does the same for the command line.

import { FORMAT, VERSION, isEvent } from "./events.js";
import { boxed } from "./format.js";
import { migrate } from "./migrate.js";
import { DO_NOT_FOLLOW, totalsFollow } from "./trace_figures.js";

export const MAX_TRACE_BYTES = 20000000;
export const TOO_LARGE =
  "This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved by this page.";
const SECONDS = ["seconds", "draft_seconds", "verify_seconds", "rest_seconds"];

/** The text of a trace file of this version. */
export const traceText = (events) => JSON.stringify({ format: FORMAT, version: VERSION, events });

/**
 * {events} of a trace file, in today's version, or {fault}: a sentence that says why it is none.
 */
export function parseTrace(text) {
  if (text.length > MAX_TRACE_BYTES) return { fault: TOO_LARGE };
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    return {
      fault:
        "This file is not JSON, so it is not a SpecDemo trace; choose a file saved with “Download trace”.",
    };
  }
  const fault = faultOfFile(data);
  if (fault) return { fault };
  return { events: data.version === VERSION ? data.events : migrate(data.events) };
}

function faultOfFile(data) {
  if (!data || data.format !== FORMAT || !Array.isArray(data.events))
    return "This JSON file is not a SpecDemo trace; choose a file saved with “Download trace”.";
  const { version, events } = data;
  if (version !== 1 && version !== VERSION)
    return `This trace has version ${boxed(JSON.stringify(version), 20)} and this page reads versions 1 and ${VERSION}; record it again.`;
  if (!events.length || !events[0] || events[0].kind !== "start")
    return "This trace does not begin with its start event; record it again.";
  if (!events.every(isEvent))
    return "This trace holds events that SpecDemo does not know; choose a file saved with “Download trace”.";
  const fault = findInconsistency(events);
  return (
    fault &&
    `The events of this trace do not fit together (${fault}), so it is not as it was recorded; choose a file saved with “Download trace”.`
  );
}

/**
 * What cannot be in a race's events, in this order, or null. The beginning of a race is fine: it
 * may have been stopped.
 */
export function findInconsistency(events) {
  const race = {
    written: { ar: 0, spec: 0, against: 0 }, // tokens of each lane
    clock: { ar: 0, spec: 0, against: 0 },
    rounds: { spec: 0, against: 0 }, // checked so far
    nodes: { spec: 0, against: 0 }, // of the draft under way
  };
  for (const [at, e] of events.entries()) {
    if (e.kind === "start" && at) return "two start events";
    if (e.kind === "done" && at < events.length - 1) return "done is not the last event";
    const fault = misplaced(race, e) || (CHECKS[e.kind] && CHECKS[e.kind](race, e));
    if (fault) return fault;
    if (
      SECONDS.some((name) => Object.hasOwn(e, name) && !(Number.isFinite(e[name]) && e[name] >= 0))
    )
      return "invalid duration";
  }
  return null;
}

/** The lane that an event of a round is about. */
const laneOf = (e) => (e.lane === "against" ? "against" : "spec");

function misplaced({ rounds, written }, e) {
  const inRound = ["denoise", "draft", "verify"].includes(e.kind);
  const lane = laneOf(e);
  return inRound && (e.round !== rounds[lane] || !written[lane]) ? "round out of order" : null;
}

/** Checks of one event, which also bring `race` up to date. */
const CHECKS = {
  prefill_progress({ written }) {
    return written.ar || written.spec || written.against ? "prefill out of order" : null;
  },

  prefill({ written }, { lane }) {
    if (!["ar", "spec", "against"].includes(lane) || written[lane]) return "prefill out of order";
    written[lane] = 1;
    return null;
  },

  ar_token(race, { position, clock }) {
    const { written } = race;
    if (position !== written.ar || !written.ar) return "token out of order";
    written.ar += 1;
    return advanceClock(race, "ar", clock);
  },

  draft(race, e) {
    if (!isTree(e)) return "draft is not a tree";
    race.nodes[laneOf(e)] = e.tokens.length;
    return null;
  },

  verify(race, e) {
    const lane = laneOf(e);
    if (!Array.isArray(e.status) || e.status.length !== race.nodes[lane])
      return "verify does not match its draft";
    race.rounds[lane] += 1;
    race.nodes[lane] = 0;
    race.written[lane] += Array.isArray(e.kept) ? e.kept.length : 0;
    return advanceClock(race, lane, e.clock);
  },

  done({ written, clock }, e) {
    return totalsFollow(e, written, clock) ? null : DO_NOT_FOLLOW;
  },
};

function advanceClock({ clock }, lane, t) {
  if (!Number.isFinite(t) || t < clock[lane]) return "clock runs backwards";
  clock[lane] = t;
  return null;
}

function isTree({ tokens, parent }) {
  return (
    Array.isArray(tokens) &&
    Array.isArray(parent) &&
    parent.length === tokens.length &&
    parent.every((p, i) => Number.isFinite(p) && p >= -1 && p < i)
  );
}
