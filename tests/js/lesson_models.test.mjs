// What the lesson's experiments compute.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  acceptance,
  batches,
  draftPlaces,
  keptOf,
  maskRows,
  nextPlace,
  outcomesOf,
  passCost,
  ratioPlace,
  residual,
  drawRatio,
} from "../../specdemo/ui/static/lesson_models.js";
import { lessonPlace, recordingPlace } from "../../specdemo/ui/static/place.js";
import { fold, shippedText, smallRace } from "./recordings.mjs";

const recording = (name) => fold(JSON.parse(shippedText(name)).events);
const near = (a, b, room, what) => assert.ok(Math.abs(a - b) <= room, `${what}: ${a}, ${b}`);

/** The same numbers in every run. */
function seeded(seed) {
  let state = seed;
  return () => (state = (state * 16807) % 2147483647) / 2147483647;
}

test("the draws of the ratio test give the target's distribution", () => {
  const { outcomes } = ratioPlace(recording("block"));
  near(
    outcomes.reduce((n, { p }) => n + p, 0),
    1,
    1e-6,
    "p",
  );
  const counts = outcomes.map(() => 0);
  const random = seeded(7);
  const n = 40000;
  let accepted = 0;
  for (let i = 0; i < n; i++) {
    const one = drawRatio(outcomes, random);
    counts[one.kept] += 1;
    accepted += Number(one.accepted);
    if (one.accepted) assert.equal(one.kept, one.drafted);
  }
  outcomes.forEach(({ p }, k) => near(counts[k] / n, p, 0.01, `outcome ${k}`));
  near(accepted / n, acceptance(outcomes), 0.01, "accepted");
  assert.ok(acceptance(outcomes) > 0.3 && acceptance(outcomes) < 0.9, "both outcomes are seen");
});

test("outcomes hold every token of both models, and the rest as one", () => {
  const outcomes = outcomesOf(
    [
      [1, 0.5],
      [2, 0.25],
    ],
    [[2, 0.75]],
  );
  assert.deepEqual(outcomes, [
    { id: 2, p: 0.75, q: 0.25 },
    { id: 1, p: 0, q: 0.5 },
    { id: null, p: 0.25, q: 0.25 },
  ]);
  assert.deepEqual(residual(outcomes), [1, 0, 0]);
  assert.equal(acceptance(outcomes), 0.5);
});

test("a row attends to its ancestors and to nobody else", () => {
  const [round] = fold(smallRace()).rounds;
  const rows = maskRows(round);
  assert.equal(rows.length, round.draft.tokens.length + 1);
  for (const { node, sees } of rows) {
    const seen = rows.filter((_, k) => sees[k]).map((row) => row.node);
    assert.equal(seen[0], -1);
    assert.equal(seen.at(-1), node);
    for (const one of seen.slice(1))
      assert.equal(round.draft.parent[one], seen[seen.indexOf(one) - 1]);
  }
  assert.equal(rows.filter((row) => row.isKept).length, round.accepted + 1);
});

test("batches: costs between and beyond the measured widths, and the point where drafts lose", () => {
  const costs = { 1: 10, 2: 12, 4: 20 };
  assert.equal(passCost([1, 2, 4], costs, 1), 10);
  assert.equal(passCost([1, 2, 4], costs, 3), 16);
  assert.equal(passCost([1, 2, 4], costs, 8), 36);
  const trace = recording("best");
  const found = batches(trace);
  near(found.at(1).gain, trace.done.speedup, 0.5, "one user is the race itself");
  assert.ok(found.at(16).gain < found.at(1).gain);
  assert.ok(found.at(1).isMeasured && !found.at(16).isMeasured);
  assert.equal(batches(fold([{ kind: "start" }])), null);
});

test("a student's draft is kept up to the first token that is not the target's", () => {
  const trace = recording("block");
  const all = draftPlaces(trace);
  const at = nextPlace(all, 1, 3);
  assert.ok(at >= 1 && all.slice(at, at + 3).every(({ options }) => options.length > 1));
  const right = all.slice(at, at + 3).map(({ token }) => token.id);
  assert.equal(keptOf(right, all, at), 3);
  assert.equal(keptOf([right[0], -5, right[2]], all, at), 1);
  for (const { token, options } of all) assert.ok(options.includes(token.id));
  assert.equal(nextPlace(all, all.length, 3), -1);
});

test("addresses of places", () => {
  assert.equal(lessonPlace("#lesson-ratio"), "ratio");
  assert.equal(recordingPlace("#recording-specdiff-few"), "specdiff-few");
  for (const hash of ["", "#", "#lesson-", "#lesson-<b>", "#recording-a/b"]) {
    assert.equal(lessonPlace(hash), null);
    assert.equal(recordingPlace(hash), null);
  }
});
