// Charts, drawn from the same events as everything else: they follow the playhead and are part of
// an exported page.

import { h, s } from "./dom.js";
import {
  acceptanceByDepth,
  isPredicted,
  measuredMs,
  predictedSeries,
  speedupSeries,
  sum,
} from "./figures.js";
import { percent, plural, seconds, times } from "./format.js";
import { BOX, axes, bar, curve, figure, xText } from "./plot.js";
import { rooflineChart } from "./roofline.js";

const REDRAW_MS = 250; // between two drawings while things move

/** Pixels of one of n bands along the x axis. */
const band = (n) => (BOX.w - BOX.l - BOX.r) / Math.max(n, 1);

function tokensOverTime(trace, shown, t) {
  const ar = trace.ar.slice(0, shown.ar);
  const spec = trace.spec.slice(0, shown.spec);
  const jumps = [trace, trace.against].some((one) => one?.rounds.some((r) => r.accepted));
  const plot = axes({
    xhigh: trace.end || 1,
    yhigh: Math.max(trace.ar.length, trace.spec.length, 4),
    xlabel: "seconds on each lane's own clock",
    ylabel: "tokens",
    label: `Tokens against time: plain decoding ${ar.length}, speculative lane ${spec.length} at ${seconds(t)}`,
  });
  curve(plot, stairs(ar), "sd-l-ar");
  curve(plot, stairs(spec), "sd-l-spec");
  return figure(
    "chart-time",
    "Tokens against time",
    `Steeper is faster${jumps ? "; a jump is a round that accepted draft tokens" : ""}.`,
    plot.svg,
    [
      ["sd-l-ar", "plain decoding"],
      ["sd-l-spec", "speculative lane"],
    ],
  );
}

/** Tokens generated against time, [[t, n], ...]. */
export function stairs(tokens) {
  return tokens.flatMap((token, i) => {
    const top = [token.t, i + 1];
    return i && tokens[i - 1].t !== token.t ? [[token.t, i], top] : [top];
  });
}

function speedupChart(trace, rounds) {
  const points = speedupSeries(trace, rounds);
  const predicted = predictedSeries(trace, rounds);
  const last = points.at(-1);
  const width = Math.max(trace.spec.length, 4);
  const plot = axes({
    xhigh: width,
    yhigh: Math.max(2, ...points.map((p) => p[1]), ...predicted.map((p) => p[1])) * 1.05,
    xlabel: "tokens generated",
    ylabel: "times plain decoding",
    label: `Speed-up as it evolves: ${last ? times(last[1]) : "none yet"}`,
  });
  level(plot, width, 1);
  curve(plot, predicted, "sd-l-guess");
  curve(plot, points, "sd-l-spec");
  return figure(
    "chart-speedup",
    trace.start?.engine ? "Speed-up" : "Speed-up: measured and predicted",
    speedupNote(last, predicted.at(-1)),
    plot.svg,
    [["sd-l-spec", "measured"], ...(trace.start?.engine ? [] : [["sd-l-guess", "predicted"]])],
  );
}

function speedupNote(measured, predicted) {
  if (!measured)
    return "Clock of plain decoding (the faster of the left lane and the one-row baseline) ÷ clock of the speculative lane, for the same number of tokens.";
  const [tokens, ratio] = measured;
  const beside = predicted
    ? `, predicted ${times(predicted[1])} from tokens per round and the costs measured at load`
    : "";
  return `Measured ${times(ratio)} for the same ${plural(tokens, "token")}${beside}.`;
}

/** A thin line at this y, from 0 to x. */
const level = (plot, x, y) =>
  curve(
    plot,
    [
      [0, y],
      [x, y],
    ],
    "sd-l-one",
  );

function tokensPerRound(trace, rounds) {
  const all = trace.rounds.length;
  const plot = axes({
    xhigh: Math.max(all, 1),
    yhigh: Math.max(2, ...rounds.map((r) => r.count)),
    xlabel: "round",
    ylabel: "tokens",
    label: "Tokens generated in each round",
  });
  const width = Math.max(1, band(all) * 0.8);
  rounds.forEach((r, i) => {
    const x = plot.sx(i) + band(all) * 0.1;
    bar(plot, "sd-b-kept", { x, width, to: r.accepted });
    bar(plot, "sd-b-own", { x, width, from: r.accepted, to: r.count });
  });
  const mean = (value) => sum(rounds, value) / rounds.length;
  const count = rounds.length ? mean((r) => r.count) : 0;
  if (rounds.length) level(plot, all, count);
  const note = rounds.length
    ? `${count.toFixed(2)} tokens per round, of which ${mean((r) => r.accepted).toFixed(2)} accepted draft tokens.`
    : "Accepted draft tokens plus the target's own token.";
  return figure("chart-rounds", "Tokens per round", note, plot.svg, [
    ["sd-b-kept", "accepted draft tokens"],
    ["sd-b-own", "target's own"],
  ]);
}

function acceptanceChart(trace, rounds) {
  if (!drafts(trace)) return null;
  const rows = acceptanceByDepth(rounds);
  const first = rows.slice(0, 4).map((r) => `+${r.depth} ${percent(r.kept / r.drafted)}`);
  const plot = axes({
    xhigh: Math.max(rows.length, 1),
    yhigh: 100,
    xlabel: "position in the draft",
    ylabel: "%",
    xbands: true,
    label: `Acceptance by position: ${first.join(", ")}`,
  });
  const wide = band(rows.length);
  const share = (n, all) => (all ? (100 * n) / all : 0);
  const labelled = ({ depth }) => rows.length < 9 || depth % (rows.length < 18 ? 2 : 4) === 1;
  rows.forEach((r, i) => {
    const x = plot.sx(i);
    const width = wide * 0.36;
    bar(plot, "sd-b-kept", { x: x + wide * 0.12, width, to: share(r.kept, r.drafted) });
    bar(plot, "sd-b-tested", { x: x + wide * 0.52, width, to: share(r.kept, r.tested) });
    if (labelled(r)) plot.svg.append(xText(x + wide / 2, `+${r.depth}`));
  });
  return figure(
    "chart-accept",
    "Acceptance by position",
    "Share accepted: of all rounds that drafted this far, and of those in which everything before this position was accepted.",
    plot.svg,
    [
      ["sd-b-kept", "of drafted"],
      ["sd-b-tested", "of reached"],
    ],
  );
}

/** False where no draft is, or is going to be, told. */
const drafts = ({ start, rounds }) =>
  start?.method !== "ar" && (!rounds.some((r) => r.verify) || acceptanceByDepth(rounds).length > 0);

const PARTS = [
  { key: "draft_seconds", cls: "sd-b-draft", word: "draft" },
  { key: "verify_seconds", cls: "sd-b-verify", word: "verify" },
  { key: "rest_seconds", cls: "sd-b-rest", word: "rest" },
];

function timeChart(trace, rounds) {
  const ms = (r, key) => r.verify[key] * 1000;
  const whole = (r) => sum(PARTS, ({ key }) => ms(r, key));
  const plot = axes({
    xhigh: Math.max(trace.rounds.length, 1),
    yhigh: Math.max(0, ...rounds.map(whole)) || 1,
    xlabel: "round",
    ylabel: "ms",
    label: "Where a round's time goes",
  });
  const wide = band(trace.rounds.length);
  const width = Math.max(1, wide * 0.8);
  rounds.forEach((r, i) => {
    const x = plot.sx(i) + wide * 0.1;
    let from = 0;
    for (const { key, cls } of PARTS) {
      bar(plot, cls, { x, width, from, to: from + ms(r, key) });
      from += ms(r, key);
    }
  });
  const [draft, verify, rest] = PARTS.map(({ key }) => sum(rounds, (r) => ms(r, key)));
  const all = draft + verify + rest;
  const note = all
    ? `Drafting ${percent(draft / all)}, verifying ${percent(verify / all)} (the target's pass, acceptance, its cache), the rest ${percent(rest / all)} (updating the drafter); ${seconds(all / rounds.length / 1000)} a round.`
    : "Drafting; verifying: the target's pass, acceptance, its cache; the rest: updating the drafter.";
  const keys = PARTS.map(({ cls, word }) => [cls, word]);
  return figure("chart-cost", "Where a round's time goes", note, plot.svg, keys);
}

/** A dot for each round: predicted against measured time; on the line there is no overhead. */
function predictedChart(trace, rounds) {
  if (!isPredicted(trace, rounds)) return null;
  const points = rounds.map((r) => [r.verify.predicted_ms, measuredMs(r), r.count]);
  const sorted = points.flatMap(([x, y]) => [x, y]).sort((a, b) => a - b);
  const high = (sorted[Math.floor(sorted.length * 0.97)] || 1) * 1.15; // without the slowest rounds
  const plot = axes({
    xhigh: high,
    yhigh: high,
    xlabel: "predicted ms of a round",
    ylabel: "measured ms",
    label: "Predicted against measured time of each round",
  });
  const diagonal = [
    [0, 0],
    [high, high],
  ];
  curve(plot, diagonal, "sd-l-one");
  for (const [x, y, n] of points)
    plot.svg.append(
      s("circle", {
        class: "sd-dot-round",
        cx: plot.sx(Math.min(x, high)),
        cy: plot.sy(Math.min(y, high)),
        r: 2 + Math.min(n, 8) / 1.6,
      }),
    );
  const total = (k) => seconds(sum(points, (p) => p[k]) / 1000);
  const note = points.length
    ? `All rounds: ${total(1)} measured, ${total(0)} predicted from the pass costs measured at load and the drafting time. Bigger dots: more tokens.`
    : "Cost of a pass of that width, measured at load, plus drafting.";
  return figure("chart-predicted", "Predicted against measured", note, plot.svg, [
    ["sd-l-one", "no overhead"],
  ]);
}

function lengthChart(trace, rounds) {
  const rows = rounds.filter((r) => r.draft && r.draft.notes.length);
  if (!rows.length) return null;
  const series = (name) => rows.map((r) => [r.index + 1, r.draft.notes.length[name]]);
  const plot = axes({
    xhigh: Math.max(trace.rounds.length, 1),
    yhigh: Math.max(2, ...series("k").map((p) => p[1])),
    xlabel: "round",
    ylabel: "positions",
    label: "Adaptive draft length",
  });
  curve(plot, series("gen"), "sd-l-one");
  curve(plot, series("acc"), "sd-l-guess");
  curve(plot, series("k"), "sd-l-spec");
  return figure(
    "chart-length",
    "Adaptive draft length",
    "The controller lengthens drafts while they are accepted.",
    plot.svg,
    [
      ["sd-l-spec", "draft length k"],
      ["sd-l-guess", "accepted, mean"],
      ["sd-l-one", "generated, mean"],
    ],
  );
}

export class Charts {
  constructor(view) {
    this.view = view;
    this.key = null; // what is on screen, to draw only what changes
    this.drawnAt = 0;
    this.grid = h("div", { class: "sd-charts" });
    this.root = h(
      "section",
      { class: "sd-card", "data-part": "charts", "aria-label": "Charts" },
      h("header", {}, h("h3", { text: "Charts up to this moment" })),
      this.grid,
    );
  }

  /** At most four times a second while things move; at once when they stand still. */
  update(shown, t, roundsDone, settled) {
    const { trace } = this.view;
    const key = `${shown.ar}|${shown.spec}|${roundsDone}|${trace.events.length}`;
    if (key === this.key) return;
    const now = performance.now();
    if (!settled && now - this.drawnAt < REDRAW_MS) return;
    this.key = key;
    this.drawnAt = now;
    const rounds = trace.rounds.slice(0, roundsDone).filter((r) => r.verify);
    this.grid.replaceChildren(
      ...[
        tokensOverTime(trace, shown, t),
        speedupChart(trace, rounds),
        tokensPerRound(trace, rounds),
        acceptanceChart(trace, rounds),
        trace.start?.engine ? null : timeChart(trace, rounds), // an engine tells no parts of it
        predictedChart(trace, rounds),
        rooflineChart(trace),
        lengthChart(trace, rounds),
      ].filter(Boolean),
    );
  }

  reset() {
    this.key = null;
    this.grid.replaceChildren();
  }
}
