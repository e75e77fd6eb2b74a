// A long race as a trace that is read again; `specdemo/traces.py` does the same.

const encoder = new TextEncoder();
const size = (value) => encoder.encode(JSON.stringify(value)).length + 1;

/** The bytes of an event that a shorter trace leaves out. */
function droppable(event) {
  if (event.kind === "denoise") return size(event) - size(event.vocab);
  if (event.kind === "draft") return size(event.notes);
  return event.top ? size(event.top) : 0;
}

/**
 * {events, complete} of a trace of at most `limit` bytes: behind the first `complete` rounds the
 * denoising steps, the notes of drafts and the target's candidates are left out. Null where it is
 * too large even so.
 */
export function shorten(events, limit) {
  // 1) What is always kept, and what each round would add to it.
  let left = limit - 100;
  const extra = [];
  for (const event of events) {
    const dropped = droppable(event);
    const round = event.round || 0;
    left -= size(event) - dropped;
    extra[round] = (extra[round] || 0) + dropped;
  }
  if (left < 0) return null;
  // 2) The first rounds as long as they fit.
  let complete = 0;
  while (complete < extra.length && (left -= extra[complete]) >= 0) complete += 1;
  // 3) The others without; a token's text that came with a dropped event comes with the next.
  const kept = [];
  let vocab = {};
  for (const event of events) {
    const behind = (event.round || 0) >= complete;
    if (behind && event.kind === "denoise") {
      vocab = { ...vocab, ...event.vocab };
      continue;
    }
    const out = { ...event };
    if (behind && event.kind === "draft") out.notes = {};
    else if (behind) delete out.top;
    if (event.vocab && Object.keys(vocab).length) {
      out.vocab = { ...vocab, ...event.vocab };
      vocab = {};
    }
    kept.push(out);
  }
  return { events: kept, complete };
}
