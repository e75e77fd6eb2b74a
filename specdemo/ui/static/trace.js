// The event list folded into what the views need, for live runs, recordings and exported pages.

import { depths } from "./draft_tree.js";
import { isEvent, typed, vocabulary } from "./events.js";
import { traceText } from "./parse.js";

export class Trace {
  constructor(asked = null) {
    this.asked = asked; // what the page asked for, of a race that runs here
    this.events = []; // as they came, to be saved again
    this.vocab = new Map(); // token id -> its text
    this.start = typed({ kind: "start" });
    this.ar = []; // tokens of plain decoding: {text, id, position, t, logprob, source, round}
    this.spec = []; // tokens of the speculative lane, with node, p, q, rank, step
    this.rounds = []; // see `round`
    this.timeline = []; // what the arrow keys walk through: {t, kind, round, upto}
    this.reading = null; // {read, total} tokens of a long prompt that is not read yet
    this.done = null;
    this.against = null; // the left lane, where that is a method: a trace with the same plain lane
  }

  json() {
    return traceText(this.events);
  }

  push(event) {
    if (!isEvent(event)) return;
    this.events.push(event);
    for (const [id, text] of vocabulary(event)) this.vocab.set(id, text);
    if (event.lane !== "against") FOLD[event.kind](this, typed(event));
    else if (this.against) FOLD[event.kind](this.against, typed({ ...event, lane: "spec" }));
  }

  /** Tokens of the left lane. */
  get left() {
    return this.against ? this.against.spec : this.ar;
  }

  /** The text of a token id. */
  word(id) {
    if (id === null || id === undefined) return "";
    return this.vocab.has(id) ? this.vocab.get(id) : `#${id}`;
  }

  /** The round of this number, made with its first event. */
  round(number) {
    const last = this.rounds.at(-1);
    const found =
      last && last.number === number ? last : this.rounds.find((r) => r.number === number);
    if (found) return found;
    const t0 = last ? last.t1 : 0;
    const made = {
      number,
      index: this.rounds.length,
      frames: [], // denoising steps
      draft: null,
      verify: null,
      first: this.spec.length, // index of its first token
      count: 0, // tokens it wrote
      accepted: 0, // drafts among them
      t0, // seconds on the lane's clock when it began and ended
      t1: t0,
      timeline: [],
    };
    this.rounds.push(made);
    return made;
  }

  /** One more step of this round for the arrow keys; `upto` frames are on screen then. */
  addStep(round, kind) {
    const step = { t: round.t1, kind, round: round.index, upto: round.frames.length };
    round.timeline.push(step);
    this.timeline.push(step);
  }

  /** Seconds on the clock of the slower lane on screen. */
  get end() {
    return Math.max(this.left.at(-1)?.t ?? 0, this.spec.at(-1)?.t ?? 0);
  }
}

const FOLD = {
  start(trace, e) {
    trace.start = e;
    if (!e.against) return;
    const left = (trace.against = new Trace());
    left.start = { ...e, ...e.against, against: null };
    left.vocab = trace.vocab;
    left.ar = trace.ar;
  },

  prefill_progress(trace, e) {
    trace.reading = e;
  },

  prefill(trace, { lane, text, id, logprob }) {
    trace.reading = null;
    trace[lane].push({ text, id, position: 0, t: 0, logprob, source: "first", round: null });
  },

  ar_token(trace, { text, id, logprob, clock }) {
    const position = trace.ar.length;
    trace.ar.push({ text, id, position, t: clock, logprob, source: "plain", round: null });
  },

  denoise(trace, e) {
    const round = trace.round(e.round);
    const last = round.frames.at(-1);
    round.frames.push(e);
    // blocks drafted together share one moment
    if (last && last.step === e.step && last.row !== e.row)
      round.timeline.at(-1).upto = round.frames.length;
    else trace.addStep(round, "denoise");
  },

  draft(trace, e) {
    const round = trace.round(e.round);
    round.draft = { ...e, depth: depths(e.parent) };
    trace.addStep(round, "draft");
  },

  verify(trace, e) {
    const round = trace.round(e.round);
    const nodes = round.draft ? round.draft.tokens.length : 0;
    const known = (node) => (Number.isInteger(node) && node >= 0 && node < nodes ? node : null);
    const kept = e.kept.map((k) => ({ ...k, node: known(k.node) }));
    round.verify = { ...e, kept };
    round.t1 = e.clock;
    const denoising = round.timeline.filter((step) => step.kind === "denoise").length;
    round.timeline.forEach((step, k) => {
      const drafted =
        step.kind === "draft" ? e.draft_seconds : (e.draft_seconds * (k + 1)) / (denoising + 1);
      step.t = round.t0 + drafted;
    });
    trace.addStep(round, "verify");
    round.first = trace.spec.length;
    for (const token of kept)
      trace.spec.push({ ...token, position: trace.spec.length, t: e.clock, round: round.index });
    round.count = kept.length;
    round.accepted = kept.filter((k) => k.source === "accepted").length;
  },

  done(trace, e) {
    trace.reading = null;
    trace.done = e;
    const end = trace.spec.at(-1)?.t ?? 0;
    // a round that Stop cut short was never checked
    const last = trace.rounds.filter((r) => r.verify).length - 1;
    for (const token of trace.left)
      if (token.t > end) trace.timeline.push({ t: token.t, kind: "ar", round: last, upto: 0 });
  },
};

/**
 * Where the two lanes first write different tokens among the first `n` and `m` tokens, or -1. A
 * token that a serving engine did not name (-1) is not compared.
 */
export function firstDifference(trace, n = trace.ar.length, m = trace.spec.length) {
  for (let i = 0; i < Math.min(n, m); i++) {
    const [left, right] = [trace.ar[i].id, trace.spec[i].id];
    if (left < 0 || right < 0) return -1; // behind it the places need not be the same
    if (left !== right) return i;
  }
  return -1;
}

/** How many of these tokens were written by time t. */
export function countUntil(tokens, t) {
  let low = 0;
  let high = tokens.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (tokens[mid].t <= t) low = mid + 1;
    else high = mid;
  }
  return low;
}
