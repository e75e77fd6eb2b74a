// Charts drawn from the same events as everything else, so that they follow the scrub bar and travel in the exported page.

const BOX = { w: 340, h: 190, l: 48, r: 10, t: 10, b: 32 };

/** Where an axis is labelled; counted things have whole numbers only. */
function ticks(high, n = 4, whole = false) {
  const raw = Math.max(high / n || 1, whole ? 1 : 0),
    power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10]
    .map((m) => m * power)
    .find((m) => m >= raw && (!whole || Number.isInteger(m)));
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
}

const tick = (v) =>
  v >= 100 || Number.isInteger(v)
    ? String(Math.round(v))
    : v >= 1
      ? v.toFixed(1)
      : v.toFixed(2).replace(/0$/, "");

/** Axes; returns the svg and the scales. */
function frame({ xhigh, yhigh, xlabel, ylabel, label, xbands }) {
  const counts = (word) => ["round", "tokens", "tokens written", "positions"].includes(word);
  const svg = s("svg", {
    class: "sd-plot",
    viewBox: `0 0 ${BOX.w} ${BOX.h}`,
    role: "img",
    "aria-label": label,
  });
  const sx = (v) => BOX.l + ((BOX.w - BOX.l - BOX.r) * v) / (xhigh || 1),
    sy = (v) => BOX.h - BOX.b - ((BOX.h - BOX.t - BOX.b) * v) / (yhigh || 1);
  for (const v of ticks(yhigh, 4, counts(ylabel)))
    svg.append(
      s("line", { class: "sd-grid", x1: BOX.l, x2: BOX.w - BOX.r, y1: sy(v), y2: sy(v) }),
      s("text", { class: "sd-ty", x: BOX.l - 5, y: sy(v) + 4, text: tick(v) }),
    );
  if (!xbands)
    for (const v of ticks(xhigh, 5, counts(xlabel)))
      svg.append(s("text", { class: "sd-tx", x: sx(v), y: BOX.h - BOX.b + 14, text: tick(v) }));
  svg.append(
    s("text", { class: "sd-tx", x: (BOX.l + BOX.w) / 2, y: BOX.h - 3, text: xlabel }),
    s("text", {
      class: "sd-tx",
      x: 10,
      y: BOX.h / 2 - 8,
      transform: `rotate(-90 10 ${BOX.h / 2 - 8})`,
      text: ylabel,
    }),
  );
  return { svg, sx, sy };
}

function curve(plot, points, cls) {
  if (points.length === 1)
    plot.svg.append(
      s("circle", {
        class: `sd-point ${cls}`,
        cx: plot.sx(points[0][0]),
        cy: plot.sy(points[0][1]),
        r: 3.5,
      }),
    );
  else if (points.length)
    plot.svg.append(
      s("polyline", {
        class: `sd-line ${cls}`,
        points: points
          .map(([x, y]) => `${plot.sx(x).toFixed(1)},${plot.sy(y).toFixed(1)}`)
          .join(" "),
      }),
    );
}

function figure(part, title, note, svg, keys = []) {
  return h(
    "figure",
    { class: "sd-chart", "data-part": part },
    h(
      "figcaption",
      {},
      h("strong", { text: title }),
      keys.map(([cls, word]) => h("span", { class: `sd-keyline ${cls}`, text: word })),
    ),
    svg,
    h("p", { class: "sd-note", text: note }),
  );
}

function tokensOverTime(trace, shown, t) {
  const ar = trace.ar.slice(0, shown.ar),
    spec = trace.spec.slice(0, shown.spec);
  const plot = frame({
    xhigh: trace.end || 1,
    yhigh: Math.max(trace.ar.length, trace.spec.length, 4),
    xlabel: "seconds on each lane's own clock",
    ylabel: "tokens",
    label: `Tokens against time: plain ${ar.length}, drafted ${spec.length} at ${seconds(t)}`,
  });
  const stairs = (tokens) =>
    tokens.flatMap((token, i) =>
      i && tokens[i - 1].t !== token.t
        ? [
            [token.t, i],
            [token.t, i + 1],
          ]
        : [[token.t, i + 1]],
    );
  curve(plot, stairs(ar), "sd-l-ar");
  curve(plot, stairs(spec), "sd-l-spec");
  return figure(
    "chart-time",
    "Tokens against time",
    "Steeper is faster; a jump is a round that kept several drafts.",
    plot.svg,
    [
      ["sd-l-ar", "plain"],
      ["sd-l-spec", "drafted"],
    ],
  );
}

function speedupChart(trace, rounds) {
  const points = speedupSeries(trace, rounds),
    guess = predictedSeries(trace, rounds);
  const plot = frame({
    xhigh: Math.max(trace.spec.length, 4),
    yhigh: Math.max(2, ...points.map((p) => p[1]), ...guess.map((p) => p[1])) * 1.05,
    xlabel: "tokens written",
    ylabel: "times faster",
    label: `Speed-up as it evolves: ${points.length ? times(points[points.length - 1][1]) : "none yet"}`,
  });
  curve(
    plot,
    [
      [0, 1],
      [Math.max(trace.spec.length, 4), 1],
    ],
    "sd-l-one",
  );
  curve(plot, guess, "sd-l-guess");
  curve(plot, points, "sd-l-spec");
  const last = points.length ? points[points.length - 1][1] : null,
    predicted = guess.length ? guess[guess.length - 1][1] : null;
  const note =
    last === null
      ? "Clock of plain decoding (the faster of the left lane and a one-row kernel) ÷ clock of the drafted lane, for the same number of tokens."
      : `Measured ${times(last)} for the same ${plural(points[points.length - 1][0], "token")}${predicted === null ? "" : `, predicted ${times(predicted)} from tokens per round and the costs measured at load`}.`;
  return figure("chart-speedup", "Speed-up: measured and predicted", note, plot.svg, [
    ["sd-l-spec", "measured"],
    ["sd-l-guess", "predicted"],
  ]);
}

function tokensPerRound(trace, rounds) {
  const high = Math.max(2, ...rounds.map((r) => r.count));
  const plot = frame({
    xhigh: Math.max(trace.rounds.length, 1),
    yhigh: high,
    xlabel: "round",
    ylabel: "tokens",
    label: "Tokens written in each round",
  });
  const wide = (BOX.w - BOX.l - BOX.r) / Math.max(trace.rounds.length, 1);
  rounds.forEach((r, i) => {
    const x = plot.sx(i) + wide * 0.1,
      w = Math.max(1, wide * 0.8);
    plot.svg.append(
      s("rect", {
        class: "sd-b-kept",
        x,
        width: w,
        y: plot.sy(r.accepted),
        height: plot.sy(0) - plot.sy(r.accepted),
      }),
      s("rect", {
        class: "sd-b-own",
        x,
        width: w,
        y: plot.sy(r.count),
        height: plot.sy(r.accepted) - plot.sy(r.count),
      }),
    );
  });
  const total = rounds.reduce((sum, r) => sum + r.count, 0),
    kept = rounds.reduce((sum, r) => sum + r.accepted, 0);
  const mean = rounds.length ? total / rounds.length : 0;
  if (rounds.length)
    curve(
      plot,
      [
        [0, mean],
        [trace.rounds.length, mean],
      ],
      "sd-l-one",
    );
  return figure(
    "chart-rounds",
    "Tokens per round",
    rounds.length
      ? `${mean.toFixed(2)} tokens per round, of which ${(kept / rounds.length).toFixed(2)} accepted drafts.`
      : "Accepted drafts plus the target's own token.",
    plot.svg,
    [
      ["sd-b-kept", "accepted drafts"],
      ["sd-b-own", "target's own"],
    ],
  );
}

function acceptanceChart(trace, rounds) {
  const rows = acceptanceByDepth(rounds).filter(Boolean);
  const plot = frame({
    xhigh: Math.max(rows.length, 1),
    yhigh: 100,
    xlabel: "place in the draft",
    ylabel: "%",
    xbands: true,
    label: `Acceptance by position: ${rows
      .slice(0, 4)
      .map((r) => `+${r.depth} ${percent(r.kept / r.drafted)}`)
      .join(", ")}`,
  });
  const wide = (BOX.w - BOX.l - BOX.r) / Math.max(rows.length, 1);
  rows.forEach((r, i) => {
    const of = (n, all) => (all ? (100 * n) / all : 0),
      x = plot.sx(i);
    plot.svg.append(
      s("rect", {
        class: "sd-b-kept",
        x: x + wide * 0.12,
        width: wide * 0.36,
        y: plot.sy(of(r.kept, r.drafted)),
        height: plot.sy(0) - plot.sy(of(r.kept, r.drafted)),
      }),
      s("rect", {
        class: "sd-b-tested",
        x: x + wide * 0.52,
        width: wide * 0.36,
        y: plot.sy(of(r.kept, r.tested)),
        height: plot.sy(0) - plot.sy(of(r.kept, r.tested)),
      }),
    );
    if (rows.length < 9 || r.depth % (rows.length < 18 ? 2 : 4) === 1)
      plot.svg.append(
        s("text", { class: "sd-tx", x: x + wide / 2, y: BOX.h - BOX.b + 14, text: `+${r.depth}` }),
      );
  });
  return figure(
    "chart-accept",
    "Acceptance by position",
    "Of all rounds that drafted this far, and of those in which the target still looked here (everything before was right).",
    plot.svg,
    [
      ["sd-b-kept", "of drafted"],
      ["sd-b-tested", "of looked at"],
    ],
  );
}

function timeChart(trace, rounds) {
  const parts = (r) =>
    [num(r.verify.draft_seconds), num(r.verify.verify_seconds), num(r.verify.rest_seconds)].map(
      (t) => t * 1000,
    );
  const high = Math.max(0, ...rounds.map((r) => parts(r).reduce((a, b) => a + b, 0)));
  const plot = frame({
    xhigh: Math.max(trace.rounds.length, 1),
    yhigh: high || 1,
    xlabel: "round",
    ylabel: "ms",
    label: "Where a round's time goes",
  });
  const wide = (BOX.w - BOX.l - BOX.r) / Math.max(trace.rounds.length, 1),
    sums = [0, 0, 0];
  rounds.forEach((r, i) => {
    let base = 0;
    parts(r).forEach((ms, k) => {
      plot.svg.append(
        s("rect", {
          class: ["sd-b-draft", "sd-b-verify", "sd-b-rest"][k],
          x: plot.sx(i) + wide * 0.1,
          width: Math.max(1, wide * 0.8),
          y: plot.sy(base + ms),
          height: Math.max(0, plot.sy(base) - plot.sy(base + ms)),
        }),
      );
      base += ms;
      sums[k] += ms;
    });
  });
  const all = sums[0] + sums[1] + sums[2];
  const note = all
    ? `Drafting ${percent(sums[0] / all)}, verifying ${percent(sums[1] / all)}, the rest ${percent(sums[2] / all)}; ${seconds(all / rounds.length / 1000)} a round.`
    : "Drafting, verifying, and the rest (acceptance, bookkeeping).";
  return figure("chart-cost", "Where a round's time goes", note, plot.svg, [
    ["sd-b-draft", "draft"],
    ["sd-b-verify", "verify"],
    ["sd-b-rest", "rest"],
  ]);
}

/** A dot a round: what the costs measured at load promise against what the round took. On the line the overhead is nil. */
function predictedChart(trace, rounds) {
  const expected = expectedMs(trace);
  if (!expected) return null;
  const points = rounds.map((r) => [expected(r), (r.t1 - r.t0) * 1000, r.count]);
  const sorted = points.flatMap((p) => [p[0], p[1]]).sort((a, b) => a - b),
    high = (sorted[Math.floor(sorted.length * 0.97)] || 1) * 1.15;
  const plot = frame({
    xhigh: high,
    yhigh: high,
    xlabel: "predicted ms of a round",
    ylabel: "measured ms",
    label: "Predicted against measured time of each round",
  });
  curve(
    plot,
    [
      [0, 0],
      [high, high],
    ],
    "sd-l-one",
  );
  for (const [x, y, n] of points)
    plot.svg.append(
      s("circle", {
        class: "sd-dot-round",
        cx: plot.sx(Math.min(x, high)),
        cy: plot.sy(Math.min(y, high)),
        r: 2 + Math.min(n, 8) / 1.6,
      }),
    );
  const sum = (k) => points.reduce((total, p) => total + p[k], 0);
  const note = points.length
    ? `All rounds: ${seconds(sum(1) / 1000)} measured, ${seconds(sum(0) / 1000)} predicted from the pass costs measured at load and the drafting time. Bigger dots wrote more tokens.`
    : "Cost of a pass of that width, measured at load, plus drafting.";
  return figure("chart-predicted", "Predicted against measured", note, plot.svg, [
    ["sd-l-one", "no overhead"],
  ]);
}

function lengthChart(trace, rounds) {
  const rows = rounds.filter(
    (r) => r.draft && r.draft.notes.length && typeof r.draft.notes.length === "object",
  );
  if (!rows.length) return null;
  const pick = (name) => rows.map((r) => [r.index + 1, num(r.draft.notes.length[name])]);
  const plot = frame({
    xhigh: Math.max(trace.rounds.length, 1),
    yhigh: Math.max(2, ...pick("k").map((p) => p[1])),
    xlabel: "round",
    ylabel: "positions",
    label: "Adaptive draft length",
  });
  curve(plot, pick("gen"), "sd-l-one");
  curve(plot, pick("acc"), "sd-l-guess");
  curve(plot, pick("k"), "sd-l-spec");
  return figure(
    "chart-length",
    "Adaptive draft length",
    "The controller asks for longer drafts while they are accepted.",
    plot.svg,
    [
      ["sd-l-spec", "asked (k)"],
      ["sd-l-guess", "accepted, mean"],
      ["sd-l-one", "generated, mean"],
    ],
  );
}

class Charts {
  constructor(view) {
    this.view = view;
    this.grid = h("div", { class: "sd-charts" });
    this.root = h(
      "section",
      { class: "sd-card", "data-part": "charts", "aria-label": "Charts" },
      h("header", {}, h("h3", { text: "Charts up to this moment" })),
      this.grid,
    );
    this.last = 0;
  }

  /** At most four times a second while things move; at once when they stand still. */
  update(shown, t, roundsDone, settled) {
    const key = `${shown.ar}|${shown.spec}|${roundsDone}|${this.view.trace.events.length}`;
    if (key === this.key) return;
    const now = performance.now();
    if (!settled && now - this.last < 250) return;
    this.key = key;
    this.last = now;
    const { trace } = this.view,
      rounds = trace.rounds.slice(0, roundsDone).filter((r) => r.verify);
    this.grid.replaceChildren(
      ...[
        tokensOverTime(trace, shown, t),
        speedupChart(trace, rounds),
        tokensPerRound(trace, rounds),
        acceptanceChart(trace, rounds),
        timeChart(trace, rounds),
        predictedChart(trace, rounds),
        lengthChart(trace, rounds),
      ].filter(Boolean),
    );
  }

  reset() {
    this.key = null;
    this.grid.replaceChildren();
  }
}
