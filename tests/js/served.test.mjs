// A race that a serving engine ran: unnamed tokens are equal to nothing, no badge is borrowed.
import assert from "node:assert/strict";
import { test } from "node:test";

import { acceptanceByDepth, comparison, UNTOLD } from "../../specdemo/ui/static/figures.js";
import { summary } from "../../specdemo/ui/static/round_summary.js";
import { Trace, firstDifference } from "../../specdemo/ui/static/trace.js";

const ENGINE = { kind: "start", engine: "vLLM 0.32.0", rule: "match" };

function served(comparison_, parted_at = null) {
  const trace = new Trace();
  trace.push(ENGINE);
  trace.push({ kind: "done", result: { served: { comparison: comparison_, parted_at } } });
  return comparison(trace, { ar: 9, spec: 9 }, -1, trace.done);
}

test("what is said of two texts never borrows the word identical", () => {
  assert.equal(served("tokens").word, "the same tokens");
  assert.equal(served("text").word, "the same text");
  assert.equal(served("parted", 7).word, "they part at character 7");
  for (const what of ["tokens", "text", "parted", "none"]) {
    const { word, note, look } = served(what, 3);
    assert.doesNotMatch(word + note, /identical/);
    assert.equal(look, "none");
  }
  assert.match(served("tokens").note, /vLLM 0.32.0 does not promise it/);
});

test("an unnamed token is equal to no other one, and differs from none", () => {
  const trace = new Trace();
  for (const lane of ["ar", "spec"]) trace.push({ kind: "prefill", lane, id: -1, text: lane });
  assert.equal(firstDifference(trace), -1);
});

function round(notes, tokens) {
  const trace = new Trace();
  trace.push(ENGINE);
  trace.push({ kind: "prefill", lane: "spec", id: 1, text: "a" });
  const origin = tokens.map(() => "engine");
  trace.push({
    kind: "draft",
    round: 0,
    tokens,
    parent: tokens.map((_, i) => i - 1),
    origin,
    notes,
  });
  const status = tokens.map((id) => (id < 0 ? "rejected" : "accepted"));
  const kept = [
    { id: 2, text: "b", source: "accepted", node: 0 },
    { id: 3, text: "c", source: "correction", node: null },
  ];
  trace.push({ kind: "verify", round: 0, status, kept, clock: 1 });
  return trace;
}

test("a round of an engine is told without times and with what is not known", () => {
  const told = round({}, [2, -1]);
  const words = summary(told, told.rounds[0], "verify");
  assert.match(words, /drafted 2 tokens.*does not name; it accepted 1/);
  assert.doesNotMatch(words, /ms/);
  assert.deepEqual(
    acceptanceByDepth(told.rounds).map((row) => row.kept),
    [1, 0],
  );
  const untold = round({ why: UNTOLD }, [2]);
  assert.match(summary(untold, untold.rounds[0], "verify"), /taken for one pass.*is not told/);
  assert.deepEqual(acceptanceByDepth(untold.rounds), []);
});
