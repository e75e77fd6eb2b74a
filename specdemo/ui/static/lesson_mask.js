// The attention mask of the pass that verifies a tree, with the KV cache beside it: before the
// verdict, and after it.

import { h } from "./dom.js";
import { boxed, plural } from "./format.js";
import { maskRows } from "./lesson_models.js";
import { panel } from "./lesson_panel.js";
import { pickRound } from "./lesson_rounds.js";
import { scroller } from "./scroller.js";

/** Nothing if the recording has no such round. */
export function maskTask(trace, which) {
  const round = pickRound(trace, which);
  if (!round?.draft?.tokens.length || !round.verify) return "";
  const rows = maskRows(round);
  const cached = trace.start.prompt_tokens + Math.max(0, round.first - 1);
  const word = (node) => {
    const token = node < 0 ? trace.spec[round.first - 1] : null;
    return boxed(node < 0 ? token?.text || "…" : trace.word(round.draft.tokens[node]), 12);
  };
  const said = h("p", { class: "sd-answer", role: "status" });
  const grid = h("table", { class: "sd-mask-grid" }, headRow(rows, cached, word));
  const bodies = rows.map((row) => bodyRow(row, rows, word, (text) => (said.textContent = text)));
  grid.append(h("tbody", {}, bodies));
  const cache = h("div", { class: "sd-cache", role: "img" });
  const verdict = h("button", { type: "button", class: "sd-btn" });
  const show = (isJudged) => {
    verdict.textContent = isJudged ? "Before the verdict" : "The verdict";
    verdict.onclick = () => show(!isJudged);
    grid.classList.toggle("sd-judged", isJudged);
    drawCache(cache, rows, cached, isJudged, word);
  };
  show(false);
  return panel(
    `Round ${round.index + 1}: ${plural(rows.length, "row")} in one pass`,
    scroller(
      { class: "sd-scroll sd-mask-scroll", tabindex: 0, "aria-label": "Attention mask" },
      grid,
    ),
    said,
    h("strong", { text: "KV cache" }),
    cache,
    h("div", { class: "sd-choices" }, verdict),
  );
}

function headRow(rows, cached, word) {
  return h(
    "thead",
    {},
    h(
      "tr",
      {},
      h("td", { text: "row ↓ attends to →" }),
      h("th", { scope: "col" }, h("span", { text: `cache (${cached})` })),
      rows.map(({ node }) => h("th", { scope: "col" }, h("span", { text: word(node) }))),
    ),
  );
}

function bodyRow({ node, sees, isKept, verdict }, rows, word, say) {
  const seen = rows.filter((_, k) => sees[k]).map((row) => `“${word(row.node)}”`);
  const tell = () =>
    say(`“${word(node)}” attends to the whole cache and to ${seen.join(", ")}: no other branch.`);
  return h(
    "tr",
    {
      class: isKept ? "sd-row-kept" : "sd-row-lost",
      tabindex: 0,
      onmouseenter: tell,
      onfocus: tell,
    },
    h("th", { scope: "row" }, word(node), h("small", { text: verdict })),
    h("td", { class: "sd-sees", "aria-label": "attends" }),
    sees.map((yes) =>
      h("td", { class: yes ? "sd-sees" : "", "aria-label": yes ? "attends" : "masked" }),
    ),
  );
}

function drawCache(cache, rows, cached, isJudged, word) {
  const kept = rows.filter((row) => row.isKept);
  const block = (text, cls) => h("span", { class: cls, text });
  cache.replaceChildren(
    block(`${cached} earlier tokens`, "sd-cache-old"),
    ...(isJudged ? kept : rows).map((row) =>
      block(word(row.node), row.isKept && isJudged ? "sd-cache-kept" : "sd-cache-new"),
    ),
  );
  const lost = rows.length - kept.length;
  cache.setAttribute(
    "aria-label",
    isJudged
      ? `${cached} earlier tokens and ${plural(kept.length, "kept row")}; ${lost} dropped`
      : `${cached} earlier tokens and ${plural(rows.length, "row")} of this pass`,
  );
  cache.append(
    h("small", {
      text: isJudged
        ? `The rows of the accepted path move together; ${plural(lost, "row")} of rejected branches ${lost === 1 ? "is" : "are"} dropped.`
        : "The pass writes keys and values of every row behind the cache.",
    }),
  );
}
