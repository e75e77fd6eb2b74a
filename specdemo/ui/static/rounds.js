// One round opened up: its denoising steps, its lattice of candidates, its tree.

import { denoiseView } from "./denoise.js";
import { h } from "./dom.js";
import { isBranching } from "./draft_tree.js";
import { plural } from "./format.js";
import { latticeView } from "./lattice.js";
import { nothingDrafted, summary } from "./round_summary.js";
import { candidateLines } from "./token_words.js";
import { treeView } from "./tree.js";

const VIEWS = {
  denoise: { label: "Denoising", draw: denoiseView },
  lattice: { label: "Lattice", draw: latticeView },
  tree: { label: "Tree", draw: treeView },
};
const MIN_FULL_BAR = 9; // tokens; short rounds keep short bars
const DEFAULT_WIDTH = 900; // pixels, while the view is out of sight

export class RoundView {
  constructor(view) {
    this.view = view;
    this.tab = null; // chosen by hand, else by what the method has to show
    this.title = h("h3", { text: "The round, opened up" });
    this.summary = h("p", { class: "sd-say" });
    this.body = h("div", {
      class: "sd-stage",
      role: "tabpanel",
      tabindex: 0,
      id: `${view.id}-stage`,
    });
    this.tabs = Object.fromEntries(Object.keys(VIEWS).map((name) => [name, this.tabButton(name)]));
    this.strip = h("div", { class: "sd-strip", "aria-hidden": "true", "data-part": "strip" });
    this.strip.addEventListener("click", (e) => {
      const at = e.target.closest("[data-r]");
      if (at) view.openRound(Number(at.dataset.r));
    });
    this.root = this.layout();
    view.tip.watch(
      this.body,
      "[data-node]",
      (node) => this.round && candidateLines(view.trace, this.round, Number(node.dataset.node)),
    );
  }

  layout() {
    const step = (label, text, by) =>
      h("button", {
        type: "button",
        class: "sd-btn",
        "aria-label": label,
        text,
        onclick: () => this.view.player.stepRound(by),
      });
    return h(
      "section",
      { class: "sd-card sd-rounds", "data-part": "round", "aria-label": "The round, opened up" },
      h(
        "header",
        {},
        this.title,
        h(
          "div",
          { class: "sd-nav" },
          step("Previous round", "◀ round", -1),
          step("Next round", "round ▶", 1),
        ),
      ),
      this.strip,
      this.summary,
      h(
        "div",
        {
          class: "sd-tabs",
          role: "tablist",
          "aria-label": "Views of the round",
          onkeydown: (e) => this.onTabKey(e),
        },
        Object.values(this.tabs),
      ),
      this.body,
    );
  }

  tabButton(name) {
    return h("button", {
      type: "button",
      role: "tab",
      class: "sd-tab",
      "aria-controls": `${this.view.id}-stage`,
      "data-tab": name,
      text: VIEWS[name].label,
      onclick: () => this.choose(name),
    });
  }

  onTabKey(e) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
    if (!by) return;
    const names = Object.keys(VIEWS).filter((name) => !this.tabs[name].hidden);
    const next = names[(names.indexOf(this.active()) + by + names.length) % names.length];
    this.choose(next);
    this.tabs[next].focus();
    e.preventDefault();
    e.stopPropagation();
  }

  choose(name) {
    this.tab = name;
    this.key = null;
    this.view.draw();
  }

  /** Of a serving engine's rounds the drafts alone are told: no steps and no candidates. */
  get isServed() {
    return Boolean(this.view.trace.start?.engine);
  }

  /** The name of the view on screen. */
  active() {
    if (this.isServed) return "tree";
    if (this.tab) return this.tab;
    const { draft, frames } = this.round || { draft: null, frames: null };
    if (draft) {
      const { boundaries, drafts, lattice } = draft.notes;
      if (boundaries || drafts || isBranching(draft)) return "tree";
      if (lattice) return "lattice";
    }
    return frames && !frames.length ? "tree" : "denoise";
  }

  reset() {
    this.key = null; // what is on screen, to draw only what changes
    this.round = null; // the round on screen
    this.bars = 0; // rounds that have their bar in the strip
    this.strip.replaceChildren();
    this.body.replaceChildren();
    this.summary.textContent = "";
  }

  /**
   * Bars of the rounds, height = tokens generated; behind the first `seen`, which the playhead has
   * seen verified, they are places only.
   */
  drawStrip(current, seen) {
    const { rounds } = this.view.trace;
    for (; this.bars < rounds.length && rounds[this.bars].verify; this.bars++)
      this.strip.append(roundBar(rounds[this.bars]));
    this.strip.style.setProperty("--most", fullBar(rounds));
    [...this.strip.children].forEach((bar, i) => {
      const later = i >= seen;
      bar.classList.toggle("sd-now", i === current);
      bar.classList.toggle("sd-later", later);
      bar.title = `round ${i + 1}${later ? "" : `: ${plural(rounds[i].count, "token")}`}`;
    });
    const now = this.strip.children[current];
    if (now && this.strip.scrollWidth > this.strip.clientWidth)
      this.strip.scrollLeft = now.offsetLeft - this.strip.clientWidth / 2;
  }

  /**
   * Shows a round (null: none yet) at a stage of it, with its first `upto` denoising steps; `seen`
   * rounds are verified, and `atRest` says that it is not the last of them.
   */
  update(round, { stage, upto, seen, atRest }) {
    const { trace } = this.view;
    const index = round ? round.index : -1;
    const key = `${index}|${stage}|${upto}|${seen}|${atRest}|${this.tab}|${trace.rounds.length}`;
    if (key === this.key) return;
    this.key = key;
    this.round = round;
    this.drawStrip(index, seen);
    this.title.textContent = round
      ? `Round ${index + 1} of ${trace.rounds.length}${atRest ? ", the best one" : ""}`
      : "The round, opened up";
    this.summary.textContent = round
      ? summary(trace, round, stage)
      : "Run a race or play the recording: each round of drafting and verification is shown here.";
    const active = this.active();
    for (const [name, button] of Object.entries(this.tabs)) {
      button.setAttribute("aria-selected", String(name === active));
      button.tabIndex = name === active ? 0 : -1;
      button.hidden = this.isServed && name !== "tree";
    }
    this.body.setAttribute("aria-label", VIEWS[active].label);
    this.drawBody(round ? this.content(active, round, stage, upto) : []);
  }

  content(name, round, stage, upto) {
    const nothing = nothingDrafted(round, this.view.trace.rounds);
    if (nothing) return [h("p", { class: "sd-empty", text: nothing })];
    return VIEWS[name].draw(this.view.trace, round, stage, upto, this.width);
  }

  get width() {
    return this.body.clientWidth || DEFAULT_WIDTH;
  }

  drawBody(content) {
    const { scrollLeft } = this.body;
    const focused = this.body.contains(document.activeElement);
    this.body.replaceChildren(...content);
    this.body.scrollLeft = scrollLeft;
    // the node that had it is gone; keys must go on working
    if (focused) this.body.focus({ preventScroll: true });
  }
}

/** Tokens of a bar as high as the strip: those of the longest round. */
export const fullBar = (rounds) => Math.max(MIN_FULL_BAR, ...rounds.map((r) => r.count));

function roundBar({ index, count, accepted }) {
  const own = count - accepted;
  return h(
    "span",
    { class: "sd-bar", "data-r": index },
    own > 0 ? h("i", { class: "sd-bar-own", style: `--tokens:${own}` }) : null,
    h("i", { class: "sd-bar-kept", style: `--tokens:${accepted}` }),
  );
}
