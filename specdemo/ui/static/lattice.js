// The lattice: a column for each position, a row for each candidate, a line along the path sent,
// and the target's verdict on each node it checked.

import { candidateBox } from "./candidate_box.js";
import { h, s } from "./dom.js";
import { mainPath, nodesByDepth, targetPicks } from "./draft_tree.js";
import { boxed, clamp } from "./format.js";

const MAX_CANDIDATES = 8; // of a position
const LATTICE = { top: 26, row: 42, box: 34 }; // pixels: above the first row, a row, a box in it

export function latticeView(trace, round, stage, upto, available) {
  const columns = latticeColumns(round, stage, upto);
  if (!columns.length)
    return [h("p", { class: "sd-empty", text: "No candidates were recorded for this round." })];
  const lattice = latticeLayout(columns, available);
  const svg = s("svg", {
    class: "sd-lattice",
    width: columns.length * lattice.step,
    height: lattice.height,
    role: "group",
    "aria-label": "Lattice of candidates",
  });
  const draft = stage === "denoise" ? null : round.draft;
  const { chosen, others } = latticePaths(draft);
  for (const ids of others) svg.append(pathLine(lattice, ids, "sd-way"));
  if (chosen.length > 1) svg.append(pathLine(lattice, chosen, "sd-way sd-way-chosen"));
  const seen = stage === "verify";
  const state = {
    chosen,
    picks: seen ? targetPicks(round) : [],
    nodeAt: draft ? nodesByDepth(draft) : () => -1,
    status: (node) => (seen && node >= 0 && round.verify.status[node]) || null,
  };
  columns.forEach((_, k) => svg.append(...columnMarks(trace, lattice, state, k)));
  const key = h("p", {
    class: "sd-key",
    text: "Rows: candidates by the drafter's probability. Line: the path sent to the target. ✓ kept, ✗ rejected, · not reached; ★ the target's own choice.",
  });
  return [h("div", { class: "sd-scroll" }, svg), key];
}

/**
 * Candidates [[id, probability], ...] of each position: those searched, else those of the first
 * block's last step.
 */
export function latticeColumns(round, stage, upto) {
  const drafted = stage !== "denoise" && round.draft;
  const shown = stage === "denoise" ? round.frames.slice(0, upto) : round.frames;
  const frames = shown.filter((frame) => frame.top.length);
  const columns =
    (drafted && round.draft.notes.lattice) || (frames.length ? frames.at(-1).top : []);
  return columns.map((column) => column.slice(0, MAX_CANDIDATES));
}

/**
 * Places in `available` pixels: `step` of a column, `width` of a box, `deep` rows, the centre of a
 * row, the row of an id.
 */
export function latticeLayout(columns, available) {
  const step = clamp(available / columns.length, 94, 122);
  const width = step - 14;
  const deep = Math.max(...columns.map((column) => column.length));
  return {
    columns,
    step,
    width,
    deep,
    height: LATTICE.top + (deep + 1) * LATTICE.row + 30,
    rowOf: (k, id) => columns[k].findIndex((c) => c[0] === id),
    centre: (k, row) => [
      k * step + width / 2,
      LATTICE.top + (row < 0 ? deep : row) * LATTICE.row + LATTICE.box / 2,
    ],
  };
}

/** The ids of the path sent, and of the other paths searched. */
function latticePaths(draft) {
  if (!draft) return { chosen: [], others: [] };
  const paths = (draft.notes.paths || []).map((path) => path.ids);
  const chosen = paths[draft.notes.path] || mainPath(draft).map((i) => draft.tokens[i]);
  return { chosen, others: paths.filter((ids) => ids !== chosen && ids.length > 1) };
}

function pathLine({ columns, rowOf, centre }, ids, cls) {
  const points = ids.slice(0, columns.length).map((id, k) => centre(k, rowOf(k, id)).join(","));
  return s("polyline", { class: cls, points: points.join(" ") });
}

/**
 * Heading, candidates and the target's choice at position k; an id sent that is no candidate stands
 * below.
 */
function columnMarks(trace, { columns, step, width, deep, height, rowOf }, state, k) {
  const { chosen, picks, nodeAt, status } = state;
  const box = (id, p, row) => {
    const node = nodeAt(k + 1, id);
    return candidateBox(trace, {
      x: k * step,
      y: LATTICE.top + row * LATTICE.row,
      w: width,
      h: LATTICE.box,
      id,
      p,
      status: status(node),
      node,
      chosen: chosen[k] === id,
      pick: p !== null && picks[k] === id,
    });
  };
  const middle = k * step + width / 2;
  const marks = [s("text", { class: "sd-col", x: middle, y: 16, text: `+${k + 1}` })];
  columns[k].forEach(([id, p], row) => marks.push(box(id, p, row)));
  if (chosen[k] !== undefined && rowOf(k, chosen[k]) < 0) marks.push(box(chosen[k], null, deep));
  if (picks[k] !== undefined) {
    const text = `target: ${boxed(trace.word(picks[k]), 9)}`;
    marks.push(s("text", { class: "sd-pick", x: middle, y: height - 8, text }));
  }
  return marks;
}
