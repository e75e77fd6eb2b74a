// Trees of candidates, and where their boxes stand.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as tree from "../../specdemo/ui/static/draft_tree.js";
import { stepName } from "../../specdemo/ui/static/denoise.js";
import {
  latticeColumns,
  latticeLayout,
  latticePaths,
  lookAlikes,
} from "../../specdemo/ui/static/lattice.js";
import { pendingCells } from "../../specdemo/ui/static/lanes.js";
import { pickRound } from "../../specdemo/ui/static/lesson_rounds.js";
import { fullBar } from "../../specdemo/ui/static/rounds.js";
import { fitted } from "../../specdemo/ui/static/candidate_box.js";
import { secondDrafts } from "../../specdemo/ui/static/second_drafts.js";
import { treeLayout } from "../../specdemo/ui/static/tree.js";
import { fold, shippedNames, shippedText, smallRace } from "./recordings.mjs";

const round = () => fold(smallRace()).rounds[0];

test("depths, main path and nodes along ids", () => {
  const { draft } = round();
  assert.deepEqual(tree.depths([-1, 0, 1, 0, -1]), [1, 2, 3, 2, 1]);
  assert.deepEqual(tree.mainPath(draft), [0, 1, 2]);
  assert.deepEqual(tree.nodesAlong(draft, [2, 5, 9]), [0, 3, -1]);
  assert.deepEqual(tree.nodesAlong(draft, [7, 2]), [-1, -1], "nothing follows what is not there");
  assert.equal(tree.isBranching(draft), true);
  assert.equal(tree.isBranching({ parent: [-1, 0, 1] }), false);
});

test("what the target accepted, rejected and chose", () => {
  const checked = round();
  assert.deepEqual(tree.acceptedPath(checked), [0, 1]);
  assert.deepEqual(tree.acceptedPath({ verify: null }), []);
  assert.deepEqual(tree.rejectedAt(checked), { nodes: [2], behind: 0 });
  assert.deepEqual(tree.targetPicks(checked), [2, 3, 4]);
  const nodeAt = tree.nodesByDepth(checked.draft);
  assert.deepEqual([nodeAt(1, 2), nodeAt(2, 5), nodeAt(3, 5)], [0, 3, -1]);
});

test("a node on several branches is the one with which the target went furthest", () => {
  const draft = { tokens: [7, 8, 9, 9], depth: [1, 1, 2, 2], parent: [-1, -1, 0, 1] };
  assert.equal(tree.nodesByDepth(draft)(2, 9), 2);
  const status = ["rejected", "accepted", "unreached", "accepted"];
  assert.equal(tree.nodesByDepth(draft, status)(2, 9), 3);
  assert.equal(
    tree.nodesByDepth(draft, ["accepted", "rejected", "rejected", "unreached"])(2, 9),
    2,
  );
});

test("lines of the lattice: all branches of a tree, the likeliest and the accepted one", () => {
  const checked = round();
  const { draft } = checked;
  draft.q = [0.9, 0.3, 0.5, 0.6]; // the drafter prefers 2 5, the target accepts 2 3
  assert.deepEqual(tree.branches(draft), [
    [0, 1, 2],
    [0, 3],
  ]);
  const sent = latticePaths(draft, null).lines;
  assert.deepEqual(
    sent.map((line) => [line.look, line.ids]),
    [
      ["sd-way", [2, 3, 9]],
      ["sd-way", [2, 5]],
      ["sd-way sd-way-likeliest", [2, 5]],
      ["sd-way sd-way-chosen", []],
    ],
  );
  const accepted = latticePaths(draft, checked).lines.at(-1);
  assert.deepEqual(accepted, { look: "sd-way sd-way-chosen", ids: [2, 3] });
});

test("lines of the lattice: of a searched path, the one sent", () => {
  const paths = [{ ids: [4, 5] }, { ids: [6, 7] }];
  const draft = { tokens: [6, 7], parent: [-1, 0], q: [1, 1], notes: { paths, path: 1 } };
  const { lines, chosen } = latticePaths(draft, null);
  assert.deepEqual(chosen, [6, 7]);
  assert.deepEqual(
    lines.map((line) => line.look),
    ["sd-way", "sd-way sd-way-chosen"],
  );
});

test("denoising steps are counted without the Markov head, which is none", () => {
  const head = { label: "Markov head", step: 1, steps: 2 };
  const steps = [{ label: "block", step: 0, steps: 2 }, head];
  assert.deepEqual(
    [0, 1].map((n) => stepName(steps, n)),
    ["1/1", "Markov head"],
  );
  const two = [0, 1].map((step) => ({ label: "", step, steps: 2 }));
  assert.deepEqual(
    [0, 1].map((n) => stepName(two, n)),
    ["1/2", "2/2"],
  );
});

test("bars of the strip: the longest round fills it", () => {
  assert.equal(fullBar([{ count: 3 }]), 9);
  assert.equal(fullBar([{ count: 16 }, { count: 2 }]), 16);
});

test("a parent stands on the row of its first child, other children below", () => {
  assert.deepEqual(tree.treeRows(round().draft), { row: [0, 0, 0, 1], count: 2 });
  const forest = { tokens: [1, 2, 3, 4, 5], parent: [-1, -1, 0, 1, 0] };
  assert.deepEqual(tree.treeRows(forest), { row: [0, 2, 0, 2, 1], count: 3 });
});

test("no two boxes of a shipped tree overlap", () => {
  for (const name of shippedNames())
    for (const { draft, number } of fold(JSON.parse(shippedText(name)).events).rounds) {
      if (!draft.tokens.length) continue;
      const { x, y, row, boxWidth, width, height } = treeLayout(draft, true, 900);
      const places = draft.tokens.map((_, i) => `${x(draft.depth[i])},${y(row[i])}`);
      assert.equal(new Set(places).size, places.length, `${name}, round ${number}`);
      assert.ok(x(Math.max(...draft.depth)) + boxWidth <= width);
      assert.ok(y(Math.max(...row)) < height);
    }
});

test("columns of the lattice: those searched, else those of the block", () => {
  const top = [
    [
      [1, 0.5],
      [2, 0.3],
    ],
    [[3, 0.9]],
  ];
  const frames = [{ top: [] }, { top }];
  const searched = { frames, draft: { notes: { lattice: [[[7, 1]]] } } };
  assert.deepEqual(latticeColumns(searched, "denoise", 1), []);
  assert.deepEqual(latticeColumns(searched, "denoise", 2), top);
  assert.deepEqual(latticeColumns(searched, "draft", 2), [[[7, 1]]]);
  const layout = latticeLayout(top, 900);
  assert.equal(layout.deep, 2);
  assert.deepEqual([layout.rowOf(0, 2), layout.rowOf(1, 2)], [1, -1]);
  const [x, y] = layout.centre(1, -1);
  assert.ok(x > layout.step && y > layout.centre(1, 1)[1], "what is no candidate stands below");
});

test("what is not verified yet: masks, then the main branch", () => {
  const trace = fold(smallRace());
  const kinds = (cells) => cells.map((cell) => cell.kind);
  assert.deepEqual(kinds(pendingCells(trace, trace.rounds[0], "denoise", 1)), [
    "pending-word",
    "pending-word",
    "mask",
  ]);
  assert.equal(pendingCells(trace, trace.rounds[0], "draft", 1)[2].text, "nine");
  assert.deepEqual(pendingCells(trace, trace.rounds[1], "denoise", 0), []);
});

test("the lesson's rounds", () => {
  const trace = fold(smallRace());
  for (const which of ["best", "broken", "branching", undefined])
    assert.equal(pickRound(trace, which).index, 0, which);
});

test("a short word is written whole and smaller before it is cut", () => {
  assert.deepEqual(fitted("of", 46), { text: "of", size: 13.5 });
  const { text, size } = fitted("numbers", 46);
  assert.equal(text, "numbers");
  assert.ok(size < 13.5 && size >= 9);
  const long = fitted("internationalisation", 46);
  assert.equal(long.size, 9);
  assert.ok(long.text.endsWith("…") && long.text.length < 10);
});

test("what became of each second draft is read from the recording", () => {
  const frame = (row, label, ...ids) => ({ row, label, ids });
  const frames = [
    frame(0, "block", 1, 2, 3),
    frame(1, "branch after 1", 1, 8, 9),
    frame(2, "branch after 0", 1, 8, 9),
    frame(3, "branch after 2", 1, 2, 3),
    frame(4, "branch after 2", 1, 2, 7),
  ];
  const draft = { tokens: [1, 2, 3, 8, 9], parent: [-1, 0, 1, 0, 3] };
  assert.equal(
    secondDrafts({ frames, draft }),
    "Second drafts: after 0 the same as the one after 1; after 1 a branch of its own; after 2 the same as the first block; after 2 cut, it did not fit.",
  );
  assert.equal(secondDrafts({ frames: frames.slice(0, 1), draft }), "");
});

test("tokens of a column that only a leading space tells apart", () => {
  const words = [" of", "of", " a", "b", "  "];
  const trace = { word: (id) => words[id] };
  assert.deepEqual([...lookAlikes(trace, [[0], [1], [2], [3], [4]])], [0]);
  assert.equal(lookAlikes(trace, [[0], [2], [3]]).size, 0);
});
