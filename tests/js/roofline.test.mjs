// The least that a pass can take, from what it reads and computes and what the machine can do.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  belowFloor,
  costOfRows,
  limits,
  measured,
  words,
} from "../../specdemo/ui/static/roofline.js";
import { fold, smallRace } from "./recordings.mjs";

const ROOFLINE = {
  pass_bytes: 270e6,
  row_flops: 270e6,
  bytes_per_second: 45e9,
  flops_per_second: 900e9,
};

const withRoofline = (roofline) => {
  const [start, ...others] = smallRace();
  const cost_ms = { 64: 30, 1: 6.5, 16: 10 };
  return fold([{ ...start, cost_ms, roofline }, ...others]).start;
};

test("reading takes as long for any number of rows, computing as long as there are rows", () => {
  const least = limits(withRoofline(ROOFLINE));
  assert.deepEqual(
    [least.reading, least.row, least.even].map((x) => Number(x.toPrecision(6))),
    [6, 0.3, 20],
  );
});

test("the sentence has the numbers, and the measured ones beside them", () => {
  const start = withRoofline(ROOFLINE);
  assert.deepEqual(measured(start), [
    [1, 6.5],
    [16, 10],
    [64, 30],
  ]);
  const said = words(start);
  for (const part of [
    "270 MB",
    "6.0 ms",
    "45 GB/s",
    "0.30 ms",
    "about 20 rows",
    "16 rows take 1.5",
  ])
    assert.ok(said.includes(part), `${part} in: ${said}`);
});

test("a pass faster than the least it can take says that the speeds are wrong", () => {
  const busy = withRoofline({ ...ROOFLINE, bytes_per_second: 4e9 });
  assert.deepEqual(belowFloor(busy), [1, 6.5]);
  assert.match(words(busy), /1 row takes 6\.5 ms, less than the 67\.5 ms.*Measure passes again/);
  assert.equal(belowFloor(withRoofline(ROOFLINE)), null);
});

test("the cost of rows is called little only where it was measured so", () => {
  const start = withRoofline(ROOFLINE);
  assert.ok(costOfRows(start).isLittle && words(start).includes("at little cost"));
  start.pass_ms["16"] = 14;
  assert.ok(!costOfRows(start).isLittle && !words(start).includes("little"), words(start));
});

test("a race that does not say it, or nonsense, has none", () => {
  for (const nothing of [undefined, null, {}, { ...ROOFLINE, bytes_per_second: "x" }])
    assert.equal(limits(withRoofline(nothing)), null, JSON.stringify(nothing));
});
