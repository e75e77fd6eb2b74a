// The denoising steps of a round: a table for each block, a row for each step, a column for each
// position; then the target's verdict on this block, and what the round wrote at these positions.

import { SOURCE_MARK, STATUS_MARK } from "./candidate_box.js";
import { h } from "./dom.js";
import { isBranching, nodesAlong } from "./draft_tree.js";
import { boxed, percent, spoken } from "./format.js";
import { MARKOV_HEAD } from "./round_summary.js";
import { scroller } from "./scroller.js";

export function denoiseView(trace, round, stage, upto) {
  const frames = stage === "denoise" ? round.frames.slice(0, upto) : round.frames;
  if (!frames.length)
    return [
      h("p", {
        class: "sd-empty",
        text: round.draft
          ? "This draft has no denoising steps: it was not filled in from masks. The tree shows what was proposed."
          : "The denoising steps appear here.",
      }),
    ];
  const blocks = new Map(); // the steps of one block, whatever each is called
  for (const frame of frames) {
    if (!blocks.has(frame.row)) blocks.set(frame.row, []);
    blocks.get(frame.row).push(frame);
  }
  const many = blocks.size > 1;
  const tables = [...blocks.values()].map((steps) =>
    scroller({ matters: ".sd-masked" }, denoiseTable(trace, round, stage, steps, many)),
  );
  return [...tables, denoiseKey(round, stage)];
}

function denoiseTable(trace, round, stage, steps, many) {
  const written = stage === "verify" && round.draft ? round.verify.kept.length : 0;
  const width = Math.max(written, ...steps.map((frame) => frame.ids.length));
  const head = h(
    "tr",
    {},
    h("th", { scope: "col", text: "step" }),
    Array.from({ length: width }, (_, k) => h("th", { scope: "col", text: `+${k + 1}` })),
  );
  const rows = steps.map((frame, n) => stepRow(trace, frame, steps[n - 1], stepName(steps, n)));
  if (stage === "verify" && round.draft)
    rows.push(verdictRow(round, steps.at(-1).ids), writtenRow(trace, round, width));
  const title = steps[0].label || `block ${steps[0].row + 1}`;
  return h(
    "table",
    { class: "sd-denoise" },
    many ? h("caption", { text: title }) : null,
    h("thead", {}, head),
    h("tbody", {}, rows),
  );
}

/** Which of a block's denoising steps this is; the Markov head's turn after them is none. */
export function stepName(steps, n) {
  const isHead = (frame) => frame.label === MARKOV_HEAD;
  if (isHead(steps[n])) return MARKOV_HEAD;
  const heads = steps.filter(isHead).length;
  return `${steps[n].step + 1}/${steps[n].steps - heads}`;
}

/** The block after one step; what was settled or changed since the step `before` stands out. */
function stepRow(trace, frame, before, name) {
  const isNew = (k) =>
    !frame.masked[k] && (!before || before.masked[k] || before.ids[k] !== frame.ids[k]);
  return h(
    "tr",
    {},
    h("th", { scope: "row", text: name }),
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

/** The verdict on the chain of these ids, which is one branch where a tree was verified. */
function verdictRow(round, ids) {
  return h(
    "tr",
    { class: "sd-verdict" },
    h("th", { scope: "row", text: isBranching(round.draft) ? "this chain" : "target" }),
    nodesAlong(round.draft, ids).map((i) => {
      const status = (i >= 0 && round.verify.status[i]) || null;
      return h("td", {
        class: `sd-v sd-v-${status || "none"}`,
        "data-node": i >= 0 ? i : null,
        tabindex: i >= 0 ? 0 : null,
        text: status ? `${STATUS_MARK[status] || "·"} ${status}` : "not verified",
      });
    }),
  );
}

/** The tokens that the round wrote, from whichever branch, at the first `width` positions. */
function writtenRow(trace, { verify }, width) {
  const cell = (k) => {
    const kept = verify.kept[k];
    return h("td", {
      class: `sd-w sd-w-${kept ? kept.source : "none"}`,
      text: kept ? `${boxed(kept.text || trace.word(kept.id))} ${SOURCE_MARK[kept.source]}` : "",
    });
  };
  return h(
    "tr",
    { class: "sd-written" },
    h("th", { scope: "row", text: "written" }),
    Array.from({ length: width }, (_, k) => cell(k)),
  );
}

function denoiseKey({ draft }, stage) {
  const words = [
    "Cell: the drafter's best guess at this position and its probability; hatched = still a mask; thick frame = filled in or changed by this step.",
  ];
  if (stage === "verify" && draft) {
    if (isBranching(draft))
      words.push("This chain is one branch of the verified tree; the target may accept another.");
    words.push("Written: ✓ accepted draft token, ▲ the target's correction, + its bonus.");
  }
  return h("p", { class: "sd-key", text: words.join(" ") });
}
