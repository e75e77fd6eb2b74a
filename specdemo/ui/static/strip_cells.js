// Cells of the block strip.

import { h } from "./dom.js";
import { boxed, percent, plural, spoken } from "./format.js";

const UNNAMED = -1; // a draft that a serving engine does not name
const VERDICTS = {
  accepted: ["✓", "kept"],
  rejected: ["✗", "rejected"],
  unreached: ["·", "not reached"],
  dropped: ["–", "after the end"],
};
const OWN = { correction: ["▲", "corrected"], bonus: ["+", "bonus"], plain: ["", "target's own"] };

/** The last token before the block, which the draft continues. */
export function anchorCell(trace, round, name) {
  const last = trace.spec[round.first - 1];
  return h(
    "div",
    { class: "sd-anchor", role: "listitem" },
    h("small", { text: name }),
    h("span", { text: last ? boxed(last.text || trace.word(last.id), 12) : "…" }),
  );
}

const MARK_LETTERS = 1.6; // the room of the sign before a word, in its letters

/** How many letters wide a word is; an ideograph or emoji is as wide as two. */
const lettersOf = (word) => [...word].reduce((n, c) => n + (c >= "\u2e80" ? 1.8 : 1), 0);

const named = (cell) => cell !== null && cell.id !== null && cell.id !== UNNAMED;

/** Makes `node` the cell at position k: a guess, a verdict, or the target's `own` token. */
export function dressCell(node, trace, cell, own, k) {
  const word = named(cell) ? boxed(trace.word(cell.id), 16) : "";
  const shown = own ? boxed(own.text || trace.word(own.id), 16) : word;
  const [mark, verdict] = own ? OWN[own.source] : (VERDICTS[cell?.verdict] ?? ["", ""]);
  const { conf, alternatives } = cell ?? { conf: null, alternatives: 0 };
  const said = own?.source === "correction" && word ? `not “${word}”` : verdict;
  node.className = `sd-slot sd-slot-${slotLook(cell, own)}`;
  node.classList.toggle("sd-slot-new", Boolean(cell && cell.fresh && !cell.masked));
  node.style.setProperty("--conf", conf ?? 0);
  node.style.setProperty("--letters", lettersOf(shown) + (mark ? MARK_LETTERS : 0));
  node.style.setProperty("--said", lettersOf(said));
  node.setAttribute("aria-label", slotLabel(shown, cell, verdict, k));
  const isMask = Boolean(cell && cell.masked && !own);
  const parts = [
    slotWord(isMask ? `▒ ${word}` : shown, mark),
    h("small", { class: "sd-slot-said", text: said }),
  ];
  if (conf !== null) parts.push(h("small", { class: "sd-slot-conf", text: percent(conf) }));
  if (alternatives > 0) parts.push(forkButton(alternatives));
  node.replaceChildren(...parts);
}

const slotWord = (word, mark) =>
  h(
    "span",
    { class: "sd-slot-word" },
    mark ? h("i", { class: "sd-slot-mark", "aria-hidden": "true", text: mark }) : null,
    word || "\u00a0",
  );

function slotLook(cell, own) {
  if (own) return own.source;
  if (!cell) return "none";
  return cell.verdict ?? (cell.masked ? "mask" : "open");
}

function forkButton(others) {
  const said = `${plural(others, "other branch", "other branches")} at this position; open the tree`;
  return h("button", {
    type: "button",
    class: "sd-fork",
    text: `⑂${others}`,
    title: said,
    "aria-label": said,
  });
}

function slotLabel(word, cell, said, k) {
  const guessed = cell?.masked ? "mask" : spoken(word);
  const conf = cell && cell.conf !== null ? percent(cell.conf) : "";
  return [`position ${k + 1}`, guessed, conf, said].filter(Boolean).join(", ");
}

/** A further row of the strip. */
export function thinRow(trace, { label, start, cells }, row) {
  return [
    h("small", {
      class: "sd-thin-label",
      style: `grid-row:${row}`,
      title: label,
      text: label.replace(/^branch after/, "after"), // as the anchor's, which stands above it
    }),
    ...cells.map(({ id, conf, verdict }, k) =>
      h("span", {
        class: `sd-thin sd-thin-${verdict ?? "open"}`,
        style: `grid-row:${row};grid-column:${start + k + 2};--conf:${conf ?? 0}`,
        title: conf === null ? "" : percent(conf),
        text: `${verdict ? VERDICTS[verdict][0] + " " : ""}${boxed(trace.word(id), 14)}`,
      }),
    ),
  ];
}
