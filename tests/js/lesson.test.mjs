// What the lesson says about its recordings, and the figures it reads from them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { borrowedWeights } from "../../specdemo/ui/static/figures.js";
import {
  passQuestion,
  roundCosts,
  speedupAt,
  withFigures,
} from "../../specdemo/ui/static/lesson_figures.js";
import { acceptedQuestion } from "../../specdemo/ui/static/lesson_tasks.js";
import { fold, shippedNames, shippedText, smallRace } from "./recordings.mjs";

const recording = (name) => fold(JSON.parse(shippedText(name)).events);

test("texts have the figures of their recording, or are left out", () => {
  const trace = fold(smallRace());
  assert.deepEqual(withFigures(["as it is", "takes {pass_1}"], trace), [
    "as it is",
    "takes 20.0 ms",
  ]);
  assert.deepEqual(withFigures(["as it is", "from {pass_1} to {pass_64}"], trace), ["as it is"]);
});

test("the question about a pass is answered by the measured costs", () => {
  const { options, answer } = passQuestion(fold(smallRace().map(withEight)));
  assert.deepEqual(
    options.map(({ text }) => text),
    ["160.0 ms", "30.0 ms", "2.5 ms"],
  );
  assert.equal(options[answer].text, "30.0 ms");
  assert.ok(options[answer].why.startsWith("It takes 1.50 times as long"));
  assert.equal(passQuestion(fold([{ kind: "start" }])), null);
});

const withEight = (e) => (e.kind === "start" ? { ...e, cost_ms: { 1: 20, 8: 30 } } : e);

test("the question about a draft speaks of branches where there are some", () => {
  const trace = fold(smallRace());
  const [round] = trace.rounds;
  const word = (id) => trace.word(id);
  assert.match(
    acceptedQuestion(round, word).question,
    /^The longest branch of this draft has 3 tokens/,
  );
  const chain = { ...round, draft: { ...round.draft, parent: [-1, 0, 1], depth: [1, 2, 3] } };
  assert.match(acceptedQuestion(chain, word).question, /^This draft has 3 tokens/);
  const { options, answer } = acceptedQuestion(round, word);
  assert.equal(new Set(options.map(({ why }) => why)).size, options.length);
  assert.equal(answer, round.accepted);
});

test("the break-even sum gives the speed-up of the headline, from the numbers it shows", () => {
  for (const name of shippedNames().filter((known) => known !== "ar")) {
    const trace = recording(name);
    const costs = roundCosts(trace);
    for (const value of Object.values(costs)) assert.equal(value, Number(value.toFixed(2)), name);
    const gain = speedupAt(costs.tokens, costs);
    assert.ok(Math.abs(gain / trace.done.speedup - 1) < 0.006, `${name}: ${gain}`);
  }
});

test("who runs on the weights of another kind", () => {
  const borrowed = shippedNames().filter((name) => borrowedWeights(recording(name).start));
  assert.deepEqual(borrowed, [
    "ar-draft",
    "specdiff",
    "specdiff-few",
    "specdiff-many",
    "specdiff2",
  ]);
});
