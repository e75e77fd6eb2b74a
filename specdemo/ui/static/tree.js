// The tree of candidates, with the rejection score of each position.

import { SOURCE_MARK, candidateBox, wordIn } from "./candidate_box.js";
import { h, s } from "./dom.js";
import { draftsTable, lengthNote } from "./drafts_table.js";
import { acceptedPath, originName, treeRows } from "./draft_tree.js";
import { clamp, percent, plural, spoken } from "./format.js";
import { scroller } from "./scroller.js";
import { secondDrafts } from "./second_drafts.js";

const TREE = { left: 100, row: 38, box: 30 }; // pixels: the anchor's column, a row, a box in it

export function treeView(trace, round, stage, upto, available) {
  const { draft } = round;
  if (!draft || stage === "denoise")
    return [
      h("p", { class: "sd-empty", text: "The candidates appear here when denoising is over." }),
    ];
  const notes = [
    draftsTable(trace, round, stage),
    lengthNote(draft.notes, trace.start.params.length),
  ].filter(Boolean);
  if (!draft.tokens.length) {
    const text = `No draft token was verified${draft.notes.why ? `: ${draft.notes.why}` : ""}.`;
    return [...notes, h("p", { class: "sd-empty", text })];
  }
  const seen = stage === "verify";
  const drawing = scroller({}, treeDrawing(trace, round, seen, available));
  return [...notes, drawing, treeKey(trace, round, seen)];
}

/** Places in `available` pixels: `x` of a depth, `y` of a row, `row` of a node, width of a box. */
export function treeLayout(draft, seen, available) {
  const { row, count } = treeRows(draft);
  const deepest = Math.max(...draft.depth) + (seen ? 1 : 0); // with the target's own token
  const step = clamp((available - TREE.left - 8) / deepest, 106, 134);
  const bounds = draft.notes.boundaries || [];
  const top = bounds.length ? 84 : 26;
  const x = (depth) => TREE.left + (depth - 1) * step;
  const y = (r) => top + r * TREE.row;
  return {
    x,
    y,
    row,
    bounds,
    rows: Math.max(1, count),
    boxWidth: step - 26,
    width: x(deepest + 1) + 8,
    height: y(Math.max(1, count)) + 6,
  };
}

function treeDrawing(trace, round, seen, available) {
  const { draft, verify } = round;
  const layout = treeLayout(draft, seen, available);
  const { width, height } = layout;
  const svg = s("svg", {
    class: "sd-tree",
    width,
    height,
    role: "group",
    "aria-label": "Tree of candidates",
  });
  svg.append(
    ...heading(draft, layout),
    anchorBox(trace, round, layout),
    ...edges(round, layout, seen),
    ...candidateBoxes(trace, round, layout, seen),
  );
  const own = seen && verify.kept.find((k) => k.source === "correction" || k.source === "bonus");
  if (own) appendOwnToken(svg, trace, round, own, layout);
  return svg;
}

/** Above the columns: rejection scores, or how far from the anchor they are. */
function heading(draft, { x, bounds, boxWidth }) {
  if (bounds.length)
    return boundaryBars(bounds, new Set(draft.notes.branches), (i) => x(i + 1) - 14);
  return Array.from({ length: Math.max(...draft.depth) }, (_, k) =>
    s("text", { class: "sd-col", x: x(k + 1) + boxWidth / 2, y: 16, text: `+${k + 1}` }),
  );
}

function boundaryBars(bounds, branches, at) {
  const high = Math.max(...bounds, 1e-9);
  return bounds.flatMap((r, i) => {
    const tall = (40 * r) / high;
    const chosen = branches.has(i);
    return [
      s("rect", {
        class: `sd-bound${chosen ? " sd-bound-chosen" : ""}`,
        x: at(i) - 7,
        y: 56 - tall,
        width: 14,
        height: Math.max(1, tall),
        role: "img",
        "aria-label": `rejected first after ${i}: ${percent(r)}${chosen ? ", branches here" : ""}`,
      }),
      s("text", { class: "sd-col", x: at(i), y: 12, text: percent(r) }),
      ...(chosen ? [s("text", { class: "sd-branch", x: at(i), y: 72, text: "▼" })] : []),
    ];
  });
}

function anchorBox(trace, round, { y }) {
  const anchor = trace.spec[round.first - 1];
  const word = anchor ? anchor.text || trace.word(anchor.id) : "";
  return s(
    "g",
    {
      class: "sd-box sd-box-anchor",
      transform: `translate(4,${y(0)})`,
      role: "img",
      "aria-label": `anchor: ${anchor ? spoken(word) : ""}`,
    },
    s("rect", { width: TREE.left - 22, height: TREE.box, rx: 15 }),
    wordIn(anchor ? word : "anchor", { x: 10, y: TREE.box / 2 + 4, room: TREE.left - 36 }),
  );
}

/** A curve from the middle of one box's right side to the middle of another's left side. */
function edge(x0, y0, x1, y1, cls) {
  const from = y0 + TREE.box / 2;
  const to = y1 + TREE.box / 2;
  return s("path", {
    class: cls,
    d: `M${x0},${from} C${x0 + 16},${from} ${x1 - 16},${to} ${x1},${to}`,
  });
}

/** The right side of a node's box, or of the anchor's. */
function rightOf(draft, { x, y, row, boxWidth }, node) {
  return node < 0 ? [TREE.left - 18, y(0)] : [x(draft.depth[node]) + boxWidth, y(row[node])];
}

function edges(round, layout, seen) {
  const { draft } = round;
  const { x, y, row } = layout;
  const accepted = new Set(seen ? acceptedPath(round) : []);
  return draft.parent.map((p, i) =>
    edge(
      ...rightOf(draft, layout, p),
      x(draft.depth[i]),
      y(row[i]),
      `sd-edge${accepted.has(i) ? " sd-edge-kept" : ""}`,
    ),
  );
}

function candidateBoxes(trace, { draft, verify }, { x, y, row, boxWidth }, seen) {
  const usual = draft.origin[0];
  return draft.tokens.flatMap((id, i) => {
    const box = candidateBox(trace, {
      x: x(draft.depth[i]),
      y: y(row[i]),
      w: boxWidth,
      h: TREE.box,
      id,
      p: draft.q[i],
      status: seen ? verify.status[i] : null,
      node: i,
      chosen: false,
      pick: seen && verify.picks[draft.parent[i] + 1] === id,
    });
    if (draft.origin[i] === usual) return [box];
    const place = { x: x(draft.depth[i]) - 5, y: y(row[i]) + 3 };
    const stripe = { class: "sd-stripe", ...place, width: 4, height: TREE.box - 6, rx: 2 };
    return [box, s("rect", stripe)];
  });
}

/** The target's own token, drawn after the last node it accepted, on a free row. */
function appendOwnToken(svg, trace, round, own, layout) {
  const { draft } = round;
  const { x, y, row, rows, boxWidth } = layout;
  const last = acceptedPath(round).at(-1) ?? -1;
  const depth = (last < 0 ? 0 : draft.depth[last]) + 1;
  const taken = new Set(draft.depth.map((d, i) => `${d}:${row[i]}`));
  let free = last < 0 ? 0 : row[last];
  while (taken.has(`${depth}:${free}`)) free += 1;
  if (free >= rows) svg.setAttribute("height", y(free + 1) + 6);
  const word = own.text || trace.word(own.id);
  const middle = TREE.box / 2 + 4;
  svg.append(
    edge(...rightOf(draft, layout, last), x(depth), y(free), "sd-edge sd-edge-own"),
    s(
      "g",
      {
        class: `sd-box sd-box-${own.source}`,
        transform: `translate(${x(depth)},${y(free)})`,
        role: "img",
        "aria-label": `${own.source}: ${spoken(word)}`,
      },
      s("rect", { width: boxWidth, height: TREE.box, rx: 6 }),
      wordIn(word, { x: 7, y: middle, room: boxWidth - 26 }),
      s("text", {
        class: "sd-mark",
        x: boxWidth - 5,
        y: middle,
        text: SOURCE_MARK[own.source],
      }),
    ),
  );
}

/** The words below the drawing. */
function treeKey(trace, round, seen) {
  const { start } = trace;
  const { draft, verify } = round;
  const [usual, ...others] = [...new Set(draft.origin)].map(originName);
  const marks = start.method === "d2sd" ? "a second draft starts there" : "the tree branches there";
  const words = [
    (draft.notes.boundaries || []).length
      ? `Bars: rejection score of each position, r(i) = c₁…cᵢ · (1 − cᵢ₊₁), how likely the first rejection comes right after position i; ▼ = ${marks}.`
      : "",
    start.method === "d2sd" ? secondDrafts(round) : "",
    others.length
      ? `Grey stripe on the left: from ${others.join(", ")}; without: from ${usual}.`
      : "",
    draft.notes.left_out > 0
      ? `Cut: at least ${plural(draft.notes.left_out, "more node")} did not fit into a pass${start.most_nodes ? `, which verifies ${start.most_nodes} here` : ""}.`
      : "",
    seen
      ? `✓ accepted, ✗ rejected, · not reached${verify.cut ? ", – dropped after the end" : ""}; ★ the target's own choice; orange or green box = the token the target added.`
      : "Bar in each box: the drafter's probability.",
  ];
  return h("p", { class: "sd-key", text: words.filter(Boolean).join(" ") });
}
