// One token looked into: the drafter's and the target's likeliest tokens at its position, side by
// side, and why it was kept.

import { h } from "./dom.js";
import { rejectedAt } from "./draft_tree.js";
import { boxed, percent } from "./format.js";

const SHOWN = 5;

// `best` calibrates these by what was accepted so far: its q is another number
const BEFORE = "drafter's best, before calibration";

/** Candidates [[id, probability], ...] of both models where this token stands; [] if unknown. */
export function candidatesAt(trace, token) {
  const round = trace.rounds[token.round];
  if (!round || !round.verify) return { drafter: [], target: [] };
  const k = token.position - round.first;
  const first = round.frames[0]?.row;
  const frame = round.frames.findLast((f) => f.row === first && f.top[k]?.length);
  return {
    drafter: frame ? frame.top[k].slice(0, SHOWN) : [],
    target: (round.verify.top[k] ?? []).slice(0, SHOWN),
  };
}

/** Both as small bar charts; null where neither is known. */
export function tokenBars(trace, token) {
  const { drafter, target } = candidatesAt(trace, token);
  if (!drafter.length && !target.length) return null;
  const chart = (title, candidates) =>
    candidates.length
      ? h(
          "div",
          { class: "sd-bars-chart" },
          h("strong", { text: title }),
          candidates.map(([id, p]) => barRow(trace.word(id), p, id === token.id)),
        )
      : null;
  return h(
    "div",
    { class: "sd-bars" },
    chart(trace.start.method === "best" ? BEFORE : "drafter's best", drafter),
    chart("target's best", target),
  );
}

const barRow = (word, p, isKept) =>
  h(
    "div",
    { class: `sd-bars-row${isKept ? " sd-bars-kept" : ""}` },
    h("span", { text: `${isKept ? "✓ " : ""}${boxed(word, 12)}` }),
    h("i", { style: `--p:${p}` }),
    h("small", { text: percent(p) }),
  );

/** Why the token is there, in a sentence; empty where there was nothing to decide. */
export function whyKept(trace, token) {
  const { rule } = trace.start;
  const round = trace.rounds[token.round];
  if (!round || !round.draft) return "";
  if (token.source === "accepted") {
    if (rule === "match") return "kept because the target's own choice is the same token";
    if (rule === "ratio" && token.p !== null && token.q)
      return `kept with chance min(1, p/q) = ${percent(Math.min(1, token.p / token.q))}`;
    return `kept by the rule “${rule}”`;
  }
  if (token.source !== "correction") return "";
  const [node] = rejectedAt(round).nodes;
  if (node === undefined) return "";
  const word = boxed(trace.word(round.draft.tokens[node]), 20);
  return `in place of the draft's “${word}”, which the rule “${rule || "match"}” rejected`;
}
