// A recorded race replayed with another draft: what it would have come to.

import assert from "node:assert/strict";
import { test } from "node:test";

import { grown, passMs, possible, replay } from "../../specdemo/ui/static/what_if.js";
import { fold, shippedNames, shippedText } from "./recordings.mjs";

const load = (name) => fold(JSON.parse(shippedText(name)).events);
const asItWas = (trace) => ({
  gamma: possible(trace).depth,
  size: 0,
  draft: 1,
  verify: 1,
  batch: 1,
});

test("replayed as it was, every recording has its own rounds and tokens", () => {
  let drafted = 0;
  for (const name of shippedNames()) {
    const trace = load(name);
    if (possible(trace).why) continue;
    drafted += 1;
    const again = replay(trace, asItWas(trace));
    assert.equal(again.rounds, trace.rounds.filter((r) => r.count).length, name);
    assert.equal(again.tokens, trace.spec.length - trace.rounds[0].first, name);
    assert.equal(again.inside, 0, name);
    assert.ok(again.speedup > 0);
  }
  assert.ok(drafted >= 11);
  assert.match(possible(load("ar")).why, /Nothing was drafted/);
});

test("a shorter draft keeps what the recorded one had right, and takes more rounds", () => {
  const trace = load("block");
  const ask = asItWas(trace);
  const whole = replay(trace, ask);
  const counts = [1, 2, 3].map((gamma) => replay(trace, { ...ask, gamma }));
  for (const [k, { rounds, tokens, inside }] of counts.entries()) {
    assert.equal(tokens, whole.tokens);
    assert.ok(rounds >= whole.rounds && tokens <= rounds * (k + 2), "at most γ + 1 a round");
    assert.ok(inside > 0);
  }
  assert.ok(counts[0].rounds > counts[2].rounds);
});

test("a tree grown from recorded candidates is right where the drafted chain was", () => {
  const trace = load("block");
  const ask = asItWas(trace);
  const chain = replay(trace, ask);
  const [small, large] = [8, 60].map((size) => replay(trace, { ...ask, size }));
  assert.ok(large.rounds <= small.rounds);
  assert.ok(large.rounds <= chain.rounds, "60 nodes hold the likeliest chain of 7");
  const columns = [
    [[5, 0.6], [6, 0.4]],
    [[7, 0.9], [8, 0.1]],
  ]; // prettier-ignore
  assert.deepEqual(grown(columns, [6, 7], 2), { nodes: 2, accepted: 0 }, "5 and 5 7 are likelier");
  assert.deepEqual(grown(columns, [6, 7], 4), { nodes: 4, accepted: 2 });
  assert.deepEqual(grown(columns, [9], 9), { nodes: 6, accepted: 0 });
});

test("costs are those measured: cheaper drafting and a larger batch move the prediction", () => {
  const trace = load("block");
  const ask = asItWas(trace);
  const base = replay(trace, ask).speedup;
  assert.ok(replay(trace, { ...ask, draft: 0 }).speedup > base);
  assert.ok(replay(trace, { ...ask, verify: 2 }).speedup < base);
  assert.ok(replay(trace, { ...ask, batch: 32 }).speedup < base, "rows are no longer nearly free");
  const costs = { 1: 10, 2: 11, 8: 15, 16: 14 };
  assert.equal(passMs(costs, 1), 10);
  assert.equal(passMs(costs, 3), 14, "a wider pass that is measured faster");
  assert.equal(passMs({ 1: 10, 8: 17 }, 16), 25, "one more millisecond a row");
});
