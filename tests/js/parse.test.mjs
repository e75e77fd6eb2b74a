// Trace files and addresses.

import assert from "node:assert/strict";
import { test } from "node:test";

import { raceQuery, withRace } from "../../specdemo/ui/static/address.js";
import { typed } from "../../specdemo/ui/static/events.js";
import { MAX_TRACE_BYTES, findInconsistency, parseTrace } from "../../specdemo/ui/static/parse.js";
import { fold, shippedNames, shippedText, smallRace } from "./recordings.mjs";

const file = (version, events) => JSON.stringify({ format: "specdemo-trace", version, events });

test("shipped recordings and all their beginnings are traces", () => {
  for (const name of shippedNames()) {
    const { events, fault } = parseTrace(shippedText(name));
    assert.equal(fault, undefined, name);
    for (let end = 1; end <= events.length; end++)
      assert.equal(findInconsistency(events.slice(0, end)), null, `${name} up to ${end}`);
  }
});

test("what is no trace is refused in one sentence", () => {
  for (const [text, words] of [
    ["", "not JSON"],
    ["[]", "not a SpecDemo trace"],
    ["null", "not a SpecDemo trace"],
    [file(9, [{ kind: "start" }]), "version 9 and this page reads versions 1 and 2"],
    [file("2", [{ kind: "start" }]), 'version "2"'],
    [file(2, []), "begin with its start event"],
    [file(2, [null]), "begin with its start event"],
    [file(2, [{ kind: "start" }, { kind: "toString" }]), "does not know"],
    [file(2, [{ kind: "start" }, { kind: ["done"] }]), "does not know"],
    [file(2, [...smallRace(), ...smallRace()]), "do not fit together"],
    ["x".repeat(MAX_TRACE_BYTES + 1), "larger than 20 MB"],
  ]) {
    const { events, fault } = parseTrace(text);
    assert.equal(events, undefined);
    assert.ok(fault.includes(words), `${fault} should say ${words}`);
  }
});

test("a trace of today comes back as it is", () => {
  const events = smallRace();
  assert.deepEqual(parseTrace(file(2, events)).events, events);
});

test("a race as the query of a link", () => {
  const { start } = fold(smallRace());
  const query = raceQuery(start);
  assert.deepEqual(Object.fromEntries(query), {
    prompt: "Hello",
    method: "best",
    pair: "a pair",
    rule: "match",
    seed: "7",
    temperature: "0.5",
    top_p: "0.9",
    new: "5",
    params: '{"gamma":3,"adaptive":true}',
  });
  assert.equal(raceQuery({ ...start, chosen_dtype: "int4" }).get("dtype"), "int4");
  assert.equal(withRace("?dtype=int4", start).get("dtype"), null, "the next race's usual one");
});

test("the address keeps what stood there, and leaves out a prompt that is too long", () => {
  const start = typed({ kind: "start", prompt: "x".repeat(9000), method: "block" });
  const query = withRace("?__theme=dark&prompt=old", start);
  assert.equal(query.get("__theme"), "dark");
  assert.equal(query.get("method"), "block");
  assert.equal(query.has("prompt"), false);
  assert.equal(withRace("", { ...start, prompt: "a & b" }).get("prompt"), "a & b");
});
