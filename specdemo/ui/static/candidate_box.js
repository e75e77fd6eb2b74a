// One candidate as an SVG box, as lattice and tree draw it.

import { s } from "./dom.js";
import { boxed, clamp, percent, spoken } from "./format.js";

export const STATUS_MARK = { accepted: "✓", rejected: "✗", unreached: "·", dropped: "–" };
export const SOURCE_MARK = { accepted: "✓", correction: "▲", bonus: "+", plain: "" };
const LETTER = 7.4; // pixels

/** How many letters of a word fit into so many pixels. */
export const lettersIn = (width) => Math.floor(width / LETTER);

/**
 * Word, probability, verdict mark; the outline says the verdict too: thick, dashed, or thin.
 *
 * `box` is {x, y, w, h, id, p, status, node, chosen, pick}: place and size, token id, the drafter's
 * probability or null, the target's verdict or null, the node or -1, whether it lies on the path
 * verified, whether the target chose it.
 */
export function candidateBox(trace, box) {
  const { x, y, w, h, p, status, node } = box;
  const focusable = node >= 0 ? { tabindex: 0, "data-node": node } : {};
  return s(
    "g",
    {
      class: `sd-box sd-box-${status || (box.chosen ? "chosen" : "plain")}`,
      transform: `translate(${x},${y})`,
      role: "img",
      "aria-label": boxLabel(trace, box),
      ...focusable,
    },
    s("rect", { width: w, height: h, rx: 6 }),
    p === null ? null : probabilityBar(w, h, p),
    s("text", { class: "sd-word", x: 7, y: h / 2 + 4, text: boxWord(trace, box) }),
    s("text", { class: "sd-mark", x: w - 5, y: h / 2 + 4, text: boxMark(box) }),
  );
}

function probabilityBar(w, h, p) {
  const width = Math.max(1, (w - 8) * clamp(p, 0, 1));
  return s("rect", { class: "sd-prob", x: 4, y: h - 5, width, height: 3, rx: 1 });
}

function boxLabel(trace, { id, p, status, chosen }) {
  const probability = p === null ? "" : percent(p);
  const words = [spoken(trace.word(id)), probability, status, chosen ? "on the path" : ""];
  return words.filter(Boolean).join(", ");
}

/** The word, as much of it as the mark beside it leaves room for. */
function boxWord(trace, { id, w, p, status }) {
  const beside = status || p === null ? 34 : 46;
  return boxed(trace.word(id), lettersIn(w - beside));
}

function boxMark({ p, status, pick }) {
  const verdict = STATUS_MARK[status] || (p === null ? "" : percent(p));
  return `${pick ? "★" : ""}${verdict}`;
}
