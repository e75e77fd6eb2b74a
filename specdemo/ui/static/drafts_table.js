// What decides between several drafts: their scores side by side; and how long a draft is.

import { STATUS_MARK } from "./candidate_box.js";
import { h } from "./dom.js";
import { nodesAlong } from "./draft_tree.js";
import { boxed } from "./format.js";

const MAX_DRAFTS = 12;

/**
 * Several drafts or searched paths with the score that chose between them; null if there is no
 * choice.
 */
export function draftsTable(trace, round, stage) {
  const { notes } = round.draft;
  const drafts = (notes.drafts || notes.paths || []).slice(0, MAX_DRAFTS);
  if (drafts.length < 2) return null;
  const seen = stage === "verify";
  // where the target's scores chose, they are known only after its pass
  const byTarget = drafts.some((d) => d.target_score !== null);
  const chosen = byTarget && !seen ? -1 : notes.drafts ? notes.chosen : notes.path;
  const columns = scoreColumns(drafts, byTarget, seen);
  const row = (d, i) =>
    h(
      "tr",
      { class: i === chosen ? "sd-chosen" : "" },
      h("th", { scope: "row", text: `${i === chosen ? "▶ " : ""}${i + 1}` }),
      columns.map(({ scores }) => scoreCell(scores[i], scores)),
      h("td", {}, draftChips(trace, round, d.ids, seen)),
    );
  const caption = notes.drafts
    ? "Parallel drafts from one pass, by their expected number of accepted tokens"
    : "Paths searched through the lattice, best score first";
  const names = ["", ...columns.map(({ name }) => name), "tokens"];
  return h(
    "div",
    { class: "sd-scroll" },
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

/** How long the controller of the draft length lets a draft be. */
export function lengthNote({ length, lattice }) {
  if (!length) return null;
  const { k, gen, acc } = length;
  const used = lattice ? lattice.length : 0;
  const short =
    used && used < k ? `, of which the search used ${used}, as the text may end there` : "";
  return h("p", {
    class: "sd-key",
    text: `Adaptive draft length: k = ${k} positions this round${short} (running means: generated ${gen.toFixed(1)}, accepted ${acc.toFixed(1)}).`,
  });
}
