// What decides between several drafts: their scores side by side; and how long a draft is.

import { STATUS_MARK } from "./candidate_box.js";
import { h } from "./dom.js";
import { nodesAlong } from "./draft_tree.js";
import { boxed } from "./format.js";
import { scroller } from "./scroller.js";

const MAX_DRAFTS = 12;
const PATHS = "Paths searched through the lattice, best score first";
const PARALLEL = "Parallel drafts from one pass, by their expected number of accepted tokens.";
const SELECTION = "the one that selection by the target's probabilities (eq. 7) would keep";
const SELECTS =
  "▶ the one that the target's probabilities select (eq. 7); only it can be accepted.";
const WALKS = "The target follows its own choices through all of them at once.";
const IN_TURN = "Each in turn may place the next token (recursive rejection).";

/**
 * Several drafts or searched paths with the score that chose between them; null if there is no
 * choice.
 */
export function draftsTable(trace, round, stage) {
  const { notes } = round.draft;
  const drafts = (notes.drafts || notes.paths || []).slice(0, MAX_DRAFTS);
  if (drafts.length < 2) return null;
  const seen = stage === "verify";
  const { chosen, selected, caption } = notes.drafts
    ? choice(trace, round, drafts, seen)
    : { chosen: notes.path, selected: -1, caption: PATHS };
  const columns = scoreColumns(
    drafts,
    drafts.some((d) => d.target_score !== null),
    seen,
  );
  const mark = (i) => (i === chosen ? "▶ " : "") + (i === selected ? "◇ " : "");
  const row = (d, i) =>
    h(
      "tr",
      { class: i === chosen ? "sd-chosen" : "" },
      h("th", { scope: "row", text: `${mark(i)}${i + 1}` }),
      columns.map(({ scores }) => scoreCell(scores[i], scores)),
      h("td", {}, draftChips(trace, round, d.ids, seen)),
    );
  const names = ["", ...columns.map(({ name }) => name), "tokens"];
  return scroller(
    {},
    h(
      "table",
      { class: "sd-drafts" },
      h("caption", { text: caption }),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          names.map((text) => h("th", { scope: "col", text })),
        ),
      ),
      h("tbody", {}, drafts.map(row)),
    ),
  );
}

/**
 * Which of the drafts the rule used, which one SpecDiff-2's selection by the target (eq. 7) would
 * have, as far as that is known at this stage (-1: it is not), and what the table shows.
 */
export function choice(trace, round, drafts, seen) {
  const { rule, sampling } = trace.start;
  const { notes } = round.draft;
  const greedy = sampling.temperature < 1e-5;
  const selects = rule === "point-mass" && !greedy;
  const how = selects ? SELECTS : rule === "ratio" && !greedy ? IN_TURN : WALKS;
  if (!seen) return { chosen: -1, selected: -1, caption: `${PARALLEL} ${how}` };
  if (selects) return { chosen: notes.chosen, selected: -1, caption: `${PARALLEL} ${how}` };
  const counts = drafts.map((d) => acceptedOf(round, d.ids));
  const chosen = counts.indexOf(Math.max(...counts));
  // greedy: every p is 0 or 1, so the selection is the draft that was accepted furthest
  const selected = greedy ? chosen : (notes.selection ?? -1);
  const other = selected < 0 ? "" : ` ◇ ${SELECTION} (${counts[selected]} accepted).`;
  return { chosen, selected, caption: `${PARALLEL} ${how} ▶ accepted furthest.${other}` };
}

/** How many of a draft's tokens were accepted, from the first on. */
function acceptedOf({ draft, verify }, ids) {
  const nodes = nodesAlong(draft, ids);
  const end = nodes.findIndex((i) => !["accepted", "dropped"].includes(verify.status[i]));
  return end < 0 ? nodes.length : end;
}

function scoreColumns(drafts, byTarget, seen) {
  const drafter = drafts.map((d) => d.score ?? d.drafter_score);
  if (!byTarget) return [{ name: "score", scores: drafter }];
  return [
    { name: "by the drafter", scores: drafter },
    { name: "by the target", scores: drafts.map((d) => (seen ? d.target_score : null)) },
  ];
}

/** A bar as long as the score is high among the others. */
function scoreCell(score, all) {
  if (score === null) return h("td", { text: "–" });
  const known = all.filter((x) => x !== null);
  const low = Math.min(...known);
  const span = Math.max(...known) - low || 1;
  return h(
    "td",
    { class: "sd-score" },
    h("span", { class: "sd-score-bar", style: `width:${8 + (46 * (score - low)) / span}px` }),
    h("span", { text: score.toFixed(2) }),
  );
}

function draftChips(trace, round, ids, seen) {
  const nodes = nodesAlong(round.draft, ids);
  return ids.map((id, k) => {
    const status = (seen && round.verify.status[nodes[k]]) || null;
    const mark = status && status !== "unreached" ? ` ${STATUS_MARK[status] || ""}` : "";
    return h("span", {
      class: `sd-chip sd-chip-${status || "none"}`,
      text: `${boxed(trace.word(id), 10)}${mark}`,
    });
  });
}

// What a controller of the draft length does, by DiffuSpec's parameter `length`.
const CONTROLLERS = {
  accepted: "k follows the mean of accepted tokens, plus δ.",
  corrected:
    "It hardly moves: what counts as generated is the whole draft unless the text ends in it, so its mean, and with it k, stays at the maximum.",
  paper:
    "As printed it hardly moves: both means start at 0, so the first update halves k to its minimum, and as a draft can then be no longer than k, its mean stays there.",
  fixed: "k stays at its maximum.",
};

/** How long the controller of the draft length lets a draft be. */
export function lengthNote({ length, lattice }, controller) {
  if (!length) return null;
  const { k, gen, acc } = length;
  const used = lattice ? lattice.length : 0;
  const short =
    used && used < k ? `, of which the search used ${used}, as the text may end there` : "";
  return h("p", {
    class: "sd-key",
    text: `Draft length: k = ${k} positions this round${short} (running means: generated ${gen.toFixed(1)}, accepted ${acc.toFixed(1)}). ${CONTROLLERS[controller] || ""}`,
  });
}
