// The block strip shows, in every phase of every shipped recording, what its events say.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as strip from "../../specdemo/ui/static/strip_model.js";
import { stripWords } from "../../specdemo/ui/static/strip_words.js";
import { fold, shippedNames, shippedText } from "./recordings.mjs";

const recordings = shippedNames().map((name) => [name, fold(JSON.parse(shippedText(name)).events)]);
const rounds = recordings.flatMap(([name, trace]) =>
  trace.rounds.filter((r) => r.verify).map((round) => ({ name, trace, round })),
);
const PARTS = Array.from({ length: 101 }, (_, i) => i / 100);

test("once judged, the kept cells are the round's accepted tokens, and its own one stands behind", () => {
  for (const { name, round } of rounds) {
    const moment = strip.replayed(round, 1);
    const cells = strip.mainCells(moment);
    const where = `${name}, round ${round.index}`;
    const kept = cells.filter((cell) => cell.verdict === "accepted").map((cell) => cell.id);
    const accepted = round.verify.kept.filter((k) => k.source === "accepted").map((k) => k.id);
    assert.deepEqual(kept, accepted, where);
    const own = strip.targetToken(moment);
    const last = round.verify.kept.at(-1);
    if (last.source === "accepted") assert.equal(own, null, where);
    else assert.deepEqual([own.token.id, own.at], [last.id, accepted.length], where);
    assert.ok(
      cells.every((cell) => cell.verdict !== null),
      `${where}: every cell has a verdict`,
    );
  }
});

test("phases follow each other, and the verdict walks without a step back", () => {
  const order = ["masks", "denoise", "draft", "check", "verdict"];
  for (const { name, round } of rounds) {
    let [phase, upto, walked] = [0, 0, 0];
    for (const part of PARTS) {
      const moment = strip.replayed(round, part);
      const at = order.indexOf(moment.kind);
      assert.ok(at >= phase, `${name}: ${moment.kind} after ${order[phase]}`);
      if (moment.kind === "denoise") {
        assert.ok(moment.upto >= upto);
        upto = moment.upto;
      }
      assert.ok(moment.walked >= walked);
      [phase, walked] = [at, moment.walked];
      const judged = strip.mainCells(moment).filter((cell) => cell.verdict).length;
      assert.ok(judged <= moment.walked, "nothing is judged before the walk has come there");
    }
    assert.equal(walked, Infinity, name);
    const steps = round.timeline.filter((step) => step.kind === "denoise");
    if (steps.length) assert.equal(upto, steps.at(-1).upto, `${name}: all steps were on screen`);
  }
});

test("a replay walks through the rounds on the lane's own clock", () => {
  const [, trace] = recordings.find(([name]) => name === "block");
  for (const round of trace.rounds.filter((r) => r.verify)) {
    const player = { playing: true, t: (round.t0 + round.t1) / 2 };
    const moment = strip.momentOf(trace, player, {}, false);
    assert.equal(moment.round, round);
    assert.equal(moment.kind, "check");
  }
});

test("masks come before guesses, and a step's new guesses stand out", () => {
  const [, trace] = recordings.find(([name]) => name === "specdiff");
  const round = trace.rounds.find((r) => r.frames.length > 1 && r.frames[0].masked.includes(true));
  const masks = strip.mainCells(strip.replayed(round, 0));
  assert.ok(masks.length && masks.every((cell) => cell.masked && cell.id === null));
  const first = strip.mainCells({ round, kind: "denoise", upto: 1, walked: 0 });
  assert.deepEqual(
    first.map((cell) => cell.masked),
    round.frames[0].masked,
  );
  const second = strip.mainCells({ round, kind: "denoise", upto: 2, walked: 0 });
  const left = round.frames[0].masked.flatMap((masked, k) => (masked ? [k] : []));
  for (const k of left) assert.ok(second[k].fresh && !second[k].masked);
});

test("several drafts and a second stage are rows of their own", () => {
  const many = rounds.filter(({ name, round }) => name === "specdiff2" && round.draft.notes.drafts);
  assert.ok(many.length);
  for (const { round } of many) {
    const moment = strip.replayed(round, 1);
    const { drafts } = round.draft.notes;
    const different = new Set(drafts.map((d) => d.ids.join()));
    assert.ok(strip.thinRows(moment).length >= different.size - 1);
    assert.ok(strip.draftInFront(moment) >= 0);
  }
  const staged = rounds.filter(({ name, round }) => name === "d2sd" && round.frames.length > 1);
  assert.ok(staged.length);
  for (const { round } of staged) {
    const rows = strip.thinRows(strip.replayed(round, 1));
    assert.ok(rows.length > 0);
    for (const { label, start } of rows) assert.equal(label, `branch after ${start}`);
  }
});

test("a copied draft is quoted from the text before it", () => {
  const copies = rounds.filter(({ name, round }) => name === "lookup" && round.draft.tokens.length);
  assert.ok(copies.length);
  for (const { trace, round } of copies) {
    const quote = strip.quotation(trace, round);
    const copy = round.draft.tokens.map((id) => trace.word(id)).join("");
    assert.ok(copy.trimStart().startsWith(quote.copy) && quote.copy.trim());
  }
  const [, block] = recordings.find(([name]) => name === "block");
  assert.equal(strip.quotation(block, block.rounds[0]), null);
});

test("every phase has a sentence and a place among the phases", () => {
  for (const { trace, round } of rounds)
    for (const part of PARTS) {
      const moment = strip.replayed(round, part);
      assert.match(stripWords(trace, moment), /^[^]+\.$/);
      const { names, at } = strip.phases(moment);
      assert.ok(names[at]);
    }
});
