// Events folded into lanes, rounds and the timeline.

import assert from "node:assert/strict";
import { test } from "node:test";

import { countUntil, firstDifference } from "../../specdemo/ui/static/trace.js";
import { stateAtPlayhead } from "../../specdemo/ui/static/playhead.js";
import { fold, shippedNames, shippedText, smallRace } from "./recordings.mjs";

const text = (tokens) => tokens.map((token) => token.text).join("");

test("a shipped recording folds into the very text and figures of its end", async (t) => {
  assert.equal(shippedNames().length, 13);
  for (const name of shippedNames())
    await t.test(name, () => {
      const { events } = JSON.parse(shippedText(name));
      const trace = fold(events);
      const { result, ar_text, spec_text } = events.at(-1);
      assert.equal(text(trace.ar), ar_text);
      assert.equal(text(trace.spec), spec_text);
      assert.deepEqual(
        trace.spec.map((token) => token.id),
        result.output_ids,
      );
      assert.equal(trace.rounds.length, result.spec.rounds);
      assert.equal(trace.spec.length, result.spec.tokens);
      const accepted = trace.rounds.reduce((sum, round) => sum + round.accepted, 0);
      const perRound = accepted / result.spec.rounds;
      assert.ok(Math.abs(perRound - result.spec.accepted_per_round) < 1e-4);
      assert.equal(firstDifference(trace), result.first_difference ? 0 : -1);
      assert.ok(Math.abs(trace.spec.at(-1).t - result.spec.seconds) < 1e-4);
    });
});

test("a prompt is being read until the first lane begins, or the race is stopped", () => {
  const [start, first, ...rest] = smallRace();
  const read = (n) => ({ kind: "prefill_progress", read: n, total: 600 });
  const trace = fold([start, read(256), read(512)]);
  assert.deepEqual(trace.reading, { read: 512, total: 600, lane: "" });
  for (const next of [first, rest.at(-1)])
    assert.equal(fold([start, read(256), next]).reading, null, next.kind);
  assert.equal(fold([start, first]).reading, null);
});

test("the timeline never runs backwards and ends with the race", () => {
  for (const name of shippedNames()) {
    const trace = fold(JSON.parse(shippedText(name)).events);
    const times = trace.timeline.map((step) => step.t);
    assert.deepEqual(
      times,
      [...times].sort((a, b) => a - b),
      name,
    );
    assert.equal(times.at(-1), trace.end, name);
    for (const round of trace.rounds)
      assert.equal(round.timeline.at(-1).kind, "verify", `${name}, round ${round.number}`);
  }
});

test("a round knows its tokens, its drafts and its steps", () => {
  const trace = fold(smallRace());
  const [first, second] = trace.rounds;
  assert.deepEqual([first.first, first.count, first.accepted], [1, 3, 2]);
  assert.deepEqual([second.first, second.count, second.accepted], [4, 1, 0]);
  assert.deepEqual(first.draft.depth, [1, 2, 3, 2]);
  assert.deepEqual(
    trace.timeline.map((step) => [step.kind, step.round, step.upto]),
    [
      ["denoise", 0, 1],
      ["draft", 0, 1],
      ["verify", 0, 1],
      ["draft", 1, 0],
      ["verify", 1, 0],
      ["ar", 1, 0],
    ],
  );
  assert.deepEqual(
    trace.timeline.map((step) => step.t),
    [0.005, 0.01, 0.04, 0.04, 0.06, 0.08],
  );
  assert.equal(trace.end, 0.08);
  assert.equal(trace.word(9), "nine");
  assert.equal(trace.word(12), "#12");
  assert.equal(trace.word(null), "");
});

test("what a trace cannot hold is passed over or made harmless", () => {
  const trace = fold([
    null,
    5,
    { kind: "toString" },
    { kind: "start", prompt: 5, params: [], sampling: "hot", cost_ms: { a: "b" } },
    { kind: "denoise", ids: 5, top: [5] },
    { kind: "draft", tokens: [1, "x", 3], parent: [0, 7], q: ["p"], notes: { drafts: [null, 5] } },
    { kind: "verify", kept: [{}, { text: 5, source: "constructor", node: 99 }], status: "x" },
    { kind: "done", result: 5 },
  ]);
  assert.equal(trace.start.prompt, "5");
  assert.deepEqual(trace.start.params, {});
  assert.equal(trace.start.baseline_ms, null);
  const [{ draft, verify, frames }] = trace.rounds;
  assert.deepEqual(frames[0].top, [[]]);
  assert.deepEqual(draft.parent, [-1, -1, -1]);
  assert.deepEqual(draft.q, [null, null, null]);
  assert.equal(draft.notes.drafts.length, 2);
  assert.deepEqual(
    verify.kept.map(({ source, node, text: word }) => [source, node, word]),
    [
      ["plain", null, ""],
      ["plain", null, "5"],
    ],
  );
  assert.equal(trace.done.speedup, null);
  assert.equal(trace.done.note, "");
});

test("a saved trace holds the events as they came", () => {
  const events = smallRace();
  const saved = JSON.parse(fold(events).json());
  assert.equal(saved.format, "specdemo-trace");
  assert.deepEqual(saved.events, events);
});

test("tokens are counted by their time, differences by their id", () => {
  const trace = fold(smallRace());
  assert.deepEqual(
    [-1, 0, 0.03, 0.04, 9].map((t) => countUntil(trace.ar, t)),
    [0, 1, 2, 3, 5],
  );
  assert.equal(firstDifference(trace), -1);
  trace.spec[2].id = 77;
  assert.equal(firstDifference(trace), 2);
  assert.equal(firstDifference(trace, 5, 2), -1);
});

test("the playhead shows what was written up to its moment", () => {
  const trace = fold(smallRace());
  const at = (i, t = trace.timeline[i]?.t ?? 0) =>
    stateAtPlayhead(trace, { at: i, t, pinned: false }, false);
  const before = at(-1);
  assert.deepEqual([before.ar, before.spec, before.stage, before.rounds], [1, 1, "denoise", 0]);
  const drafted = at(1);
  assert.deepEqual([drafted.spec, drafted.stage, drafted.rounds], [1, "draft", 0]);
  const checked = at(2);
  assert.deepEqual([checked.spec, checked.stage, checked.rounds], [4, "verify", 1]);
  assert.deepEqual([checked.ar, checked.arClock, checked.specClock], [3, 0.04, 0.04]);
  const end = stateAtPlayhead(trace, { at: -1, t: 0, pinned: true }, false);
  assert.deepEqual([end.ended, end.ar, end.spec, end.rounds], [true, 5, 5, 2]);
  assert.deepEqual([end.arClock, end.specClock], [0.08, 0.06]);
});

test("at rest the last round with the most accepted drafts is open, not an empty last one", () => {
  const trace = fold(smallRace());
  const pinned = { at: -1, t: 0, pinned: true };
  assert.equal(trace.rounds.at(-1).draft.tokens.length, 0, "the last round drafted nothing");
  assert.equal(stateAtPlayhead(trace, pinned, false).opened.index, 0);
  assert.equal(stateAtPlayhead(trace, pinned, true).opened.index, 1, "a live race is followed");
  const last = { at: trace.timeline.length - 1, t: trace.end, pinned: false };
  assert.equal(stateAtPlayhead(trace, last, false).opened.index, 1, "who steps there sees it");
  const plain = fold(smallRace().filter((e) => e.kind !== "draft"));
  assert.equal(stateAtPlayhead(plain, pinned, false).opened.index, 1, "nothing was drafted at all");
  for (const name of shippedNames()) {
    const { rounds, ...rest } = fold(JSON.parse(shippedText(name)).events);
    const { opened } = stateAtPlayhead({ rounds, ...rest, left: rest.ar, end: 1 }, pinned, false);
    if (rounds.some((round) => round.draft.tokens.length))
      assert.equal(opened.accepted, Math.max(...rounds.map((round) => round.accepted)), name);
  }
});
