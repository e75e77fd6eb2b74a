// The denoising steps of a round: a table for each block, a row for each step, a column for each
// position; the last row is the target's verdict.

import { STATUS_MARK } from "./candidate_box.js";
import { h } from "./dom.js";
import { nodesAlong } from "./draft_tree.js";
import { boxed, percent, spoken } from "./format.js";
import { MARKOV_HEAD } from "./round_summary.js";

export function denoiseView(trace, round, stage, upto) {
  const frames = stage === "denoise" ? round.frames.slice(0, upto) : round.frames;
  if (!frames.length)
    return [
      h("p", {
        class: "sd-empty",
        text: "This round has no denoising steps to show: nothing was filled in from masks. See the tree for what was proposed.",
      }),
    ];
  const blocks = new Map(); // the steps of one block, whatever each is called
  for (const frame of frames) {
    if (!blocks.has(frame.row)) blocks.set(frame.row, []);
    blocks.get(frame.row).push(frame);
  }
  const many = blocks.size > 1;
  return [...blocks.values()].map((steps) =>
    h("div", { class: "sd-scroll" }, denoiseTable(trace, round, stage, steps, many)),
  );
}

function denoiseTable(trace, round, stage, steps, many) {
  const width = Math.max(...steps.map((frame) => frame.ids.length));
  const head = h(
    "tr",
    {},
    h("th", { scope: "col", text: "step" }),
    Array.from({ length: width }, (_, k) => h("th", { scope: "col", text: `+${k + 1}` })),
  );
  const rows = steps.map((frame, n) => stepRow(trace, frame, steps[n - 1]));
  if (stage === "verify" && round.draft) rows.push(verdictRow(round, steps.at(-1).ids));
  const title = steps[0].label || `block ${steps[0].row + 1}`;
  return h(
    "table",
    { class: "sd-denoise" },
    many ? h("caption", { text: title }) : null,
    h("thead", {}, head),
    h("tbody", {}, rows),
  );
}

/** The block after one step; what was settled or changed since the step `before` stands out. */
function stepRow(trace, frame, before) {
  const head = frame.label === MARKOV_HEAD ? " head" : "";
  const isNew = (k) =>
    !frame.masked[k] && (!before || before.masked[k] || before.ids[k] !== frame.ids[k]);
  return h(
    "tr",
    {},
    h("th", { scope: "row", text: `${frame.step + 1}/${frame.steps}${head}` }),
    frame.ids.map((id, k) => maskCell(trace.word(id), frame.conf[k], frame.masked[k], isNew(k))),
  );
}

function maskCell(word, conf, masked, fresh) {
  const label = `${spoken(word)}, ${percent(conf)}`;
  return h(
    "td",
    {
      class: `sd-cell${masked ? " sd-masked" : fresh ? " sd-fresh" : ""}`,
      style: `--conf:${conf}`,
      "aria-label": masked ? `mask, best guess ${label}` : label,
    },
    h("span", { text: masked ? `▒ ${boxed(word, 8)}` : boxed(word) }),
    h("small", { text: percent(conf) }),
  );
}

function verdictRow(round, ids) {
  return h(
    "tr",
    { class: "sd-verdict" },
    h("th", { scope: "row", text: "target" }),
    nodesAlong(round.draft, ids).map((i) => {
      const status = (i >= 0 && round.verify.status[i]) || null;
      return h("td", {
        class: `sd-v sd-v-${status || "none"}`,
        "data-node": i >= 0 ? i : null,
        tabindex: i >= 0 ? 0 : null,
        text: status ? `${STATUS_MARK[status] || "·"} ${status}` : "not sent",
      });
    }),
  );
}
