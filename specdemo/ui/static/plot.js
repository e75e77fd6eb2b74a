// Axes, curves and captions of the charts, as SVG.

import { h, s } from "./dom.js";

// width and height of a chart, its left, right, top and bottom margins
export const BOX = { w: 340, h: 190, l: 48, r: 10, t: 10, b: 32 };
const COUNTS = ["round", "tokens", "tokens generated", "positions"]; // axes of whole numbers

/**
 * Where an axis from 0 to `high` is labelled, about n times; counted things have whole numbers
 * only.
 */
export function ticks(high, n = 4, whole = false) {
  const raw = Math.max(high / n || 1, whole ? 1 : 0);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10]
    .map((m) => m * power)
    .find((m) => m >= raw && (!whole || Number.isInteger(m)));
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => i * step);
}

export function tickLabel(v) {
  if (v >= 100 || Number.isInteger(v)) return String(Math.round(v));
  return v >= 1 ? v.toFixed(1) : v.toFixed(2).replace(/0$/, "");
}

/**
 * Axes from 0: the svg, `sx` and `sy` from values to pixels; with `xbands` the x axis has no labels
 * of its own.
 */
export function axes({ xhigh, yhigh, xlabel, ylabel, label, xbands }) {
  const svg = s("svg", {
    class: "sd-plot",
    viewBox: `0 0 ${BOX.w} ${BOX.h}`,
    role: "img",
    "aria-label": label,
  });
  const sx = (v) => BOX.l + ((BOX.w - BOX.l - BOX.r) * v) / (xhigh || 1);
  const sy = (v) => BOX.h - BOX.b - ((BOX.h - BOX.t - BOX.b) * v) / (yhigh || 1);
  for (const v of ticks(yhigh, 4, COUNTS.includes(ylabel)))
    svg.append(
      s("line", { class: "sd-grid", x1: BOX.l, x2: BOX.w - BOX.r, y1: sy(v), y2: sy(v) }),
      s("text", { class: "sd-ty", x: BOX.l - 5, y: sy(v) + 4, text: tickLabel(v) }),
    );
  if (!xbands)
    for (const v of ticks(xhigh, 5, COUNTS.includes(xlabel)))
      svg.append(xText(sx(v), tickLabel(v)));
  const middle = BOX.h / 2 - 8;
  svg.append(
    s("text", { class: "sd-tx", x: (BOX.l + BOX.w) / 2, y: BOX.h - 3, text: xlabel }),
    s("text", {
      class: "sd-tx",
      x: 10,
      y: middle,
      transform: `rotate(-90 10 ${middle})`,
      text: ylabel,
    }),
  );
  return { svg, sx, sy };
}

/** A label below the x axis. */
export const xText = (x, text) => s("text", { class: "sd-tx", x, y: BOX.h - BOX.b + 14, text });

/** A line through points [[x, y], ...]; a single point is a dot. */
export function curve(plot, points, cls) {
  if (points.length === 1) {
    const [[x, y]] = points;
    plot.svg.append(
      s("circle", { class: `sd-single-point ${cls}`, cx: plot.sx(x), cy: plot.sy(y), r: 3.5 }),
    );
  } else if (points.length) {
    const line = points.map(([x, y]) => `${plot.sx(x).toFixed(1)},${plot.sy(y).toFixed(1)}`);
    plot.svg.append(s("polyline", { class: `sd-line ${cls}`, points: line.join(" ") }));
  }
}

/** A bar between two values of y. */
export function bar(plot, cls, { x, width, from = 0, to }) {
  const y = plot.sy(to);
  plot.svg.append(s("rect", { class: cls, x, width, y, height: Math.max(0, plot.sy(from) - y) }));
}

/** A chart with its title, the keys of its lines [[class, word], ...] and a note. */
export function figure(part, title, note, svg, keys = []) {
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
