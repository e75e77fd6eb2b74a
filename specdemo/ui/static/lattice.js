// The lattice: a column for each position, a row for each candidate, lines along what was verified
// and accepted, and the target's verdict on each node.

import { candidateBox, fitted } from "./candidate_box.js";
import { h, s } from "./dom.js";
import {
  acceptedPath,
  branches,
  isBranching,
  mainPath,
  nodesByDepth,
  targetPicks,
} from "./draft_tree.js";
import { boxed, clamp } from "./format.js";
import { scroller } from "./scroller.js";

const MAX_CANDIDATES = 8; // of a position
const PICK = 12; // pixels, of the words below a column
const LATTICE = { top: 26, row: 42, box: 34 }; // pixels: above the first row, a row, a box in it

export function latticeView(trace, round, stage, upto, available) {
  const columns = latticeColumns(round, stage, upto);
  if (!columns.length)
    return [
      h("p", {
        class: "sd-empty",
        text: round.draft
          ? "This draft has one candidate at each position, so there is no lattice. The tree shows what was proposed."
          : "The candidates appear here.",
      }),
    ];
  const lattice = latticeLayout(columns, available);
  const svg = s("svg", {
    class: "sd-lattice",
    width: columns.length * lattice.step,
    height: lattice.height,
    role: "group",
    "aria-label": "Lattice of candidates",
  });
  const draft = stage === "denoise" ? null : round.draft;
  const seen = stage === "verify";
  const paths = latticePaths(draft, seen ? round : null);
  const below = belowColumns(lattice, paths);
  for (const { ids, look } of paths.lines) svg.append(pathLine(lattice, ids, look, below));
  const state = {
    chosen: paths.chosen,
    below,
    picks: seen ? targetPicks(round) : [],
    nodeAt: draft ? nodesByDepth(draft, seen ? round.verify.status : []) : () => -1,
    status: (node) => (seen && node >= 0 && round.verify.status[node]) || null,
  };
  columns.forEach((_, k) => svg.append(...columnMarks(trace, lattice, state, k)));
  const isSpaced = columns.some((column) => lookAlikes(trace, column).size);
  const spaces = isSpaced ? " ␣ begins with a space, where two tokens would look alike." : "";
  const key = h("p", { class: "sd-key", text: latticeKey(draft, paths, seen) + spaces });
  return [scroller({ matters: ".sd-box-rejected" }, svg), key];
}

function latticeKey(draft, { searched }, seen) {
  const words = ["Rows: candidates by the drafter's probability."];
  if (draft && isBranching(draft)) {
    words.push(
      `Thin lines: the branches of the ${seen ? "verified tree" : "tree to be verified"}.`,
    );
    words.push("Dashed line: the branch that the drafter finds likeliest.");
    if (seen) words.push("Thick line: the branch that the target accepted.");
  } else if (draft) {
    words.push(`Thick line: the ${seen ? "verified path" : "path to be verified"}.`);
    if (searched) words.push("Thin lines: other paths of the search.");
  }
  if (seen) words.push("✓ accepted, ✗ rejected, · not reached; ★ the target's own choice.");
  return words.join(" ");
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
  const step = clamp(available / columns.length, 104, 122);
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

/**
 * What is drawn as lines [{ids, look}, ...]: the path verified and others that were searched; of a
 * tree all its branches, the likeliest, and, in a verified `round`, the accepted one. `chosen` are
 * the ids of the path, or of the likeliest branch; `searched` says that there are other paths.
 */
export function latticePaths(draft, round) {
  if (!draft) return { chosen: [], accepted: [], lines: [], searched: false };
  const idsOf = (nodes) => nodes.map((i) => draft.tokens[i]);
  const thin = (ids) => ({ ids, look: "sd-way" });
  if (isBranching(draft)) {
    const chosen = idsOf(mainPath(draft));
    const lines = branches(draft).map((nodes) => thin(idsOf(nodes)));
    lines.push({ ids: chosen, look: "sd-way sd-way-likeliest" });
    const accepted = round ? idsOf(acceptedPath(round)) : [];
    lines.push({ ids: accepted, look: "sd-way sd-way-chosen" });
    return { chosen, accepted, lines, searched: false };
  }
  const paths = (draft.notes.paths || []).map((path) => path.ids);
  const chosen = paths[draft.notes.path] || idsOf(mainPath(draft));
  const others = paths.filter((ids) => ids !== chosen);
  const lines = [...others.map(thin), { ids: chosen, look: "sd-way sd-way-chosen" }];
  return { chosen, accepted: [], lines, searched: others.length > 0 };
}

/** Of each position the id on the accepted or likeliest branch that is no candidate there. */
function belowColumns({ columns, rowOf }, { accepted, chosen }) {
  return columns.map((_, k) =>
    [accepted[k], chosen[k]].find((id) => id !== undefined && rowOf(k, id) < 0),
  );
}

/** A line along ids as far as they have boxes. */
function pathLine({ columns, rowOf, centre }, ids, cls, below) {
  const end = ids.findIndex((id, k) => !columns[k] || (rowOf(k, id) < 0 && id !== below[k]));
  const shown = end < 0 ? ids : ids.slice(0, end);
  const points = shown.map((id, k) => centre(k, rowOf(k, id)).join(","));
  return s("polyline", { class: cls, points: points.join(" ") });
}

/** The ids of a column that only a leading space, which a box leaves out, tells from another. */
export function lookAlikes(trace, column) {
  const words = column.map(([id]) => boxed(trace.word(id), 200));
  const isAlike = (word) => words.indexOf(word) !== words.lastIndexOf(word);
  const ids = column.map(([id]) => id).filter((_, i) => isAlike(words[i]));
  return new Set(ids.filter((id) => /^ [^ ]/.test(trace.word(id))));
}

/**
 * Heading, candidates and the target's choice at position k; an id on a thick or dashed line that
 * is no candidate stands below.
 */
function columnMarks(trace, { columns, step, width, deep, height }, state, k) {
  const { chosen, below, picks, nodeAt, status } = state;
  const spaced = lookAlikes(trace, columns[k]);
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
      spaced: spaced.has(id),
      chosen: chosen[k] === id,
      pick: p !== null && picks[k] === id,
    });
  };
  const middle = k * step + width / 2;
  const marks = [s("text", { class: "sd-col", x: middle, y: 16, text: `+${k + 1}` })];
  columns[k].forEach(([id, p], row) => marks.push(box(id, p, row)));
  if (below[k] !== undefined) marks.push(box(below[k], null, deep));
  if (picks[k] !== undefined) {
    const { text, size } = fitted(`target: ${boxed(trace.word(picks[k]))}`, step - 2, PICK);
    const style = `font-size: ${size}px`;
    marks.push(s("text", { class: "sd-pick", x: middle, y: height - 8, style, text }));
  }
  return marks;
}
