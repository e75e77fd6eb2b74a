// Which of several drafts the rule used, beside the one that selection by the target would keep.

import assert from "node:assert/strict";
import { test } from "node:test";

import { choice } from "../../specdemo/ui/static/drafts_table.js";

const drafts = [
  { ids: [5, 6], drafter_score: 1.9, target_score: 0.9 },
  { ids: [7, 8], drafter_score: 0.2, target_score: 0.7 },
];

/** A tree of both drafts of which the second one's first token was accepted. */
function round(notes = {}) {
  return {
    draft: { tokens: [5, 6, 7, 8], parent: [-1, 0, -1, 2], notes: { drafts, chosen: 0, ...notes } },
    verify: { status: ["rejected", "unreached", "accepted", "rejected"] },
  };
}
const trace = (rule, temperature) => ({ start: { rule, sampling: { temperature } } });

test("nothing is marked before the target's pass", () => {
  for (const rule of ["match", "point-mass", "ratio"])
    assert.equal(choice(trace(rule, 1), round(), drafts, false).chosen, -1);
});

test("a walk through the whole tree uses what was accepted furthest, not the drafter's favourite", () => {
  const found = choice(trace("match", 1), round({ selection: 0 }), drafts, true);
  assert.deepEqual([found.chosen, found.selected], [1, 0]);
  assert.match(
    found.caption,
    /all of them at once.*accepted furthest.*eq\. 7\) would keep \(0 acc/,
  );
  assert.match(choice(trace("ratio", 1), round(), drafts, true).caption, /Each in turn/);
});

test("greedy, the selection is the draft that was accepted furthest, whatever the rule is called", () => {
  for (const rule of ["match", "point-mass", "ratio"]) {
    const found = choice(trace(rule, 0), round(), drafts, true);
    assert.deepEqual([found.chosen, found.selected], [1, 1]);
    assert.match(found.caption, /all of them at once/);
  }
});

test("under point-mass the target's choice is the one in use", () => {
  const found = choice(trace("point-mass", 1), round({ chosen: 0 }), drafts, true);
  assert.deepEqual([found.chosen, found.selected], [0, -1]);
  assert.match(found.caption, /probabilities select/);
});
