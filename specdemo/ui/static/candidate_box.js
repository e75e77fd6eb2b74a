// One candidate as an SVG box, as lattice and tree draw it.

import { s } from "./dom.js";
import { boxed, clamp, percent, spoken } from "./format.js";

export const STATUS_MARK = { accepted: "✓", rejected: "✗", unreached: "·", dropped: "–" };
const LETTER = 7.4; // pixels

/** How many letters of a word fit into so many pixels. */
export const lettersIn = (width) => Math.floor(width / LETTER);

/**
 * Word, probability, verdict mark; the outline says the verdict too: thick, dashed, or thin.
 *
 * `box` is {x, y, w, h, id, p, status, node, chosen, pick}: place and size, token id, the drafter's
 * probability or null, the target's verdict or null, the node or -1, whether it lies on the path
 * sent, whether the target chose it.
 */
export function candidateBox(trace, box) {
  const { x, y, w, h, id, p, status, node, chosen, pick } = box;
  const word = boxed(trace.word(id), lettersIn(w - (status || p === null ? 34 : 46)));
  const known = p !== null;
  const label = [
    spoken(trace.word(id)),
    known ? percent(p) : "",
    status || "",
    chosen ? "on the path" : "",
  ];
  const mark = status ? STATUS_MARK[status] || "" : "";
  const bar = { x: 4, y: h - 5, width: known ? Math.max(1, (w - 8) * clamp(p, 0, 1)) : 0 };
  return s(
    "g",
    {
      class: `sd-box sd-box-${status || (chosen ? "chosen" : "plain")}`,
      transform: `translate(${x},${y})`,
      role: "img",
      "aria-label": label.filter(Boolean).join(", "),
      tabindex: node >= 0 ? 0 : null,
      "data-node": node >= 0 ? node : null,
    },
    s("rect", { width: w, height: h, rx: 6 }),
    known ? s("rect", { class: "sd-prob", ...bar, height: 3, rx: 1 }) : null,
    s("text", { class: "sd-word", x: 7, y: h / 2 + 4, text: word }),
    s("text", {
      class: "sd-mark",
      x: w - 5,
      y: h / 2 + 4,
      text: `${pick ? "★" : ""}${mark || (known ? percent(p) : "")}`,
    }),
  );
}
