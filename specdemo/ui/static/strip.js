// The block strip: the current round as one line of cells, from masks to the tokens that are kept.

import { h, reducedMotion } from "./dom.js";
import { isBranching } from "./draft_tree.js";
import { flow, plural, seconds } from "./format.js";
import { anchorCell, dressCell, thinRow } from "./strip_cells.js";
import {
  draftInFront,
  mainCells,
  momentOf,
  targetToken,
  phases,
  quotation,
  thinRows,
} from "./strip_model.js";
import { stripWords } from "./strip_words.js";

const FLIGHT_MS = 320;

export class BlockStrip {
  constructor(view) {
    this.view = view;
    this.title = h("h3", { text: "The block" });
    this.phases = h("ol", { class: "sd-phases", "aria-hidden": "true" });
    this.time = h("span", { class: "sd-block-time" });
    this.say = h("p", { class: "sd-block-say" });
    this.quote = h("p", { class: "sd-quote", hidden: true });
    this.grid = h("div", {
      class: "sd-block-grid",
      role: "list",
      "aria-label": "Cells",
      tabindex: -1, // keeps the focus of a branch's mark where a round has none
    });
    this.root = h(
      "section",
      {
        class: "sd-card sd-block",
        "data-part": "block",
        "aria-label": "The block: this round as one line of cells",
      },
      h("header", {}, this.title, this.phases, this.time),
      h("div", { class: "sd-block-words" }, this.say, this.quote),
      h("div", { class: "sd-block-scroll" }, this.grid),
    );
    this.grid.addEventListener("click", (e) => this.onClick(e));
    this.reset();
  }

  reset() {
    this.isTall = false; // rounds of this race have further rows
    this.landed = -1; // index of the last round whose tokens are in the lane
    this.clear();
  }

  /** Shows no round. */
  clear() {
    this.key = null; // what is on screen, to draw only what changes
    this.cells = []; // elements of the main row, kept from step to step so that shades can fade
    this.grid.replaceChildren();
    this.title.textContent = "The block";
    this.say.textContent =
      "Each round of drafting and verification is shown here: of a race as it runs, of a recording as it plays.";
    this.time.textContent = "";
    this.quote.hidden = true;
    this.phases.replaceChildren();
  }

  onClick(e) {
    const { view } = this;
    if (!e.target.closest(".sd-fork")) return;
    view.player.pause();
    view.roundView.choose("tree");
    view.roundView.root.scrollIntoView({ behavior: reducedMotion() ? "auto" : "smooth" });
    view.roundView.tabs.tree.focus({ preventScroll: true });
  }

  /** Draws the moment at the playhead, `state` of stateAtPlayhead. */
  update(state) {
    const { player, trace, running } = this.view;
    const moment = momentOf(trace, player, state, running);
    if (!moment) {
      if (this.key !== null) this.clear(); // before the first round
      return;
    }
    const { round, kind, upto, walked } = moment;
    const best = state.opened !== state.round ? "The best round: " : ""; // the race is at rest
    const { length } = trace.rounds;
    const key = [round.index, kind, upto, walked, round.frames.length, length, best].join();
    if (key === this.key) return;
    this.key = key;
    this.title.textContent = `Round ${round.index + 1} of ${length}`;
    const words = stripWords(trace, moment);
    this.say.textContent = best ? best + words[0].toLowerCase() + words.slice(1) : words;
    this.time.textContent =
      kind === "verdict" && !trace.start.engine ? costWords(trace, round) : "";
    this.drawPhases(moment);
    this.drawCells(moment);
    this.drawQuote(moment);
  }

  drawPhases(moment) {
    const { names, at } = phases(moment);
    this.phases.replaceChildren(
      ...names.map((name, i) =>
        h("li", {
          class: i === at ? "sd-phase-now" : i < at ? "sd-phase-past" : "",
          text: name,
        }),
      ),
    );
  }

  drawCells(moment) {
    const { trace } = this.view;
    const cells = mainCells(moment);
    const own = targetToken(moment);
    const rows = thinRows(moment);
    const columns = Math.max(cells.length, own ? own.at + 1 : 1, ...rows.map(lengthOf));
    this.isTall = this.isTall || rows.length > 0;
    this.root.classList.toggle("sd-block-tall", this.isTall);
    this.grid.classList.toggle("sd-checking", moment.kind === "check");
    this.grid.style.setProperty("--columns", Math.max(columns, 4));
    const focused = this.cells.findIndex((cell) => cell.contains(document.activeElement));
    while (this.cells.length < columns) this.cells.push(h("div", { role: "listitem" }));
    this.cells.length = columns;
    this.cells.forEach((node, k) =>
      dressCell(node, trace, cells[k] ?? null, own && own.at === k ? own.token : null, k),
    );
    const front = draftInFront(moment);
    const name = front ? `draft ${front}` : "after";
    this.grid.replaceChildren(
      anchorCell(trace, moment.round, name),
      ...this.cells,
      ...rows.flatMap((row, r) => thinRow(trace, row, r + 2)),
    );
    if (focused >= 0) this.refocus(focused);
  }

  /** The mark of a branch that had the focus is made anew: at that position, or the first one. */
  refocus(position) {
    const mark = this.cells[position]?.querySelector(".sd-fork");
    (mark ?? this.grid.querySelector(".sd-fork") ?? this.grid).focus({ preventScroll: true });
  }

  drawQuote({ round, kind }) {
    const quote = kind === "masks" || kind === "denoise" ? null : quotation(this.view.trace, round);
    this.quote.hidden = !quote;
    if (quote)
      this.quote.replaceChildren(
        "copied from “…",
        flow(quote.before).replace(/\n/g, " "),
        h("mark", { text: flow(quote.copy).replace(/\n/g, " ") }),
        flow(quote.after).replace(/\n/g, " "),
        "…”",
      );
  }

  /** The kept cells of a round that has just been written move into the lane, in a replay only. */
  land(round, lane) {
    const { player, running, root } = this.view;
    const isNext = round && round.index === this.landed + 1;
    this.landed = round ? round.index : -1;
    if (!isNext || running || !player.playing || reducedMotion() || player.rate > 0.3) return;
    for (let k = 0; k < round.count; k++) {
      const from = this.cells[k]?.getBoundingClientRect();
      const to = lane.nodes[round.first + k]?.getBoundingClientRect();
      if (from && to && from.width && to.width) fly(root, lane.nodes[round.first + k], from, to);
    }
  }
}

const lengthOf = (row) => row.start + row.cells.length;

/** A copy of a token moves from its cell to its place in the text. */
function fly(root, node, from, to) {
  const ghost = node.cloneNode(true);
  for (const name of ["data-at", "role", "tabindex", "aria-label"]) ghost.removeAttribute(name);
  ghost.classList.add("sd-flying");
  ghost.setAttribute("aria-hidden", "true");
  ghost.style.left = `${from.left}px`;
  ghost.style.top = `${from.top}px`;
  root.append(ghost);
  const path = `translate(${to.left - from.left}px, ${to.top - from.top}px)`;
  ghost
    .animate([{ transform: "none" }, { transform: path, opacity: 0.75 }], {
      duration: FLIGHT_MS,
      easing: "ease-in-out",
    })
    .finished.finally(() => ghost.remove());
}

/** What the round took, and what plain decoding takes for as many tokens. */
function costWords({ start }, { verify, count, draft }) {
  const took = verify.draft_seconds + verify.verify_seconds + verify.rest_seconds;
  if (!start.baseline_ms || !draft) return `${seconds(took)} for ${plural(count, "token")}`;
  const plain = (start.baseline_ms * count) / 1000;
  const shape = isBranching(draft) ? " (tree)" : "";
  return `${plural(count, "token")} in ${seconds(took)}${shape}; plain decoding: ${seconds(plain)}`;
}
