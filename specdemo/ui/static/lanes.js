// The two lanes: text as it comes, every token with where it came from in colour and in shape.

const WORDS = {
  first: "first token, from reading the prompt",
  plain: "plain: the target wrote it alone",
  accepted: "accepted: drafted, and the target agreed",
  correction: "correction: the target's own token where the draft was wrong",
  bonus: "bonus: the target's own token after every draft was right",
};
const SHORT = {
  first: "first",
  plain: "plain",
  accepted: "accepted",
  correction: "correction",
  bonus: "bonus",
  rejected: "rejected",
};

/** The branch worth showing in running text: what the method chose, else the likeliest child all the way down. */
function mainPath(draft) {
  const path = [];
  let at = -1;
  for (;;) {
    let best = -1;
    draft.parent.forEach((p, i) => {
      if (p === at && (best < 0 || num(draft.q[i], -1) > num(draft.q[best], -1))) best = i;
    });
    if (best < 0) return path;
    path.push(best);
    at = best;
  }
}

/** What fell at the end of a round: rejected siblings right after the last accepted node, and how many lay behind them. */
function fallen(round) {
  if (!round.draft || !round.verify) return { nodes: [], behind: 0 };
  const path = acceptedPath(round);
  const last = path.length ? path[path.length - 1] : -1;
  const nodes = round.draft.parent
    .map((p, i) => (p === last && round.verify.status[i] === "rejected" ? i : -1))
    .filter((i) => i >= 0);
  return { nodes, behind: round.verify.status.filter((w) => w === "unreached").length };
}

const sign = () => h("span", { class: "sd-sign", "aria-hidden": "true" });

class Lane {
  constructor(kind, view) {
    this.kind = kind;
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
      "aria-label": kind === "ar" ? "Text of the plain lane" : "Text of the drafted lane",
    });
    this.root = h(
      "article",
      { class: `sd-lane sd-lane-${kind}`, "data-part": `lane-${kind}` },
      h(
        "header",
        {},
        h("div", { class: "sd-lane-title" }, this.title, this.sub),
        h(
          "div",
          { class: "sd-meters" },
          this.meter((this.rateBox = h("span", { class: "sd-big" }, this.speed)), "tokens / s"),
          this.meter(this.clock, "own clock"),
          this.meter(this.count, "written"),
        ),
      ),
      h("div", { class: "sd-track", "aria-hidden": "true" }, this.fill),
      this.text,
    );
    this.text.addEventListener("keydown", (e) => this.keys(e));
    this.text.addEventListener("click", (e) => {
      const at = e.target.closest("[data-at]");
      if (at) view.openToken(kind, Number(at.dataset.at));
    });
    for (const [on, off] of [
      ["mouseover", "mouseout"],
      ["focusin", "focusout"],
    ]) {
      this.text.addEventListener(on, (e) => {
        const at = e.target.closest("[data-at],[data-node]");
        if (at) view.tip.show(at, this.describe(at));
      });
      this.text.addEventListener(off, () => view.tip.hide());
    }
    this.reset();
  }

  meter(value, label) {
    return h("div", { class: "sd-meter" }, value, h("span", { class: "sd-unit", text: label }));
  }

  reset() {
    this.nodes = [];
    this.groups = [];
    this.shown = 0;
    this.roving = 0;
    this.ghost = h("span", { class: "sd-ghost", "aria-hidden": "true" });
    this.text.replaceChildren(this.ghost);
  }

  get tokens() {
    return this.view.trace[this.kind];
  }

  token(i) {
    const token = this.tokens[i];
    const text = flow(token.text);
    // a leading space stands before the box of the target's own tokens, else a line could end with their sign or a sliver of the box
    const signed = token.source === "correction" || token.source === "bonus",
      space = signed && text.trim() ? text.length - text.trimStart().length : 0;
    const node = h(
      "span",
      {
        class: `sd-tok sd-${token.source}${text ? "" : " sd-part"}`,
        "data-at": i,
        role: "button",
        tabindex: i === this.roving ? 0 : -1,
        "aria-label": `${spoken(token.text || this.view.trace.word(token.id))}, ${SHORT[token.source]}, position ${i}${token.round === null ? "" : `, round ${token.round + 1}`}`,
      },
      signed ? sign() : null,
      text.slice(space) || "\u200a◌\u200a",
    );
    node.lead = text.slice(0, space);
    return node;
  }

  /** Nodes for tokens up to n, built once and then only hidden or shown. */
  build(n) {
    for (let i = this.nodes.length; i < n; i++) {
      const node = this.token(i);
      this.nodes.push(node);
      const r = this.tokens[i].round;
      if (r === null) {
        this.ghost.before(node);
        continue;
      }
      let group = this.groups[r];
      if (!group) {
        group = this.groups[r] = h("span", { class: "sd-round", "data-round": r });
        this.ghost.before(group);
      }
      const round = this.view.trace.rounds[r];
      if (this.tokens[i].source !== "accepted") this.drop(group, round);
      group.append(node.lead, node);
      if (i === round.first + round.count - 1) this.drop(group, round); // a round that ended on accepted tokens (cut by a stop)
    }
  }

  drop(group, round) {
    if (group.dataset.fallen) return;
    group.dataset.fallen = "1";
    const { nodes, behind } = fallen(round);
    if (!nodes.length) return;
    const some = nodes
      .slice(0, 1)
      .map((i) =>
        h("span", {
          class: "sd-tok sd-rejected",
          "data-node": i,
          "data-in": round.index,
          text: boxed(this.view.trace.word(round.draft.tokens[i]), 18),
        }),
      );
    const more = nodes.length - some.length + behind;
    group.append(
      h(
        "span",
        {
          class: "sd-fallen",
          role: "note",
          "aria-label": `${nodes.length + behind} drafts thrown away here`,
        },
        some,
        more ? h("span", { class: "sd-more", text: `+${more}` }) : null,
      ),
    );
  }

  update(n, t, current, differs) {
    this.build(n);
    const changed = n !== this.shown || current !== this.current;
    if (n !== this.shown) {
      for (let i = Math.min(n, this.shown); i < Math.max(n, this.shown); i++)
        this.nodes[i].hidden = i >= n;
      const rounds = this.view.trace.rounds;
      this.groups.forEach((g, r) => {
        g.hidden = rounds[r].first >= n;
      });
    }
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
    if (changed && this.view.following) this.text.scrollTop = this.text.scrollHeight;
  }

  /** Masks and guesses of the round under way, after the text. */
  ghosts(cells) {
    const key = cells.map((c) => c.text + c.kind).join("|");
    if (key === this.ghostKey) return;
    this.ghostKey = key;
    this.ghost.replaceChildren(
      ...cells.map((c) =>
        h("span", {
          class: `sd-tok sd-${c.kind}`,
          text: c.kind === "mask" ? "▒▒" : flow(c.text) || "◌",
        }),
      ),
    );
    if (cells.length && this.view.following) this.text.scrollTop = this.text.scrollHeight;
  }

  describe(node) {
    const { trace } = this.view;
    if (node.dataset.node !== undefined)
      return nodeLines(trace, trace.rounds[Number(node.dataset.in)], Number(node.dataset.node));
    const i = Number(node.dataset.at),
      token = this.tokens[i];
    const lines = [
      [boxed(token.text || trace.word(token.id), 40), "head"],
      [WORDS[token.source], token.source],
      `position ${i} · token id ${token.id}`,
    ];
    if (token.round !== null) lines.push(`round ${token.round + 1} of ${trace.rounds.length}`);
    if (token.p !== null && token.p !== undefined)
      lines.push(`target's probability p = ${percent(token.p)}`);
    if (token.q !== null && token.q !== undefined)
      lines.push(`drafter's probability q = ${percent(token.q)}`);
    if (token.rank) lines.push(`place ${token.rank} among the drafter's candidates`);
    else if (token.source === "correction") lines.push("not among the drafter's candidates shown");
    if (token.step !== null && token.step !== undefined)
      lines.push(`settled in denoising step ${token.step + 1}`);
    if (token.logprob !== null) lines.push(`log-probability ${token.logprob.toFixed(3)}`);
    if (token.t) lines.push(`at ${seconds(token.t)} of this lane's clock`);
    return lines;
  }

  keys(e) {
    const move = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -10, ArrowDown: 10 }[e.key];
    const at = e.target.closest("[data-at]");
    if (!at) return;
    const i = Number(at.dataset.at);
    if (e.key === "Enter" || e.key === " ") this.view.openToken(this.kind, i);
    else if (e.key === "Home" || e.key === "End") this.rove(e.key === "Home" ? 0 : this.shown - 1);
    else if (move) this.rove(clamp(i + move, 0, this.shown - 1));
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  rove(i) {
    if (!this.nodes[i]) return;
    if (this.nodes[this.roving]) this.nodes[this.roving].tabIndex = -1;
    this.roving = i;
    this.nodes[i].tabIndex = 0;
    this.nodes[i].focus();
  }
}

/** The words about one candidate of a round. */
function nodeLines(trace, round, i) {
  const { draft, verify } = round;
  const lines = [[boxed(trace.word(draft.tokens[i]), 40), "head"]];
  const status = verify && verify.status[i];
  if (status)
    lines.push([
      {
        accepted: "accepted by the target",
        rejected: "rejected: the target chose another token here",
        unreached: "not reached: something before it was rejected",
        dropped: "the target agreed, but the answer had ended before it",
      }[status] || status,
      status,
    ]);
  lines.push(
    `${draft.depth[i]} after the anchor${draft.origin[i] ? ` · from ${draft.origin[i]}` : ""}`,
  );
  if (maybe(draft.q[i]) !== null) lines.push(`drafter's probability q = ${percent(draft.q[i])}`);
  if (verify && maybe(verify.p[i]) !== null)
    lines.push(`target's probability p = ${percent(verify.p[i])}`);
  const pick = verify && verify.picks[draft.parent[i] + 1];
  if (pick !== null && pick !== undefined)
    lines.push(`the target's own choice here: “${boxed(trace.word(pick), 24)}”`);
  return lines;
}

/** One small panel for hover and focus. */
class Tip {
  constructor(root) {
    this.root = root;
    this.box = h("div", { class: "sd-tip", role: "tooltip", hidden: true });
    root.append(this.box);
  }

  show(node, lines) {
    this.box.replaceChildren(
      ...lines.map((line) =>
        Array.isArray(line)
          ? h("div", { class: `sd-tip-${line[1]}`, text: line[0] })
          : h("div", { text: line }),
      ),
    );
    this.box.hidden = false;
    const frame = this.root.getBoundingClientRect(),
      at = node.getClientRects()[0] || node.getBoundingClientRect();
    const left = clamp(
      at.left - frame.left,
      4,
      Math.max(4, frame.width - this.box.offsetWidth - 4),
    );
    const below = at.bottom - frame.top + 6;
    const above = at.top - frame.top - this.box.offsetHeight - 6;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${at.bottom + this.box.offsetHeight + 10 > window.innerHeight && above > 0 ? above : below}px`;
  }

  hide() {
    this.box.hidden = true;
  }
}

/** Masks and guesses of the round under way. */
function ghostCells(trace, round, stage, upto) {
  if (stage === "draft" && round.draft)
    return mainPath(round.draft).map((i) => ({
      kind: "ghost-word",
      text: trace.word(round.draft.tokens[i]),
    }));
  const first = round.frames.length ? num(round.frames[0].row) : 0;
  const frames = round.frames.slice(0, upto).filter((f) => num(f.row) === first);
  const frame = frames[frames.length - 1];
  return frame
    ? list(frame.ids).map((id, k) =>
        list(frame.masked)[k]
          ? { kind: "mask", text: "" }
          : { kind: "ghost-word", text: trace.word(id) },
      )
    : [];
}
