// The event list folded into what the views need. Live runs, recorded traces and the exported page all pass here.

const SOURCES = ["accepted", "correction", "bonus", "plain"];

class Trace {
  constructor() {
    this.events = [];
    this.vocab = new Map();
    this.start = {};
    this.prefill = {};
    this.ar = []; // tokens of the plain lane: {text, id, position, t, logprob}
    this.spec = []; // tokens of the drafted lane, with round, source, p, q, rank, step
    this.rounds = [];
    this.beats = []; // what the arrow keys walk through: {t, kind, round, upto}
    this.done = null;
  }

  json() {
    return JSON.stringify({ format: FORMAT, version: VERSION, events: this.events });
  }

  push(event) {
    if (!event || typeof event !== "object" || !Object.hasOwn(FOLD, event.kind)) return;
    this.events.push(event);
    for (const [id, text] of Object.entries(event.vocab || {}))
      this.vocab.set(Number(id), str(text));
    FOLD[event.kind](this, event);
  }

  word(id) {
    return id === null || id === undefined
      ? ""
      : this.vocab.has(id)
        ? this.vocab.get(id)
        : `#${id}`;
  }

  round(number) {
    let found = this.rounds.length && this.rounds[this.rounds.length - 1];
    if (found && found.number === number) return found;
    found = this.rounds.find((r) => r.number === number);
    if (!found) {
      const before = this.rounds[this.rounds.length - 1];
      const t0 = before ? before.t1 : 0;
      found = {
        number,
        index: this.rounds.length,
        frames: [],
        draft: null,
        verify: null,
        first: this.spec.length,
        count: 0,
        accepted: 0,
        t0,
        t1: t0,
        beats: [],
      };
      this.rounds.push(found);
    }
    return found;
  }

  beat(round, kind) {
    const beat = { t: round.t1, kind, round: round.index, upto: round.frames.length };
    round.beats.push(beat);
    this.beats.push(beat);
  }

  /** Seconds on the slower lane's clock. */
  get end() {
    const last = (tokens) => (tokens.length ? tokens[tokens.length - 1].t : 0);
    return Math.max(last(this.ar), last(this.spec));
  }

  get params() {
    return this.start.params || {};
  }
}

const FOLD = {
  start(trace, e) {
    trace.start = e;
  },

  prefill(trace, e) {
    const lane = e.lane === "ar" ? "ar" : "spec";
    trace.prefill[lane] = num(e.seconds);
    trace[lane].push({
      text: str(e.text),
      id: num(e.id),
      position: 0,
      t: 0,
      logprob: maybe(e.logprob),
      source: "first",
      round: null,
    });
  },

  ar_token(trace, e) {
    trace.ar.push({
      text: str(e.text),
      id: num(e.id),
      position: trace.ar.length,
      t: num(e.clock),
      logprob: maybe(e.logprob),
      source: "plain",
      round: null,
    });
  },

  denoise(trace, e) {
    const round = trace.round(num(e.round)),
      last = round.frames[round.frames.length - 1];
    round.frames.push(e);
    // blocks drafted together share one moment
    if (last && last.step === e.step && last.row !== e.row)
      round.beats[round.beats.length - 1].upto = round.frames.length;
    else trace.beat(round, "denoise");
  },

  draft(trace, e) {
    const round = trace.round(num(e.round));
    round.draft = {
      ...e,
      tokens: list(e.tokens),
      parent: list(e.parent),
      q: list(e.q),
      origin: list(e.origin),
      notes: e.notes || {},
      seconds: num(e.seconds),
    };
    round.draft.depth = depths(round.draft.parent);
    trace.beat(round, "draft");
  },

  verify(trace, e) {
    const round = trace.round(num(e.round));
    round.verify = {
      ...e,
      kept: list(e.kept),
      status: list(e.status),
      p: list(e.p),
      picks: list(e.picks),
      rows: num(e.rows, 1),
    };
    round.t1 = num(e.clock);
    const drafting = num(e.draft_seconds),
      thinking = round.beats.filter((b) => b.kind === "denoise").length;
    round.beats.forEach((beat, k) => {
      beat.t =
        beat.kind === "draft"
          ? round.t0 + drafting
          : round.t0 + (drafting * (k + 1)) / (thinking + 1);
    });
    trace.beat(round, "verify");
    round.first = trace.spec.length;
    for (const kept of round.verify.kept) {
      const source = SOURCES.includes(kept.source) ? kept.source : "plain";
      trace.spec.push({
        text: str(kept.text),
        id: num(kept.id),
        position: trace.spec.length,
        t: round.t1,
        source,
        round: round.index,
        node: maybe(kept.node),
        logprob: maybe(kept.logprob),
        p: maybe(kept.p),
        q: maybe(kept.q),
        rank: maybe(kept.rank),
        step: maybe(kept.step),
      });
      if (source === "accepted") round.accepted += 1;
    }
    round.count = round.verify.kept.length;
  },

  done(trace, e) {
    trace.done = { ...e, result: e.result || {} };
    const end = trace.spec.length ? trace.spec[trace.spec.length - 1].t : 0;
    const last = trace.rounds.filter((r) => r.verify).length - 1; // a round that Stop cut short was never checked
    for (const token of trace.ar)
      if (token.t > end) trace.beats.push({ t: token.t, kind: "ar", round: last, upto: 0 });
  },
};

/** Distance of each node from the anchor, 1 for its children. */
function depths(parent) {
  const out = [];
  for (const p of parent) out.push(p >= 0 && p < out.length ? out[p] + 1 : 1);
  return out;
}

/** Indices of the accepted nodes from the anchor down. */
function acceptedPath(round) {
  return round.verify
    ? round.verify.kept
        .filter((k) => k.source === "accepted" && maybe(k.node) !== null)
        .map((k) => k.node)
    : [];
}

/** Where the two lanes first write different tokens among the first `n` and `m` tokens, or -1. */
function firstDifference(trace, n = trace.ar.length, m = trace.spec.length) {
  for (let i = 0; i < Math.min(n, m); i++) if (trace.ar[i].id !== trace.spec[i].id) return i;
  return -1;
}

// -- figures over rounds; each says its denominator -------------------------------------------------------------------------

/** Target passes measured at load, [[rows, ms], ...] by rows. */
function costs(trace) {
  return Object.entries(trace.start.cost_ms || {})
    .map(([rows, ms]) => [Number(rows), num(ms)])
    .filter(([rows, ms]) => rows > 0 && ms > 0)
    .sort((a, b) => a[0] - b[0]);
}

/** The plain lane's clock times this is the clock of the faster of that lane and the one-row kernel (1 = the lane itself). */
function plainScale(trace) {
  const table = new Map(costs(trace)),
    one = num(trace.start.one_row_ms) || table.get(1),
    lane = table.get(num(trace.start.ar_width, 1));
  return one && lane ? Math.min(1, one / lane) : 1;
}

/** What a target pass of so many rows cost at loading, as a function to milliseconds; null without a cost table. */
function passMs(trace) {
  const cost = costs(trace);
  return cost.length ? (rows) => (cost.find(([r]) => r >= rows) || cost[cost.length - 1])[1] : null;
}

/** What a checked round should take, as a function to milliseconds: its pass, plus its drafting; null without a cost table. */
function expectedMs(trace) {
  const at = passMs(trace);
  return at && ((round) => at(round.verify.rows) + num(round.verify.draft_seconds) * 1000);
}

/** Measured over expected time of these rounds; 0 if there is no cost table, or too few of them to tell. */
function slowdown(trace, rounds) {
  const expected = expectedMs(trace);
  if (!expected || rounds.length < 3) return 0;
  const sum = (ms) => rounds.reduce((total, r) => total + ms(r), 0);
  return sum((r) => (r.t1 - r.t0) * 1000) / (sum(expected) || 1);
}

/** How many times less clock the drafted lane needed than plain decoding for the same number of tokens, after each round. */
function speedupSeries(trace, rounds = trace.rounds) {
  const points = [],
    scale = plainScale(trace);
  for (const r of rounds) {
    if (!r.verify || !r.t1) continue;
    const n = r.first + r.count;
    const plain = trace.ar[n - 1];
    if (plain && plain.t > 0) points.push([n, (plain.t * scale) / r.t1]);
  }
  return points;
}

/** Per depth: rounds that drafted it, rounds in which the target got as far as testing it, rounds that kept it. */
function acceptanceByDepth(rounds) {
  const rows = [];
  for (const r of rounds) {
    if (!r.draft || !r.verify || !r.draft.tokens.length) continue;
    const deepest = num(r.verify.cut)
      ? Math.min(r.accepted, Math.max(...r.draft.depth))
      : Math.max(...r.draft.depth); // nothing was asked past the end
    for (let d = 1; d <= deepest; d++) {
      rows[d - 1] = rows[d - 1] || { depth: d, drafted: 0, tested: 0, kept: 0 };
      rows[d - 1].drafted += 1;
      if (r.accepted >= d - 1) rows[d - 1].tested += 1;
      if (r.accepted >= d) rows[d - 1].kept += 1;
    }
  }
  return rows;
}

/** Tokens per round x T(one row) / (T(rows) + draft), cumulated over the rounds so far; empty without a cost table. */
function predictedSeries(trace, rounds = trace.rounds) {
  const at = passMs(trace),
    expected = expectedMs(trace);
  if (!at) return [];
  const plain = Math.min(
    num(trace.start.one_row_ms) || at(1),
    at(1),
    at(num(trace.start.ar_width, 1)),
  );
  const points = [];
  let tokens = 0,
    ms = 0;
  for (const r of rounds) {
    if (!r.verify) continue;
    tokens += r.count;
    ms += expected(r);
    if (ms > 0) points.push([r.first + r.count, (tokens * plain) / ms]);
  }
  return points;
}

/** Tokens whose time has come. */
function countUntil(tokens, t) {
  let low = 0,
    high = tokens.length;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (tokens[mid].t <= t) low = mid + 1;
    else high = mid;
  }
  return low;
}

/** What a ratio says, after the number; `even` if it is no difference. */
function speedWords(trace, ratio, even) {
  if (trace.start.method === "ar") return "plain decoding against itself: noise";
  return even || ratio < 1
    ? `the speed of plain decoding${even ? "" : ": slower here"}`
    : "faster than plain decoding";
}

/** [word, note, class] about whether both lanes write the same. */
function verdict(trace, m, differs, result) {
  const same = Math.min(m.ar, m.spec);
  if (trace.start.rule && trace.start.rule !== "match") {
    return [
      "same law",
      `the rule “${str(trace.start.rule)}” keeps the distribution, not the sample`,
      "law",
    ];
  }
  if (result && trace.done.stopped)
    return [
      differs < 0 ? "identical so far" : `differs at ${differs}`,
      `stopped after ${plural(same, "common token")}`,
      differs < 0 ? "same" : "differs",
    ];
  const at = result && result.first_difference ? maybe(result.first_difference.position) : null;
  if (differs >= 0 || at !== null) {
    const gap = result && result.first_difference ? maybe(result.first_difference.top2_gap) : null;
    return [
      `differs at ${at === null ? differs : at}`,
      gap === null
        ? "first different position"
        : `gap of the two best logits there: ${gap.toPrecision(3)}`,
      "differs",
    ];
  }
  if (result && result.identical)
    return [
      "identical",
      trace.spec.length > 1 ? `all ${trace.spec.length} tokens, id for id` : "one token",
      "same",
    ];
  return same
    ? ["identical so far", `${plural(same, "common token")}`, "same"]
    : ["–", "both lanes must write the same", "none"];
}
