// A measured sweep of a setting, with its intervals: what the lesson shows where a knob is taught.

import { h, s } from "./dom.js";
import { list, times } from "./format.js";
import { panel } from "./lesson_panel.js";
import { axes, curve, figure } from "./plot.js";

const LINES = ["sd-l-spec", "sd-l-guess", "sd-l-ar"];
const CHARTS = [
  { key: "speedup", bounds: "interval", title: "Speed-up", ylabel: "× plain decoding", even: 1 },
  {
    key: "tokens_per_round",
    bounds: "tokens_interval",
    title: "Tokens per round",
    ylabel: "tokens",
  },
];

/** `sweep` is what ui/lesson.py reads from a sweep.json; nothing without one. */
export function sweepTask(sweep) {
  if (!sweep) return "";
  const lines = list(sweep.lines).slice(0, LINES.length);
  return panel(
    sweep.title,
    h(
      "div",
      { class: "sd-sweep" },
      CHARTS.map((kind) => sweepChart(sweep, lines, kind)),
    ),
    h("p", { class: "sd-key", text: sweep.note }),
  );
}

function sweepChart({ axis, title }, lines, { key, bounds, title: what, ylabel, even }) {
  const points = lines.flatMap((line) => line.points).filter((point) => point[key] !== null);
  const tops = points.map((point) => point[bounds]?.[1] ?? point[key]);
  const xhigh = Math.max(...points.map(({ x }) => Number(x)));
  const plot = axes({
    xhigh: xhigh * 1.05,
    yhigh: Math.max(even ?? 0, ...tops) * 1.08,
    xlabel: axis,
    ylabel,
    label: `${what} against ${axis}: ${title}`,
  });
  if (even)
    curve(
      plot,
      [
        [0, even],
        [xhigh * 1.05, even],
      ],
      "sd-l-one",
    );
  lines.forEach((line, k) => {
    const known = line.points.filter((point) => point[key] !== null);
    curve(
      plot,
      known.map((point) => [Number(point.x), point[key]]),
      LINES[k],
    );
    known.forEach((point) => mark(plot, line.name, point, key, bounds, LINES[k]));
  });
  const keys = lines.map((line, k) => [LINES[k], line.name]);
  return figure(`sweep-${key}`, what, "Bars are 95 % intervals over prompts.", plot.svg, keys);
}

/** A point with its interval, and its numbers on hover. */
function mark(plot, name, point, key, bounds, cls) {
  const x = plot.sx(Number(point.x));
  const [low, high] = point[bounds] ?? [point[key], point[key]];
  const value = key === "speedup" ? times(point[key]) : point[key].toFixed(2);
  plot.svg.append(
    s("line", { class: `sd-line ${cls}`, x1: x, x2: x, y1: plot.sy(low), y2: plot.sy(high) }),
    s(
      "circle",
      { class: `sd-single-point ${cls}`, cx: x, cy: plot.sy(point[key]), r: 3.5 },
      s("title", {
        text: `${name}, ${point.x}: ${value} (${low.toFixed(2)} to ${high.toFixed(2)})`,
      }),
    ),
  );
}
