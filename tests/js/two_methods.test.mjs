// A race between two methods, folded, judged and saved.

import assert from "node:assert/strict";
import { test } from "node:test";

import { raceQuery } from "../../specdemo/ui/static/address.js";
import { findInconsistency } from "../../specdemo/ui/static/parse.js";
import { stateAtPlayhead } from "../../specdemo/ui/static/playhead.js";
import { compareAll, overPlain, rightOverLeft } from "../../specdemo/ui/static/two_methods.js";
import { fold, smallRace, twoMethods } from "./recordings.mjs";

const END = { at: -1, t: 0, pinned: true };

test("each lane keeps its own rounds, both beside the same plain lane", () => {
  const trace = fold(twoMethods());
  const alone = fold(smallRace());
  assert.deepEqual(trace.spec, alone.spec);
  assert.equal(trace.rounds.length, alone.rounds.length);
  assert.equal(trace.against.rounds.length, alone.rounds.length);
  assert.equal(trace.against.ar, trace.ar);
  assert.equal(trace.left, trace.against.spec);
  assert.equal(trace.against.rounds.at(-1).t1, 2 * trace.rounds.at(-1).t1);
  assert.equal(trace.end, trace.left.at(-1).t, "the lanes on screen end the replay");
  assert.equal(alone.left, alone.ar);
});

test("the ratio is between the lanes on screen, and both are told over plain decoding", () => {
  const trace = fold(twoMethods());
  const state = stateAtPlayhead(trace, END, false);
  assert.equal(rightOverLeft(trace, state), 2);
  assert.match(
    overPlain(trace, state, trace.rounds),
    /third lane of this race: 0\.60× left, 1\.20× right/,
  );
  const { done } = trace;
  trace.done = null;
  assert.equal(rightOverLeft(trace, { ...state, ended: false }), 2, "by the clocks so far");
  trace.done = done;
});

test("identical is said where all three lanes are, and a lane that differs is named", () => {
  const trace = fold(twoMethods());
  const state = stateAtPlayhead(trace, END, false);
  const same = compareAll(trace, state, -1, -1);
  assert.equal(same.word, "identical");
  assert.match(same.note, /of all three lanes, plain decoding's included/);
  trace.done.against.identical = false;
  trace.done.against.difference = 2;
  const left = compareAll(trace, state, -1, 2);
  assert.equal(left.look, "differs");
  assert.match(left.note, /^left lane: /);
  const right = compareAll(trace, state, 1, 2);
  assert.equal(right.word, "differs at 1");
});

test("a link brings the left lane back, and an event of the wrong lane is noticed", () => {
  const events = twoMethods();
  assert.equal(findInconsistency(events), null);
  const query = raceQuery(fold(events).start);
  assert.equal(query.get("against"), "block");
  assert.equal(query.get("against_params"), '{"gamma":3}');
  assert.equal(raceQuery(fold(smallRace()).start).get("against"), null);
  delete events.find((e) => e.kind === "draft" && e.lane).lane;
  assert.notEqual(findInconsistency(events), null);
});
