// One round opened up: its denoising steps, its lattice of candidates, its tree.

const STATUS_MARK = { accepted: "✓", rejected: "✗", unreached: "·", dropped: "–" };

/** Nodes of the draft along `ids` from the anchor, -1 where the tree does not go there. */
function follow(draft, ids) {
  const out = [];
  let at = -1;
  for (const id of ids) {
    const next =
      at === -2 ? -1 : draft.tokens.findIndex((token, i) => token === id && draft.parent[i] === at);
    out.push(next);
    at = next < 0 ? -2 : next;
  }
  return out;
}

const HEAD = "Markov head"; // drafters/table.py

/** What happened in one sentence. */
function summary(trace, round, stage) {
  const { draft, verify } = round;
  if (stage === "denoise" || !draft) {
    const frame = round.frames[round.frames.length - 1];
    if (!frame) return "The drafter is at work.";
    return `Denoising: ${plural(frame.ids.length, "position")} at once, ${str(frame.label) === HEAD ? "in one pass; then a Markov head lets each word follow from the one before it" : plural(num(frame.steps, 1), "step")}.`;
  }
  const n = draft.tokens.length,
    branches = draft.parent.some((p, i) => p !== i - 1);
  const made = n
    ? `The drafter proposed ${plural(n, "token")}${branches ? " in a tree" : ""} in ${seconds(draft.seconds || (verify && num(verify.draft_seconds)) || 0)}`
    : "Nothing was drafted";
  const why = draft.notes.why ? ` (${str(draft.notes.why)})` : "";
  const hope =
    maybe(draft.notes.expected) !== null
      ? `; ${draft.notes.expected.toFixed(1)} tokens expected`
      : "";
  if (stage === "draft" || !verify)
    return `${made}${why}${hope}. Next, the target checks all of them in one pass.`;
  const own = verify.kept.find(
    (k) => k.source === "correction" || k.source === "bonus" || k.source === "plain",
  );
  const tail = !own
    ? ""
    : own.source === "plain"
      ? ` It wrote “${boxed(own.text || trace.word(own.id))}” itself.`
      : own.source === "bonus"
        ? ` ${branches ? "The branch it followed was right to its end" : "Everything was right"}, so its own next token “${boxed(own.text || trace.word(own.id))}” came free.`
        : ` Then it put its own “${boxed(own.text || trace.word(own.id))}” where the draft went wrong.`;
  const kept = n ? ` and kept ${round.accepted}` : "";
  const cut = verify.cut
    ? ` ${plural(verify.cut, "token")} after the stop ${verify.cut === 1 ? "was" : "were"} dropped.`
    : "";
  return `${made}${why}${hope}. The target read ${plural(verify.rows, "row")} in one pass of ${seconds(num(verify.verify_seconds))}${kept}.${tail}${cut}`;
}

class RoundView {
  constructor(view) {
    this.view = view;
    this.tab = null; // chosen by hand, else by what the method has to show
    this.title = h("h3", { text: "The round, opened up" });
    this.say = h("p", { class: "sd-say" });
    this.body = h("div", {
      class: "sd-stage",
      role: "tabpanel",
      tabindex: 0,
      id: `${view.id}-stage`,
    });
    this.tabs = {};
    const bar = h("div", { class: "sd-tabs", role: "tablist", "aria-label": "Views of the round" });
    for (const [name, label] of [
      ["denoise", "Denoising"],
      ["lattice", "Lattice"],
      ["tree", "Tree"],
    ]) {
      this.tabs[name] = h("button", {
        type: "button",
        role: "tab",
        class: "sd-tab",
        "aria-controls": `${view.id}-stage`,
        "data-tab": name,
        text: label,
        onclick: () => this.choose(name),
      });
      bar.append(this.tabs[name]);
    }
    bar.addEventListener("keydown", (e) => {
      const names = Object.keys(this.tabs),
        step = { ArrowRight: 1, ArrowLeft: -1 }[e.key];
      if (!step) return;
      const next = names[(names.indexOf(this.active()) + step + names.length) % names.length];
      this.choose(next);
      this.tabs[next].focus();
      e.preventDefault();
      e.stopPropagation();
    });
    this.strip = h("div", { class: "sd-strip", "aria-hidden": "true", "data-part": "strip" });
    this.strip.addEventListener("click", (e) => {
      const at = e.target.closest("[data-r]");
      if (at) view.openRound(Number(at.dataset.r));
    });
    this.root = h(
      "section",
      { class: "sd-card sd-rounds", "data-part": "round", "aria-label": "The round, opened up" },
      h(
        "header",
        {},
        this.title,
        h(
          "div",
          { class: "sd-nav" },
          h("button", {
            type: "button",
            class: "sd-btn",
            "aria-label": "Previous round",
            text: "◀ round",
            onclick: () => view.stepRound(-1),
          }),
          h("button", {
            type: "button",
            class: "sd-btn",
            "aria-label": "Next round",
            text: "round ▶",
            onclick: () => view.stepRound(1),
          }),
        ),
      ),
      this.strip,
      this.say,
      bar,
      this.body,
    );
    for (const [on, off] of [
      ["mouseover", "mouseout"],
      ["focusin", "focusout"],
    ]) {
      this.body.addEventListener(on, (e) => {
        const at = e.target.closest("[data-node]");
        if (at && this.round)
          view.tip.show(at, nodeLines(view.trace, this.round, Number(at.dataset.node)));
      });
      this.body.addEventListener(off, () => view.tip.hide());
    }
  }

  choose(name) {
    this.tab = name;
    this.key = null;
    this.view.draw();
  }

  active() {
    if (this.tab) return this.tab;
    const draft = this.round && this.round.draft;
    if (
      draft &&
      (draft.notes.boundaries || draft.notes.drafts || draft.parent.some((p, i) => p !== i - 1))
    )
      return "tree";
    if (draft && draft.notes.lattice) return "lattice";
    return this.round && !this.round.frames.length ? "tree" : "denoise";
  }

  reset() {
    this.key = null;
    this.round = null;
    this.bars = 0;
    this.strip.replaceChildren();
    this.body.replaceChildren();
    this.say.textContent = "";
  }

  /** Bars of the rounds, height = tokens written; those the playhead has not seen checked are places only. */
  drawStrip(current, stage) {
    const { rounds } = this.view.trace;
    for (; this.bars < rounds.length && rounds[this.bars].verify; this.bars++) {
      const r = rounds[this.bars],
        own = r.count - r.accepted;
      this.strip.append(
        h(
          "span",
          { class: "sd-bar", "data-r": this.bars },
          own > 0 ? h("i", { class: "sd-bar-own", style: `height:${own * 6}px` }) : null,
          h("i", { class: "sd-bar-kept", style: `height:${r.accepted * 6}px` }),
        ),
      );
    }
    [...this.strip.children].forEach((bar, i) => {
      const later = i > current || (i === current && stage !== "verify");
      bar.classList.toggle("sd-now", i === current);
      bar.classList.toggle("sd-later", later);
      bar.title = `round ${i + 1}${later ? "" : `: ${plural(rounds[i].count, "token")}`}`;
    });
    const now = this.strip.children[current];
    if (now && this.strip.scrollWidth > this.strip.clientWidth)
      this.strip.scrollLeft = now.offsetLeft - this.strip.clientWidth / 2;
  }

  update(index, stage, upto) {
    const { trace } = this.view;
    const round = trace.rounds[index] || null;
    const key = `${index}|${stage}|${upto}|${this.tab}|${trace.rounds.length}`;
    if (key === this.key) return;
    this.key = key;
    this.round = round;
    this.drawStrip(index, stage);
    this.title.textContent = round
      ? `Round ${index + 1} of ${trace.rounds.length}`
      : "The round, opened up";
    this.say.textContent = round
      ? summary(trace, round, stage)
      : "Run a race or play the recording: each round of drafting and checking is shown here.";
    const active = this.active();
    for (const [name, button] of Object.entries(this.tabs)) {
      button.setAttribute("aria-selected", String(name === active));
      button.tabIndex = name === active ? 0 : -1;
    }
    this.body.setAttribute("aria-label", this.tabs[active].textContent);
    const keep = this.body.scrollLeft,
      held = this.body.contains(document.activeElement);
    const room = this.body.clientWidth || 900;
    this.body.replaceChildren(
      ...(round
        ? { denoise: denoiseView, lattice: latticeView, tree: treeView }[active](
            trace,
            round,
            stage,
            upto,
            room,
          )
        : []),
    );
    this.body.scrollLeft = keep;
    if (held) this.body.focus({ preventScroll: true }); // the node that had it is gone; keys must go on working
  }
}

/** One table per block: a row a step, a column a position; the last row is the target's verdict. */
function denoiseView(trace, round, stage, upto) {
  const frames = stage === "denoise" ? round.frames.slice(0, upto) : round.frames;
  if (!frames.length)
    return [
      h("p", {
        class: "sd-empty",
        text: "This round has no denoising steps to show: nothing was filled in from masks. See the tree for what was proposed.",
      }),
    ];
  const blocks = new Map();
  for (const frame of frames) {
    const key = num(frame.row); // the steps of one block, whatever each is called
    if (!blocks.has(key)) blocks.set(key, []);
    blocks.get(key).push(frame);
  }
  const many = blocks.size > 1;
  return [...blocks.values()].map((steps) =>
    h("div", { class: "sd-scroll" }, denoiseTable(trace, round, stage, steps, many)),
  );
}

function denoiseTable(trace, round, stage, steps, many) {
  const width = Math.max(...steps.map((f) => list(f.ids).length));
  const head = h(
    "tr",
    {},
    h("th", { scope: "col", text: "step" }),
    ...Array.from({ length: width }, (_, k) => h("th", { scope: "col", text: `+${k + 1}` })),
  );
  const rows = steps.map((frame, n) => {
    const before = steps[n - 1];
    return h(
      "tr",
      {},
      h("th", {
        scope: "row",
        text: `${num(frame.step) + 1}/${Math.max(num(frame.steps, 1), num(frame.step) + 1)}${str(frame.label) === HEAD ? " head" : ""}`,
      }),
      ...list(frame.ids).map((id, k) => {
        const masked = Boolean(list(frame.masked)[k]),
          fresh =
            !masked && (!before || Boolean(list(before.masked)[k]) || list(before.ids)[k] !== id);
        const conf = clamp(num(list(frame.conf)[k]), 0, 1);
        return h(
          "td",
          {
            class: `sd-cell${masked ? " sd-masked" : fresh ? " sd-fresh" : ""}`,
            style: `--conf:${conf}`,
            "aria-label": masked
              ? `mask, best guess ${spoken(trace.word(id))}, ${percent(conf)}`
              : `${spoken(trace.word(id))}, ${percent(conf)}`,
          },
          h("span", { text: masked ? `▒ ${boxed(trace.word(id), 8)}` : boxed(trace.word(id)) }),
          h("small", { text: percent(conf) }),
        );
      }),
    );
  });
  if (stage === "verify" && round.draft) {
    const ids = list(steps[steps.length - 1].ids),
      nodes = follow(round.draft, ids);
    rows.push(
      h(
        "tr",
        { class: "sd-verdict" },
        h("th", { scope: "row", text: "target" }),
        ...nodes.map((i) => {
          const status = i >= 0 ? round.verify.status[i] : null;
          return h("td", {
            class: `sd-v sd-v-${status || "none"}`,
            "data-node": i >= 0 ? i : null,
            tabindex: i >= 0 ? 0 : null,
            text: status ? `${STATUS_MARK[status] || "·"} ${status}` : "not sent",
          });
        }),
      ),
    );
  }
  return h(
    "table",
    { class: "sd-denoise" },
    many ? h("caption", { text: str(steps[0].label) || `block ${num(steps[0].row) + 1}` }) : null,
    h("thead", {}, head),
    h("tbody", {}, rows),
  );
}

/** A column a position, a row a candidate, the chosen path drawn through, the target's verdict on each node it saw. */
function latticeView(trace, round, stage, upto, room) {
  const frames = (stage === "denoise" ? round.frames.slice(0, upto) : round.frames).filter(
    (f) => list(f.top).length,
  );
  const notes = stage !== "denoise" && round.draft ? round.draft.notes : {};
  const first = frames.filter((f) => num(f.row) === num(frames[frames.length - 1].row));
  const columns = list(notes.lattice || (first.length ? first[first.length - 1].top : [])).map(
    (column) => list(column).slice(0, 8),
  );
  if (!columns.length)
    return [h("p", { class: "sd-empty", text: "No candidates were recorded for this round." })];
  const X = clamp(room / columns.length, 94, 122),
    W = X - 14,
    H = 34,
    Y = 42,
    top = 26;
  const deep = Math.max(...columns.map((c) => c.length));
  const draft = stage === "denoise" ? null : round.draft;
  const paths = list(notes.paths).map((p) => list(p && p.ids));
  const main = draft ? mainPath(draft).map((i) => draft.tokens[i]) : [];
  const chosen = paths[num(notes.path)] || main;
  const place = (k, id) => list(columns[k]).findIndex((c) => c[0] === id);
  const spot = (k, row) => [k * X + W / 2, top + (row < 0 ? deep : row) * Y + H / 2];
  const line = (ids) =>
    ids
      .slice(0, columns.length)
      .map((id, k) => spot(k, place(k, id)).join(","))
      .join(" ");
  const height = top + (deep + 1) * Y + 30;
  const svg = s("svg", {
    class: "sd-lattice",
    width: columns.length * X,
    height,
    role: "group",
    "aria-label": "Lattice of candidates",
  });
  for (const ids of paths)
    if (ids !== chosen && ids.length > 1)
      svg.append(s("polyline", { class: "sd-way", points: line(ids) }));
  if (chosen.length > 1)
    svg.append(s("polyline", { class: "sd-way sd-way-chosen", points: line(chosen) }));
  const nodeOf = draft ? latticeNodes(draft, columns.length) : () => -1;
  const picked = stage === "verify" ? targetPicks(round) : [];
  columns.forEach((column, k) => {
    svg.append(s("text", { class: "sd-col", x: k * X + W / 2, y: 16, text: `+${k + 1}` }));
    column.forEach(([id, p], row) => {
      const node = nodeOf(k, id),
        status = stage === "verify" && node >= 0 ? round.verify.status[node] : null;
      const on = chosen[k] === id;
      svg.append(
        box(trace, {
          x: k * X,
          y: top + row * Y,
          w: W,
          h: H,
          id,
          p: num(p),
          status,
          node,
          chosen: on,
          pick: picked[k] === id,
        }),
      );
    });
    if (draft && chosen[k] !== undefined && place(k, chosen[k]) < 0) {
      const node = nodeOf(k, chosen[k]);
      svg.append(
        box(trace, {
          x: k * X,
          y: top + deep * Y,
          w: W,
          h: H,
          id: chosen[k],
          p: null,
          status: stage === "verify" && node >= 0 ? round.verify.status[node] : null,
          node,
          chosen: true,
        }),
      );
    }
    if (picked[k] !== undefined)
      svg.append(
        s("text", {
          class: "sd-pick",
          x: k * X + W / 2,
          y: height - 8,
          text: `target: ${boxed(trace.word(picked[k]), 9)}`,
        }),
      );
  });
  const key = h("p", {
    class: "sd-key",
    text: "Rows: candidates by the drafter's probability. Line: the path sent to the target. ✓ kept, ✗ rejected, · not reached; ★ the target's own choice.",
  });
  return [h("div", { class: "sd-scroll" }, svg), key];
}

/** (depth, id) -> node index, preferring nodes the target accepted. */
function latticeNodes(draft, width) {
  const found = new Map();
  draft.tokens.forEach((id, i) => {
    const key = `${draft.depth[i] - 1}:${id}`;
    if (draft.depth[i] <= width && !found.has(key)) found.set(key, i);
  });
  return (k, id) => (found.has(`${k}:${id}`) ? found.get(`${k}:${id}`) : -1);
}

/** The target's own token at each depth along the accepted path. */
function targetPicks(round) {
  const picks = round.verify.picks,
    path = acceptedPath(round);
  return [picks[0], ...path.map((i) => picks[i + 1])].filter(
    (id) => id !== null && id !== undefined,
  );
}

/** A candidate as an SVG box: word, probability, verdict mark. Shape says the verdict too: thick, dashed, or thin outline. */
function box(trace, o) {
  const mark = o.status ? STATUS_MARK[o.status] : "";
  const word = boxed(
    trace.word(o.id),
    Math.floor((o.w - (o.status || o.p === null || o.p === undefined ? 34 : 46)) / 7.4),
  );
  const label = `${spoken(trace.word(o.id))}${o.p === null || o.p === undefined ? "" : `, ${percent(o.p)}`}${o.status ? `, ${o.status}` : ""}${o.chosen ? ", on the path" : ""}`;
  return s(
    "g",
    {
      class: `sd-box sd-box-${o.status || (o.chosen ? "chosen" : "plain")}`,
      transform: `translate(${o.x},${o.y})`,
      role: "img",
      "aria-label": label,
      tabindex: o.node >= 0 ? 0 : null,
      "data-node": o.node >= 0 ? o.node : null,
    },
    s("rect", { width: o.w, height: o.h, rx: 6 }),
    o.p !== null && o.p !== undefined
      ? s("rect", {
          class: "sd-prob",
          x: 4,
          y: o.h - 5,
          width: Math.max(1, (o.w - 8) * clamp(o.p, 0, 1)),
          height: 3,
          rx: 1,
        })
      : null,
    s("text", { class: "sd-word", x: 7, y: o.h / 2 + 4, text: word }),
    s("text", {
      class: "sd-mark",
      x: o.w - 5,
      y: o.h / 2 + 4,
      text: `${o.pick ? "★" : ""}${mark || (o.p !== null && o.p !== undefined ? percent(o.p) : "")}`,
    }),
  );
}
