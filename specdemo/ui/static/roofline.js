// What a pass of so many rows costs on this machine, beside the least that reading the weights and
// computing the rows can take.

import { axes, curve, figure } from "./plot.js";
import { s } from "./dom.js";
import { plural } from "./format.js";

const MOST = 64; // rows on the x axis
const LITTLE = 1.5; // times as long for 16 rows or more

/**
 * The least milliseconds of a pass: reading, whatever its rows; computing a row; the rows from
 * which computing takes longer. Null where the race does not say.
 */
export function limits({ roofline }) {
  if (!roofline) return null;
  const { pass_bytes, row_flops, bytes_per_second, flops_per_second } = roofline;
  const reading = (1000 * pass_bytes) / bytes_per_second;
  const row = (1000 * row_flops) / flops_per_second;
  const known = reading > 0 && row > 0 && Number.isFinite(reading + row);
  return known ? { reading, row, even: reading / row } : null;
}

/** [[rows, ms], ...] of the passes measured, the fewest rows first. */
export const measured = ({ pass_ms }) =>
  Object.entries(pass_ms || {})
    .map(([rows, ms]) => [Number(rows), ms])
    .filter(([rows]) => rows >= 1 && rows <= MOST)
    .sort((a, b) => a[0] - b[0]);

/** The least milliseconds of a pass of so many rows. */
const floor = ({ reading, row }, rows) => Math.max(reading, row * rows);

/**
 * The point [rows, ms] that is most below the floor, where one is by more than a tenth: the speeds
 * that the floor is computed from were measured while the machine was busy. Else null.
 */
export function belowFloor(start) {
  const least = limits(start);
  const share = ([rows, ms]) => ms / floor(least, rows);
  const [lowest] = measured(start).sort((a, b) => share(a) - share(b));
  return lowest && share(lowest) < 0.9 ? lowest : null;
}

/** What checking more rows costs, as measured: {ratio, words}; null where it is not known. */
export function costOfRows(start) {
  const points = measured(start);
  const [first, wide] = [points[0], points.find(([rows]) => rows >= 16)];
  if (!wide) return null;
  const ratio = Number((wide[1] / first[1]).toFixed(1));
  const cost = ratio <= LITTLE ? "drafted tokens are checked at little cost" : "";
  return {
    isLittle: ratio <= LITTLE,
    words: ` Measured, ${wide[0]} rows take ${ratio.toFixed(1)} times as long as ${first[0]}${cost && `: ${cost}`}.`,
  };
}

/** The sentence below the chart. */
export function words(start) {
  const least = limits(start);
  const { pass_bytes, row_flops, bytes_per_second, flops_per_second } = start.roofline;
  const dearer = costOfRows(start)?.words ?? "";
  const below = belowFloor(start);
  if (below) {
    const [rows, ms] = below;
    return `No least time is drawn: a pass of ${plural(rows, "row")} takes ${ms.toFixed(1)} ms, less than the ${floor(least, rows).toFixed(1)} ms that follow from this machine's speeds of reading and computing, so those were measured while it was busy. “Measure passes again” in the settings mends it.${dearer}`;
  }
  return (
    `A pass reads ${(pass_bytes / 1e6).toFixed(0)} MB, however many rows it has: ` +
    `${least.reading.toFixed(1)} ms at the ${(bytes_per_second / 1e9).toFixed(0)} GB/s that this machine was measured to read. ` +
    `A row is ${(row_flops / 1e6).toFixed(0)} million operations: ${least.row.toFixed(2)} ms at ${(flops_per_second / 1e9).toFixed(0)} billion a second. ` +
    `Up to about ${Math.max(1, Math.round(least.even))} rows reading is the longer of the two.${dearer}`
  );
}

export function rooflineChart({ start }) {
  const least = start && limits(start);
  const points = start ? measured(start) : [];
  if (!least || points.length < 2) return null;
  const last = points.at(-1)[0];
  const hasFloor = !belowFloor(start);
  const high = hasFloor ? floor(least, last) : 0;
  const plot = axes({
    xhigh: last,
    yhigh: 1.1 * Math.max(high, ...points.map((p) => p[1])),
    xlabel: "rows of a pass",
    ylabel: "ms",
    label: `What a pass costs: ${points.map(([rows, ms]) => `${rows} rows ${ms.toFixed(1)} ms`).join(", ")}`,
  });
  const flat = [
    [0, least.reading],
    [last, least.reading],
  ];
  const slope = [
    [0, 0],
    [last, least.row * last],
  ];
  if (hasFloor) {
    curve(plot, flat, "sd-l-ar");
    curve(plot, slope, "sd-l-guess");
  }
  curve(plot, points, "sd-l-spec");
  for (const [rows, ms] of points)
    plot.svg.append(
      s("circle", {
        class: "sd-single-point sd-l-spec",
        cx: plot.sx(rows),
        cy: plot.sy(ms),
        r: 2.5,
      }),
    );
  return figure(
    "chart-roofline",
    costOfRows(start)?.isLittle
      ? "Why rows are nearly free, until they are not"
      : "What the rows of a pass cost",
    words(start),
    plot.svg,
    [
      ["sd-l-spec", "measured pass"],
      ...(hasFloor
        ? [
            ["sd-l-ar", "reading the weights"],
            ["sd-l-guess", "computing the rows"],
          ]
        : []),
    ],
  );
}
