// The events of a race as the views read them: every field of the right type, whatever a file
// holds.
// The fields are those of `specdemo/events.py`.

import { clamp, list, maybe, num, record, str } from "./format.js";

export const FORMAT = "specdemo-trace";
export const VERSION = 2;
const ROOFLINE = ["pass_bytes", "row_flops", "bytes_per_second", "flops_per_second"];
const SOURCES = ["accepted", "correction", "bonus", "plain"];

const lane = (value) => (value === "ar" ? "ar" : "spec");

/** An option's name and its value, of a type that can be shown. */
const options = (params) =>
  Object.fromEntries(
    Object.entries(record(params)).map(([name, value]) => [
      name,
      typeof value === "number" || typeof value === "boolean" ? value : str(value),
    ]),
  );

/** Text of token ids, ["id", "text"] each. */
export const vocabulary = (event) =>
  Object.entries(record(event.vocab)).map(([id, text]) => [Number(id), str(text)]);

/** A typed copy of a raw event by its kind. */
const TYPED = {
  start: (e) => ({
    prompt: str(e.prompt),
    pair: str(e.pair),
    method: str(e.method),
    rule: str(e.rule),
    params: options(e.params),
    against: typedAgainst(e),
    sampling: {
      temperature: num(record(e.sampling).temperature),
      top_p: num(record(e.sampling).top_p, 1),
      seed: num(record(e.sampling).seed),
    },
    max_new_tokens: num(e.max_new_tokens),
    most_nodes: num(e.most_nodes),
    hardware: str(e.hardware),
    dtype: str(e.dtype),
    target_pass: str(e.target_pass),
    target_step: str(e.target_step),
    why_general: str(e.why_general),
    why_host: str(e.why_host),
    engine: str(e.engine),
    weights: str(e.weights),
    borrowed: e.borrowed === true,
    prompt_tokens: list(e.prompt_ids).length,
    ar_ms: maybe(record(e.cost_ms)[num(e.ar_width, 1)]),
    pass_ms: Object.fromEntries(
      Object.entries(record(e.cost_ms)).filter(([, cost]) => Number.isFinite(cost)),
    ),
    baseline_ms: maybe(e.baseline_ms),
    roofline: e.roofline
      ? Object.fromEntries(ROOFLINE.map((name) => [name, num(record(e.roofline)[name])]))
      : null,
  }),

  prefill_progress: (e) => ({
    read: num(e.read),
    total: num(e.total),
    lane: e.lane ? lane(e.lane) : "",
  }),

  prefill: (e) => ({
    lane: lane(e.lane),
    id: num(e.id),
    text: str(e.text),
    logprob: maybe(e.logprob),
    seconds: num(e.seconds),
  }),

  ar_token: (e) => ({
    id: num(e.id),
    text: str(e.text),
    logprob: maybe(e.logprob),
    clock: num(e.clock),
  }),

  denoise: (e) => {
    const ids = list(e.ids).map((id) => num(id));
    return {
      round: num(e.round),
      step: num(e.step),
      steps: Math.max(num(e.steps, 1), num(e.step) + 1),
      row: num(e.row),
      label: str(e.label),
      ids,
      masked: ids.map((_, k) => Boolean(list(e.masked)[k])),
      conf: ids.map((_, k) => clamp(num(list(e.conf)[k]), 0, 1)),
      top: list(e.top).map(candidates),
    };
  },

  draft: (e) => {
    const tokens = list(e.tokens).map((id) => num(id));
    return {
      round: num(e.round),
      tokens,
      parent: tokens.map((_, i) => parentOf(list(e.parent)[i], i)),
      q: tokens.map((_, i) => maybe(list(e.q)[i])),
      origin: tokens.map((_, i) => str(list(e.origin)[i])),
      notes: typedNotes(record(e.notes)),
      seconds: num(e.seconds),
    };
  },

  verify: (e) => ({
    round: num(e.round),
    rows: num(e.rows, 1),
    kept: list(e.kept).map(typedKept),
    status: list(e.status).map(str),
    p: list(e.p).map(maybe),
    rule_p: list(e.rule_p).map(maybe),
    rule_q: list(e.rule_q).map(maybe),
    picks: list(e.picks).map(maybe),
    cut: num(e.cut),
    draft_seconds: num(e.draft_seconds),
    verify_seconds: num(e.verify_seconds),
    rest_seconds: num(e.rest_seconds),
    predicted_ms: maybe(e.predicted_ms),
    threads: maybe(e.threads),
    baseline_ms: maybe(e.baseline_ms),
    clock: num(e.clock),
    top: list(e.top).map(candidates),
  }),

  done: (e) => {
    const result = record(e.result);
    const difference = record(result.first_difference);
    return {
      speedup: maybe(result.speedup),
      identical: result.identical === true,
      difference: maybe(difference.position),
      top2_gap: maybe(difference.top2_gap),
      stopped: e.stopped === true,
      note: str(result.note),
      against: typedLeft(record(result.against)),
      served: result.served ? typedServed(record(result.served), record(result.spec)) : null,
    };
  },
};

/** True for an object whose kind the views know. */
export const isEvent = (e) =>
  e !== null && typeof e === "object" && typeof e.kind === "string" && Object.hasOwn(TYPED, e.kind);

/** The event with fields of the right types. */
export const typed = (e) => TYPED[e.kind](e);

/** The left lane's method, of a start event or of what a page asked for; null: plain decoding. */
function typedAgainst({ against, against_params }) {
  const named = record(against);
  const method = str(typeof against === "string" ? against : named.method);
  if (!method || method === "ar") return null;
  return { method, params: options(named.params ?? against_params), weights: str(named.weights) };
}

/** The left lane's figures beside plain decoding. */
function typedLeft(left) {
  const difference = record(left.first_difference);
  return {
    speedup: maybe(left.speedup),
    ratio: maybe(left.ratio),
    identical: left.identical === true,
    difference: maybe(difference.position),
    top2_gap: maybe(difference.top2_gap),
  };
}

/** What is known of a race that a serving engine ran; `spec` are the lane's totals. */
function typedServed(served, spec) {
  return {
    comparison: str(served.comparison),
    parted_at: maybe(served.parted_at),
    rounds: str(served.rounds),
    tokens_per_round: num(spec.tokens_per_round),
    accepted_per_round: num(spec.accepted_per_round),
  };
}

/** Candidates of one position, [[id, probability], ...]. */
const candidates = (column) => list(column).map((c) => [num(list(c)[0]), num(list(c)[1])]);

const numbers = (values) => list(values).map((v) => num(v));

function parentOf(value, i) {
  return Number.isInteger(value) && value >= -1 && value < i ? value : -1;
}

function typedKept(value) {
  const kept = record(value);
  return {
    id: num(kept.id),
    text: str(kept.text),
    source: SOURCES.includes(kept.source) ? kept.source : "plain",
    node: maybe(kept.node),
    logprob: maybe(kept.logprob),
    p: maybe(kept.p),
    q: maybe(kept.q),
    rank: maybe(kept.rank),
    step: maybe(kept.step),
  };
}

/** What is special about the method of a draft; null where it left no such note. */
function typedNotes(notes) {
  const each = (values, type) => (Array.isArray(values) ? values.map(type) : null);
  const drafted = (d) => ({
    ids: numbers(record(d).ids),
    score: maybe(record(d).score),
    drafter_score: maybe(record(d).drafter_score),
    target_score: maybe(record(d).target_score),
  });
  const length = record(notes.length);
  return {
    lattice: each(notes.lattice, candidates),
    paths: each(notes.paths, drafted),
    path: num(notes.path),
    drafts: each(notes.drafts, drafted),
    chosen: num(notes.chosen),
    selection: typeof notes.selection === "number" ? num(notes.selection) : null,
    left_out: num(notes.left_out),
    boundaries: each(notes.boundaries, (r) => num(r)),
    branches: numbers(notes.branches),
    length:
      notes.length === length
        ? { k: num(length.k), gen: num(length.gen), acc: num(length.acc) }
        : null,
    expected: maybe(notes.expected),
    why: str(notes.why),
  };
}
