// Races for the tests: the shipped recordings, and small ones made by hand.

import { readFileSync, readdirSync } from "node:fs";
import { gunzipSync } from "node:zlib";

import { Trace } from "../../specdemo/ui/static/trace.js";

const ROOT = new URL("../../", import.meta.url);
const SHIPPED = new URL("assets/traces/", ROOT);
const VERSION_1 = new URL("tests/data/traces_v1/", ROOT);
const SMALL_RACE = readFileSync(new URL("small_race.json", import.meta.url), "utf8");

const names = (folder, ending) =>
  readdirSync(folder)
    .filter((name) => name.endsWith(ending))
    .map((name) => name.slice(0, -ending.length))
    .sort();

/** Names of the recordings that ship with the page. */
export const shippedNames = () => names(SHIPPED, ".json");

/** The text of a shipped recording. */
export const shippedText = (name) => readFileSync(new URL(`${name}.json`, SHIPPED), "utf8");

/** The recordings as they were in version 1, by name. */
export function oldRecordings() {
  const read = (name) => gunzipSync(readFileSync(new URL(`${name}.json.gz`, VERSION_1)));
  return Object.fromEntries(
    names(VERSION_1, ".json.gz").map((name) => [name, JSON.parse(read(name))]),
  );
}

/** The events folded into what the views draw. */
export function fold(events) {
  const trace = new Trace();
  for (const event of events) trace.push(event);
  return trace;
}

/** A race of two rounds: a tree of which two tokens are accepted, then a round without a draft. */
export const smallRace = () => JSON.parse(SMALL_RACE);

/** The same race with its method in the left lane too, half as fast there. */
export function twoMethods() {
  const events = smallRace().flatMap((e) => {
    const slow = "clock" in e ? { clock: 2 * e.clock } : {};
    const isRound = ["denoise", "draft", "verify"].includes(e.kind);
    const isSpec = e.kind === "prefill" && e.lane === "spec";
    return isRound || isSpec ? [e, { ...e, ...slow, lane: "against" }] : [e];
  });
  events[0].against = { method: "block", params: { gamma: 3 }, weights: "" };
  const spec = { tokens: 5, seconds: 0.12, tokens_per_second: 33.3333 };
  const left = { spec, ratio: 2, speedup: 0.6, identical: true, first_difference: null };
  Object.assign(events.at(-1).result, { speedup: 1.2, identical: true, against: left });
  return events;
}
