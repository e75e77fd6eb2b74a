// The races of this visit, as this browser keeps them over a reload: figures and times, no drafts.
// No DOM.

import { acceptanceByDepth, speedupSeries, sum } from "./figures.js";
import { boxed, list, maybe, num, record, str } from "./format.js";

export const MOST_RACES = 40;
const MOST_LETTERS = 1500000; // a browser keeps about five million for a page
const KEY = "specdemo-races";
const CSV_COLUMNS = [
  "number",
  "time",
  "prompt",
  "method",
  "parameters",
  "left",
  "pair",
  "rule",
  "temperature",
  "seed",
  "hardware",
  "tokens",
  "seconds",
  "tokens_per_second",
  "speedup",
  "tokens_per_round",
  "accepted_per_round",
  "identical",
  "stopped",
];

const toFour = (value) => Number(value.toFixed(4));
const moments = (tokens) => tokens.map((token) => toFour(token.t));

/** What is kept of a race that has ended. */
export function summaryOf(trace, id, now) {
  const { start, spec, done } = trace;
  const rounds = trace.rounds.filter((r) => r.verify);
  const per = (value) => (rounds.length ? toFour(sum(rounds, value) / rounds.length) : null);
  const seconds = spec.at(-1)?.t ?? 0;
  return {
    id,
    time: now.toISOString(),
    prompt: boxed(start.prompt, 80),
    method: start.method,
    parameters: Object.entries(start.params)
      .map(([name, value]) => `${name} ${value}`)
      .join(", "),
    left: start.against ? start.against.method : "ar",
    pair: start.pair,
    rule: start.rule,
    temperature: start.sampling.temperature,
    seed: start.sampling.seed,
    hardware: start.hardware,
    tokens: spec.length,
    seconds: toFour(seconds),
    tokens_per_second: seconds ? toFour((spec.length - 1) / seconds) : null,
    speedup: done?.speedup ?? speedupSeries(trace).at(-1)?.[1] ?? null,
    tokens_per_round: per((r) => r.count),
    accepted_per_round: per((r) => r.accepted),
    identical: done ? done.identical : null,
    stopped: done ? done.stopped : true,
    written: moments(spec),
    plain: moments(trace.ar),
    accepted: acceptanceByDepth(rounds).map((r) => toFour(r.kept / r.drafted)),
  };
}

/** `races` with this one last, the oldest dropped beyond what is kept. */
export function withLatest(races, race) {
  const kept = [...races.filter(({ id }) => id !== race.id), race].slice(-MOST_RACES);
  while (kept.length > 1 && JSON.stringify(kept).length > MOST_LETTERS) kept.shift();
  return kept;
}

/** The races as they were kept; none where the browser keeps nothing, or something else. */
export function keptRaces(storage) {
  try {
    return list(JSON.parse(storage.getItem(KEY))).map(typedRace);
  } catch {
    return [];
  }
}

/** False where the browser keeps nothing, or has no room left. */
export function keepRaces(storage, races) {
  try {
    storage.setItem(KEY, JSON.stringify(races));
    return true;
  } catch {
    return false;
  }
}

/** A kept race with fields of the right types. */
function typedRace(value) {
  const race = record(value);
  const words = [
    "id",
    "time",
    "prompt",
    "method",
    "parameters",
    "left",
    "pair",
    "rule",
    "hardware",
  ];
  const figures = ["speedup", "tokens_per_second", "tokens_per_round", "accepted_per_round"];
  const numbers = (values) => list(values).map((v) => num(v));
  return {
    ...Object.fromEntries(words.map((key) => [key, str(race[key])])),
    ...Object.fromEntries(figures.map((key) => [key, maybe(race[key])])),
    temperature: num(race.temperature),
    seed: num(race.seed),
    tokens: num(race.tokens),
    seconds: num(race.seconds),
    identical: race.identical === true,
    stopped: race.stopped === true,
    written: numbers(race.written),
    plain: numbers(race.plain),
    accepted: numbers(race.accepted),
  };
}

/** How a race is called in the charts: no markup, as Plotly reads some. */
export function nameOf(race, number) {
  const left = race.left && race.left !== "ar" ? ` against ${race.left}` : "";
  return `${number}: ${race.method}${left}`.replace(/[<>&]/g, "");
}

/** A line a race; a text that a spreadsheet would compute is quoted. */
export function racesCsv(races) {
  const cell = (value) => {
    const text = value === null ? "" : String(value);
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const rows = races.map((race, i) =>
    CSV_COLUMNS.map((key) => cell(key === "number" ? i + 1 : race[key])).join(","),
  );
  return `${[CSV_COLUMNS.join(","), ...rows].join("\r\n")}\r\n`;
}
