// One candidate as an SVG box, as lattice and tree draw it.

import { s } from "./dom.js";
import { boxed, clamp, percent, spoken } from "./format.js";

export const STATUS_MARK = { accepted: "✓", rejected: "✗", unreached: "·", dropped: "–" };
export const SOURCE_MARK = { accepted: "✓", correction: "▲", bonus: "+", plain: "" };
const WORD = 13.5; // pixels of a word's letters,
const SMALLEST = 9; // and where it would not fit
const LETTER = 0.58; // width of a letter over its size
const MARKS = { "★": 13, "%": 11, ".": 4 }; // pixels of a mark's letters,
const MARK = 8; // and of all others

/** A word as large as it fits into `room` pixels, or cut: {text, size}. */
export function fitted(word, room, usual = WORD) {
  const whole = [...boxed(word, 200)].length;
  const size = clamp(room / (whole * LETTER), SMALLEST, usual);
  return { text: boxed(word, Math.max(2, Math.floor(room / (size * LETTER) + 1e-6))), size };
}

/** The same as a text at x, y. */
export function wordIn(word, { x, y, room }) {
  const { text, size } = fitted(word, room);
  return s("text", { class: "sd-word", x, y, style: `font-size: ${size.toFixed(1)}px`, text });
}

/**
 * Word, probability, verdict mark; the outline says the verdict too: thick, dashed, or thin.
 *
 * `box` is {x, y, w, h, id, p, status, node, chosen, pick, spaced}: place and size, token id, the
 * drafter's probability or null, the target's verdict or null, the node or -1, whether it lies on
 * the path verified, whether the target chose it, whether its leading space is drawn.
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
    wordIn(box.spaced ? `␣${trace.word(box.id).slice(1)}` : trace.word(box.id), {
      x: 7,
      y: h / 2 + 4,
      room: roomOf(box),
    }),
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

/** Pixels that the mark leaves for the word beside it; the letters of an accepted one are bold. */
function roomOf(box) {
  const mark = [...boxMark(box)].reduce((sum, letter) => sum + (MARKS[letter] ?? MARK), 0);
  return (box.w - 15 - mark) / (box.status === "accepted" ? 1.12 : 1);
}

function boxMark({ p, status, pick }) {
  const verdict = STATUS_MARK[status] || (p === null ? "" : percent(p));
  return `${pick ? "★" : ""}${verdict}`;
}
