// A race whose trace would be too large is saved in a form that is read again.

import assert from "node:assert/strict";
import { test } from "node:test";

import { parseTrace, traceText } from "../../specdemo/ui/static/parse.js";
import { shorten } from "../../specdemo/ui/static/shorten.js";
import { fold, shippedText } from "./recordings.mjs";

const { events } = JSON.parse(shippedText("specdiff"));
const bytes = (list) => new TextEncoder().encode(traceText(list)).length;
const words = (list) => Object.assign({}, ...list.map((event) => event.vocab || {}));

test("what fits is whole", () => {
  const { events: kept, complete } = shorten(events, bytes(events) + 200);
  assert.deepEqual(kept, events);
  assert.equal(complete, fold(events).rounds.length);
});

for (const share of [0.95, 0.8, 0.65])
  test(`a race of which ${share} fits keeps its tokens, verdicts and words`, () => {
    const limit = Math.floor(share * bytes(events));
    const { events: kept, complete } = shorten(events, limit);
    assert.ok(bytes(kept) <= limit);
    const read = parseTrace(traceText(kept));
    assert.equal(read.fault, undefined);
    assert.ok(complete < fold(events).rounds.length);
    const verdicts = (list) =>
      list
        .filter(({ kind }) => kind === "verify")
        .map((e) => ({ ...e, vocab: null, top: e.round < complete ? e.top : null }));
    assert.deepEqual(verdicts(kept), verdicts(events));
    assert.deepEqual(words(kept), words(events));
    const first = (list) => list.filter((e) => e.kind === "denoise" && e.round < complete);
    assert.deepEqual(first(kept), first(events));
    assert.ok(!kept.some((e) => e.kind === "denoise" && e.round >= complete));
  });

test("what fits in no form is told", () => assert.equal(shorten(events, 1000), null));
