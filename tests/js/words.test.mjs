// Numbers, tokens, axes and sentences as people read them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { stairs } from "../../specdemo/ui/static/charts.js";
import { boxed, flow, percent, plural, seconds, spoken } from "../../specdemo/ui/static/format.js";
import { tickLabel, ticks } from "../../specdemo/ui/static/plot.js";
import { nothingDrafted, summary } from "../../specdemo/ui/static/round_summary.js";
import { candidateLines, tokenLines } from "../../specdemo/ui/static/token_words.js";
import { fold, smallRace } from "./recordings.mjs";

test("numbers", () => {
  assert.deepEqual([null, 0, 0.0005, 0.005, 0.5, 0.9996].map(percent), [
    "–",
    "0 %",
    "< 0.1 %",
    "0.5 %",
    "50 %",
    "100 %",
  ]);
  assert.deepEqual([0.0012, 0.25, 1.5, 150].map(seconds), ["1.2 ms", "250 ms", "1.50 s", "150 s"]);
  assert.deepEqual([plural(1, "token"), plural(0, "token")], ["1 token", "0 tokens"]);
});

test("tokens: nothing invisible, nothing that turns the line round", () => {
  assert.equal(flow("a\r\nb\t\u202e"), "a\nb    ¤");
  assert.equal(boxed(" word"), "word");
  assert.equal(boxed("  "), "␣␣");
  assert.equal(boxed("\ufffd"), "◌");
  assert.equal(boxed(""), "∅");
  assert.equal(boxed("x".repeat(99)), `${"x".repeat(13)}…`);
  assert.equal(boxed("🙂".repeat(9), 3), "🙂🙂…");
  assert.deepEqual(["\n", " ", "", "so"].map(spoken), ["new line", "space", "nothing", "so"]);
});

test("joiners are part of the text, what turns a line round is not", () => {
  const family = "👩‍👩‍👧‍👦";
  const word = "می\u200cخواهم"; // Persian, with a joiner that keeps two letters apart
  for (const text of [family, "🏳️‍🌈", word, "क्\u200dष"]) assert.equal(flow(text), text);
  assert.equal(boxed(` ${family}`), family);
  assert.equal(boxed(family.repeat(4), 3), `${family.repeat(2)}…`, "no family is cut apart");
  assert.equal(boxed("\u200d"), "◌");
  for (const control of "\u061c\u200b\u200e\u200f\u202a\u202e\u2066\u2069\ufeff\u0007\u009b")
    assert.equal(flow(`a${control}b`), "a¤b", control.codePointAt(0).toString(16));
});

test("axes: round steps, whole numbers for what is counted", () => {
  assert.deepEqual(ticks(100, 4), [0, 25, 50, 75, 100]);
  assert.deepEqual(ticks(3, 4, true), [0, 1, 2, 3]);
  assert.deepEqual(ticks(1, 4), [0, 0.25, 0.5, 0.75, 1]);
  for (let high = 1; high < 200; high++)
    assert.ok(ticks(high, 4, true).every(Number.isInteger), `up to ${high}`);
  assert.deepEqual([0, 0.25, 0.5, 2.5, 30, 149.6].map(tickLabel), [
    "0",
    "0.25",
    "0.5",
    "2.5",
    "30",
    "150",
  ]);
});

test("a jump of several tokens is one stair", () => {
  const points = stairs([{ t: 0 }, { t: 1 }, { t: 1 }]);
  assert.deepEqual(points, [
    [0, 1],
    [1, 1],
    [1, 2],
    [1, 3],
  ]);
});

test("what happened in a round", () => {
  const trace = fold(smallRace());
  const [first, second] = trace.rounds;
  assert.equal(summary(trace, first, "denoise"), "Denoising: 3 positions at once, 1 step.");
  assert.equal(
    summary(trace, first, "draft"),
    "The drafter proposed 4 tokens in a tree in 10.0 ms. Next, the target verifies all of them in one pass.",
  );
  assert.equal(
    summary(trace, first, "verify"),
    "The drafter proposed 4 tokens in a tree in 10.0 ms. The target verified 4 draft tokens (8 rows with the anchor and padding) in one pass of 25.0 ms and accepted 2. It replaced the first rejected token by “t4”.",
  );
  assert.equal(
    summary(trace, second, "verify"),
    "Nothing was drafted (it does not pay). The target's pass of 1 row took 0.0 ms. It generated “t5” itself.",
  );
});

test("what a round without a draft says in every view", () => {
  const [first, second] = fold(smallRace()).rounds;
  assert.equal(nothingDrafted(first, [first, second]), null);
  const alone =
    "Nothing was drafted in this round (it does not pay): the target generated one token alone.";
  assert.equal(nothingDrafted(second, [first, second]), `${alone} Choose another round above.`);
  assert.equal(nothingDrafted(second, [second]), alone);
});

test("who filled in a token: a denoising step or the Markov head", () => {
  const trace = fold(smallRace());
  const [{ frames }] = trace.rounds;
  frames.push({ ...frames[0], step: 1, label: "Markov head" });
  const line = (step) =>
    tokenLines(trace, { ...trace.spec[1], step }, 1).find((text) => /unmasked|chosen/.test(text));
  assert.equal(line(0), "unmasked at denoising step 1");
  assert.equal(line(1), "chosen by the Markov head, after denoising");
});

test("lines about a token and about a candidate", () => {
  const trace = fold(smallRace());
  const token = tokenLines(trace, trace.spec[1], 1);
  assert.deepEqual(token[1], ["accepted: a draft token that the target accepted", "accepted"]);
  assert.ok(token.includes("round 1 of 2"));
  const candidate = candidateLines(trace, trace.rounds[0], 2);
  assert.deepEqual(candidate[0], ["nine", "head"]);
  assert.deepEqual(candidate[1], ["rejected: the target chose another token here", "rejected"]);
  assert.ok(candidate.includes("depth 3 · from block"));
  assert.ok(candidate.includes("the target's own choice here: “#4”"));
});
