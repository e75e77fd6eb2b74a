// The two lanes: text as it comes, every token with where it came from in colour and in shape.

import { h } from "./dom.js";
import { mainPath, rejectedAt } from "./draft_tree.js";
import { boxed, clamp, flow, plural, rate, spoken } from "./format.js";
import { candidateLines, tokenLines } from "./token_words.js";

const AT_THE_END = 12; // pixels from the end of a text at which it counts as scrolled there

const sign = () => h("span", { class: "sd-sign", "aria-hidden": "true" });

export class Lane {
  constructor(kind, view) {
    this.kind = kind; // ar | spec
    this.view = view;
    this.clock = h("span", { class: "sd-clock", text: "0.00 s" });
    this.speed = h("span", { class: "sd-rate", text: "–" });
    this.count = h("span", { class: "sd-count", text: "0 tokens" });
    this.title = h("h3", { text: "" });
    this.sub = h("p", { class: "sd-sub" });
    this.fill = h("div", { class: "sd-fill" });
    this.text = h("div", {
      class: "sd-text",
      dir: "auto",
      role: "group",
      "aria-label": kind === "ar" ? "Text of plain decoding" : "Text of the speculative lane",
    });
    this.root = this.layout();
    this.text.addEventListener("keydown", (e) => this.onKey(e));
    this.text.addEventListener("click", (e) => {
      const at = e.target.closest("[data-at]");
      if (at) view.openToken(kind, Number(at.dataset.at));
    });
    this.text.addEventListener("scroll", () => this.onScroll());
    new ResizeObserver(() => this.follow()).observe(this.text); // what stands beside it may grow
    view.tip.watch(this.text, "[data-at],[data-node]", (node) => this.describe(node));
    this.reset();
  }

  layout() {
    const meter = (value, label) =>
      h("div", { class: "sd-meter" }, value, h("span", { class: "sd-unit", text: label }));
    return h(
      "article",
      { class: `sd-lane sd-lane-${this.kind}`, "data-part": `lane-${this.kind}` },
      h(
        "header",
        {},
        h("div", { class: "sd-lane-title" }, this.title, this.sub),
        h(
          "div",
          { class: "sd-meters" },
          meter(h("span", { class: "sd-big" }, this.speed), "tokens / s"),
          meter(this.clock, "own clock"),
          meter(this.count, "written"),
        ),
      ),
      h("div", { class: "sd-track", "aria-hidden": "true" }, this.fill),
      this.text,
    );
  }

  reset() {
    this.nodes = []; // one element a token, built once and then only hidden or shown
    this.groups = []; // one element a round
    this.shown = 0; // tokens on screen
    this.roving = 0; // the token that has the tab stop
    this.current = null; // the round under way
    this.differs = -1; // the first different position
    this.held = false; // scrolled away from the newest text by hand
    this.pendingKey = "";
    this.pending = h("span", { class: "sd-pending", "aria-hidden": "true" });
    this.text.replaceChildren(this.pending);
  }

  /** The trace whose rounds wrote this lane. */
  get trace() {
    const { trace } = this.view;
    return (this.kind === "ar" && trace.against) || trace;
  }

  get tokens() {
    return this.kind === "ar" ? this.view.trace.left : this.view.trace.spec;
  }

  name(title, sub) {
    const at = title.indexOf(": ") + 2; // on a phone there is room for the method alone
    const kind = h("span", { class: "sd-lane-kind", text: title.slice(0, at > 1 ? at : 0) });
    this.title.replaceChildren(kind, title.slice(at > 1 ? at : 0));
    this.sub.textContent = sub;
  }

  token(i) {
    const token = this.tokens[i];
    const text = flow(token.text);
    // a leading space stands before the box of the target's own tokens, else a line could end with
    // their sign or a sliver of the box
    const signed = token.source === "correction" || token.source === "bonus";
    const space = signed && text.trim() ? text.length - text.trimStart().length : 0;
    const words = spoken(token.text || this.view.trace.word(token.id));
    const round = token.round === null ? "" : `, round ${token.round + 1}`;
    const node = h(
      "span",
      {
        class: `sd-tok sd-${token.source}${text ? "" : " sd-part"}`,
        "data-at": i,
        role: "button",
        tabindex: i === this.roving ? 0 : -1,
        "aria-label": `${words}, ${token.source}, position ${i}${round}`,
      },
      signed ? sign() : null,
      text.slice(space) || "\u200a◌\u200a",
    );
    return { node, lead: text.slice(0, space) };
  }

  /** Elements for tokens up to n. */
  build(n) {
    for (let i = this.nodes.length; i < n; i++) {
      const { node, lead } = this.token(i);
      this.nodes.push(node);
      const { round: r, source } = this.tokens[i];
      if (r === null) {
        this.pending.before(node);
        continue;
      }
      const group = this.group(r);
      const round = this.trace.rounds[r];
      if (source !== "accepted") this.appendRejected(group, round);
      group.append(lead, node);
      // a round that ended on accepted tokens (cut by a stop)
      if (i === round.first + round.count - 1) this.appendRejected(group, round);
    }
  }

  group(r) {
    if (!this.groups[r]) {
      this.groups[r] = h("span", { class: "sd-round", "data-round": r });
      this.pending.before(this.groups[r]);
    }
    return this.groups[r];
  }

  /** Once a round: the first candidate that the target rejected, and how many more there were. */
  appendRejected(group, round) {
    if (group.dataset.rejected) return;
    group.dataset.rejected = "1";
    const { nodes, behind } = rejectedAt(round);
    if (!nodes.length) return;
    const [first] = nodes;
    const all = nodes.length + behind;
    group.append(
      h(
        "span",
        {
          class: "sd-rejected-here",
          role: "note",
          "aria-label": `${plural(all, "draft token")} rejected here`,
        },
        h("span", {
          class: "sd-tok sd-rejected",
          "data-node": first,
          "data-in": round.index,
          text: boxed(this.view.trace.word(round.draft.tokens[first]), 18),
        }),
        all > 1 ? h("span", { class: "sd-more", text: `+${all - 1}` }) : null,
      ),
    );
  }

  /**
   * Shows n tokens at t seconds; `current` is the round under way, `differs` the first different
   * position, -1 for none.
   */
  update(n, t, current, differs) {
    this.build(n);
    const changed = n !== this.shown || current !== this.current;
    if (n !== this.shown) this.showTokens(n);
    if (changed) this.groups.forEach((g, r) => g.classList.toggle("sd-now", r === current));
    if (differs !== this.differs) {
      this.nodes.forEach((node, i) => node.classList.toggle("sd-differs", i === differs));
      this.differs = differs;
    }
    this.shown = n;
    this.current = current;
    const decoded = Math.max(0, n - 1);
    this.speed.textContent = t > 0 && decoded ? rate(decoded / t) : "–";
    this.clock.textContent = `${t.toFixed(2)} s`;
    this.count.textContent = String(n);
    const goal = Math.max(this.view.goal, 1);
    this.fill.style.width = `${clamp((100 * n) / goal, 0, 100)}%`;
    if (changed) this.follow();
  }

  showTokens(n) {
    for (let i = Math.min(n, this.shown); i < Math.max(n, this.shown); i++)
      this.nodes[i].hidden = i >= n;
    const { rounds } = this.trace;
    this.groups.forEach((group, r) => {
      group.hidden = rounds[r].first >= n;
    });
  }

  /** The newest text stays in sight, until it is scrolled away by hand. */
  follow(again = false) {
    const { text } = this;
    if (again || text.scrollHeight <= text.clientHeight) this.held = false;
    if (!this.held) text.scrollTop = text.scrollHeight;
  }

  onScroll() {
    const { scrollHeight, clientHeight, scrollTop } = this.text;
    this.held = scrollHeight - clientHeight - scrollTop > AT_THE_END;
    this.text.classList.toggle("sd-text-further", scrollTop > 2);
  }

  /** Masks and candidates of the round under way, after the text. */
  showPending(cells) {
    const key = cells.map((c) => c.text + c.kind).join("|");
    if (key === this.pendingKey) return;
    this.pendingKey = key;
    this.pending.replaceChildren(
      ...cells.map((c) =>
        h("span", {
          class: `sd-tok sd-${c.kind}`,
          text: c.kind === "mask" ? "▒▒" : flow(c.text) || "◌",
        }),
      ),
    );
    if (cells.length) this.follow();
  }

  describe(node) {
    const { trace } = this;
    if (node.dataset.node !== undefined)
      return candidateLines(
        trace,
        trace.rounds[Number(node.dataset.in)],
        Number(node.dataset.node),
      );
    const i = Number(node.dataset.at);
    return tokenLines(trace, this.tokens[i], i);
  }

  onKey(e) {
    const at = e.target.closest("[data-at]");
    if (!at) return;
    const i = Number(at.dataset.at);
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[e.key];
    if (e.key === "Enter" || e.key === " ") this.view.openToken(this.kind, i);
    else if (e.key === "Home" || e.key === "End") this.rove(e.key === "Home" ? 0 : this.shown - 1);
    else if (move) this.rove(clamp(i + move, 0, this.shown - 1));
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** Focus moves to token i. */
  rove(i) {
    if (!this.nodes[i]) return;
    if (this.nodes[this.roving]) this.nodes[this.roving].tabIndex = -1;
    this.roving = i;
    this.nodes[i].tabIndex = 0;
    this.nodes[i].focus();
  }
}

/**
 * Cells {kind, text} of what is not verified yet: the block while it is denoised, then the draft's
 * main branch.
 */
export function pendingCells(trace, round, stage, upto) {
  const cell = (id) => ({ kind: "pending-word", text: trace.word(id) });
  if (stage === "draft" && round.draft)
    return mainPath(round.draft).map((i) => cell(round.draft.tokens[i]));
  const block = round.frames.slice(0, upto).filter((f) => f.row === round.frames[0].row);
  const frame = block.at(-1);
  if (!frame) return [];
  return frame.ids.map((id, k) => (frame.masked[k] ? { kind: "mask", text: "" } : cell(id)));
}

/** The kinds of tokens; `onShow(shown)` is called when rejected ones are shown or hidden. */
export function legend(onShow) {
  const entry = (kind, word) =>
    h(
      "li",
      {},
      h("span", { class: `sd-tok sd-${kind}` }, sign(), "word"),
      h("span", { text: word }),
    );
  const show = h("input", {
    type: "checkbox",
    onchange: () => onShow(show.checked),
  });
  return h(
    "div",
    { class: "sd-legend", "data-part": "legend" },
    h(
      "ul",
      { "aria-label": "Legend" },
      entry("accepted", "accepted draft token"),
      entry("correction", "correction"),
      entry("bonus", "bonus (accepted to the end)"),
      entry("plain", "target only"),
      entry("rejected", "rejected (+2: two more)"),
      entry("pending-word", "not verified yet"),
    ),
    h("label", {}, show, " show rejected"),
  );
}
