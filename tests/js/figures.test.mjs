// Figures over rounds are read from the events, and say their denominator.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as figures from "../../specdemo/ui/static/figures.js";
import { fold, shippedNames, shippedText, smallRace } from "./recordings.mjs";

const near = (value, wanted, message) =>
  assert.ok(Math.abs(value / wanted - 1) < 1e-4, `${message}: ${value}, not ${wanted}`);

test("the last point of the prediction is the prediction of the whole race", () => {
  for (const name of shippedNames()) {
    const { events } = JSON.parse(shippedText(name));
    const trace = fold(events);
    near(figures.predictedSeries(trace).at(-1)[1], events.at(-1).result.predicted_speedup, name);
  }
});

test("speed-up compares clocks at the same number of tokens, against the baseline", () => {
  const trace = fold(smallRace());
  assert.equal(figures.baselineScale(trace), 14 / 21);
  const series = figures.speedupSeries(trace);
  assert.deepEqual(
    series.map(([n]) => n),
    [4, 5],
  );
  near(series[0][1], (0.06 * (14 / 21)) / 0.04, "first round");
  near(series[1][1], (0.08 * (14 / 21)) / 0.06, "second round");
});

test("without predictions there is no predicted series and no busy machine", () => {
  const events = smallRace().map((e) => ({ ...e, predicted_ms: undefined }));
  const trace = fold(events);
  assert.deepEqual(figures.predictedSeries(trace), []);
  assert.equal(figures.slowdown(trace, [...trace.rounds, ...trace.rounds]), 0);
});

test("rounds that took twice their time are a busy machine", () => {
  const trace = fold(smallRace());
  for (const round of trace.rounds) round.verify.predicted_ms = figures.measuredMs(round) / 2;
  near(figures.slowdown(trace, [...trace.rounds, ...trace.rounds]), 2, "slowdown");
  assert.equal(figures.slowdown(trace, trace.rounds), 0, "two rounds tell nothing");
});

test("acceptance by depth counts what was drafted and what was reached", () => {
  const trace = fold(smallRace());
  assert.deepEqual(figures.acceptanceByDepth(trace.rounds), [
    { depth: 1, drafted: 1, tested: 1, kept: 1 },
    { depth: 2, drafted: 1, tested: 1, kept: 1 },
    { depth: 3, drafted: 1, tested: 1, kept: 0 },
  ]);
  trace.rounds[0].verify.cut = 1;
  assert.equal(figures.acceptanceByDepth(trace.rounds).length, 2, "nothing is asked past the end");
});

test("words for both lanes", () => {
  const trace = fold(smallRace());
  const word = (state, differs, done) => figures.comparison(trace, state, differs, done).word;
  assert.equal(word({ ar: 0, spec: 0 }, -1, null), "–");
  assert.equal(word({ ar: 3, spec: 2 }, -1, null), "identical so far");
  assert.equal(word({ ar: 5, spec: 5 }, -1, trace.done), "identical");
  assert.equal(word({ ar: 5, spec: 5 }, 2, null), "differs at 2");
  assert.equal(word({ ar: 3, spec: 4 }, -1, { ...trace.done, stopped: true }), "identical so far");
  assert.equal(word({ ar: 5, spec: 5 }, -1, { ...trace.done, difference: 3 }), "differs at 3");
  trace.start.rule = "ratio";
  assert.equal(word({ ar: 5, spec: 5 }, 2, null), "same distribution");
});

test("a race of fewer than eight tokens has no speed-up", () => {
  assert.equal(figures.tooShort({ spec: 7 }), true);
  assert.equal(figures.tooShort({ spec: 8 }), false);
});

test("words for a speed-up", () => {
  const trace = fold(smallRace());
  assert.equal(figures.speedWords(trace, 2, false), "the speed of plain decoding");
  assert.equal(figures.speedWords(trace, 0.5, false), "the speed of plain decoding: slower here");
  assert.equal(figures.speedWords(trace, 1, true), "the speed of plain decoding");
  trace.start.method = "ar";
  assert.equal(
    figures.speedWords(trace, 2, false),
    "plain decoding against itself: any difference is timing noise",
  );
});

test("a race stopped before its first round compares nothing", () => {
  const trace = fold(smallRace());
  const { word, look } = figures.comparison(trace, { ar: 1, spec: 1 }, -1, {
    ...trace.done,
    stopped: true,
  });
  assert.deepEqual([word, look], ["–", "none"]);
});
