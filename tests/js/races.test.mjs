// What this browser keeps of the races of a visit.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  MOST_RACES,
  keepRaces,
  keptRaces,
  nameOf,
  racesCsv,
  summaryOf,
  withLatest,
} from "../../specdemo/ui/static/races.js";
import { fold, shippedText, twoMethods } from "./recordings.mjs";

const NOW = new Date("2026-01-02T03:04:05Z");
const block = () => fold(JSON.parse(shippedText("block")).events);

test("a race's figures are those of its end", () => {
  const trace = block();
  const { result } = JSON.parse(shippedText("block")).events.at(-1);
  const race = summaryOf(trace, "one", NOW);
  assert.equal(race.method, "block");
  assert.equal(race.speedup, result.speedup);
  assert.ok(Math.abs(race.tokens_per_round - result.spec.tokens_per_round) < 1e-3);
  assert.ok(Math.abs(race.tokens_per_second - result.spec.tokens_per_second) < 0.1);
  assert.equal(race.written.length, result.spec.tokens);
  assert.equal(race.plain.length, result.ar.tokens);
  assert.ok(race.accepted[0] > race.accepted.at(-1));
  assert.equal(nameOf(summaryOf(fold(twoMethods()), "two", NOW), 2), "2: best against block");
});

test("races are kept over a reload, the oldest dropped, and what is no race reads as none", () => {
  const kept = {};
  const storage = {
    getItem: (key) => kept[key] ?? null,
    setItem: (key, value) => {
      kept[key] = value;
    },
  };
  let races = [];
  const trace = block();
  for (let i = 0; i < MOST_RACES + 3; i++) races = withLatest(races, summaryOf(trace, `${i}`, NOW));
  assert.equal(races.length, MOST_RACES);
  assert.equal(races[0].id, "3");
  races = withLatest(races, summaryOf(trace, "5", NOW));
  assert.equal(races.length, MOST_RACES, "the same race again takes no second place");
  assert.equal(races.at(-1).id, "5");
  assert.ok(keepRaces(storage, races));
  assert.deepEqual(
    keptRaces(storage).map(({ id, written }) => [id, written]),
    races.map(({ id, written }) => [id, written]),
  );
  const huge = { ...races[0], id: "huge", prompt: "x".repeat(1600000) };
  assert.deepEqual(withLatest(races, huge), [huge], "nothing else fits beside it");
  for (const text of ["", "null", "{", '{"a":1}']) {
    storage.setItem("specdemo-races", text);
    assert.deepEqual(keptRaces(storage), []);
  }
  storage.setItem("specdemo-races", '[{"method":{"x":1},"written":"no","speedup":"2"}]');
  assert.deepEqual(keptRaces(storage)[0].written, []);
  assert.equal(keptRaces(storage)[0].speedup, null);
  const full = {
    setItem() {
      throw new Error("QuotaExceededError");
    },
  };
  assert.equal(keepRaces(full, races), false);
  assert.deepEqual(keptRaces(full), []);
});

test("a table for a spreadsheet: quoted where it must be, nothing in it computes", () => {
  const race = { ...summaryOf(block(), "one", NOW), prompt: '=SUM(A1), "so"\nnew' };
  const [head, ...rest] = racesCsv([race]).split("\r\n");
  assert.equal(head.split(",")[2], "prompt");
  assert.match(rest[0], /^1,2026-01-02T03:04:05\.000Z,"'=SUM\(A1\), ""so""\n/);
  assert.equal(nameOf({ method: "<b>x</b>", left: "ar" }, 1), "1: bx/b", "Plotly reads markup");
});
