// A trace file's text to its events, or one sentence about what is wrong with it; `specdemo/events.py` does the same for the command line.

const FORMAT = "specdemo-trace",
  VERSION = 1,
  MAX_TRACE_BYTES = 20000000;
const SECONDS = ["seconds", "draft_seconds", "verify_seconds", "rest_seconds"];

/** The events of a trace file, or a sentence (string) that says why it is none. */
function parseTrace(text) {
  if (text.length > MAX_TRACE_BYTES)
    return "This file is larger than 20 MB, which no SpecDemo trace is; choose a trace saved by this page.";
  let data;
  try {
    data = JSON.parse(text);
  } catch {
    return "This file is not JSON, so it is not a SpecDemo trace; choose a file saved with “Download trace”.";
  }
  if (!data || data.format !== FORMAT || !Array.isArray(data.events))
    return "This JSON file is not a SpecDemo trace; choose a file saved with “Download trace”.";
  if (data.version !== VERSION)
    return `This trace has version ${boxed(JSON.stringify(data.version), 20)} and this page reads version ${VERSION}; record it again.`;
  if (!data.events.length || !data.events[0] || data.events[0].kind !== "start")
    return "This trace does not begin with its start event; record it again.";
  if (!data.events.every((e) => e && typeof e === "object" && Object.hasOwn(FOLD, e.kind)))
    return "This trace holds events that SpecDemo does not know; choose a file saved with “Download trace”.";
  const fault = misfit(data.events);
  return fault
    ? `The events of this trace do not fit together (${fault}), so it is not as it was recorded; choose a file saved with “Download trace”.`
    : data.events;
}

/** What no race could have told in this order, or null. The beginning of a race fits: it may have been stopped. */
function misfit(events) {
  const written = { ar: 0, spec: 0 },
    clock = { ar: 0, spec: 0 };
  let rounds = 0,
    nodes = 0;
  for (const [at, e] of events.entries()) {
    if (e.kind === "start" && at) return "two starts";
    if (e.kind === "done" && at < events.length - 1) return "an end before the last event";
    if (e.kind === "prefill") {
      if (!["ar", "spec"].includes(e.lane) || written[e.lane])
        return "a first token out of its place";
      written[e.lane] = 1;
    }
    if (e.kind === "ar_token") {
      if (e.position !== written.ar || !written.ar) return "a token out of its place";
      written.ar += 1;
    }
    if (["denoise", "draft", "verify"].includes(e.kind) && (e.round !== rounds || !written.spec))
      return "a round out of its place";
    if (e.kind === "draft") {
      if (!isTree(e)) return "a draft that is no tree";
      nodes = e.tokens.length;
    }
    if (e.kind === "verify") {
      if (!Array.isArray(e.status) || e.status.length !== nodes)
        return "a verdict on another draft";
      rounds += 1;
      nodes = 0;
    }
    if (e.kind === "ar_token" || e.kind === "verify") {
      const lane = e.kind === "verify" ? "spec" : "ar";
      if (!Number.isFinite(e.clock) || e.clock < clock[lane]) return "a clock that runs backwards";
      clock[lane] = e.clock;
    }
    if (
      SECONDS.some((name) => Object.hasOwn(e, name) && !(Number.isFinite(e[name]) && e[name] >= 0))
    )
      return "a duration that is none";
  }
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
