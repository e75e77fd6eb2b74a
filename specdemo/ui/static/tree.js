// The tree of candidates, with the scores that decided where it branches.

function treeView(trace, round, stage, upto, room) {
  const { draft, verify } = round;
  if (!draft || stage === "denoise")
    return [
      h("p", { class: "sd-empty", text: "The candidates appear here when denoising is over." }),
    ];
  const out = [draftTable(trace, round, stage), lengthNote(draft.notes)].filter(Boolean);
  if (!draft.tokens.length)
    return [
      ...out,
      h("p", {
        class: "sd-empty",
        text: draft.notes.why
          ? str(draft.notes.why)
          : "Nothing was drafted: the target wrote this token alone.",
      }),
    ];
  const seen = stage === "verify";
  const bounds = list(draft.notes.boundaries).map((r) => num(r));
  const top = bounds.length ? 84 : 26;
  const rows = treeRows(draft);
  const count = Math.max(1, rows.count);
  const deepest = Math.max(...draft.depth) + (seen ? 1 : 0);
  const left = 100,
    X = clamp((room - left - 8) / deepest, 106, 134),
    W = X - 26,
    H = 30,
    Y = 38;
  const x = (depth) => left + (depth - 1) * X,
    y = (row) => top + row * Y;
  const path = new Set(acceptedPath(round));
  const origins = [...new Set(draft.origin.map(str))];
  const svg = s("svg", {
    class: "sd-tree",
    width: x(deepest + 1) + 8,
    height: y(count) + 6,
    role: "group",
    "aria-label": "Tree of candidates",
  });
  boundaryBars(svg, bounds, new Set(list(draft.notes.branches)), (i) => x(i + 1) - 14);
  for (let d = 1; d <= Math.max(...draft.depth); d++)
    if (!bounds.length)
      svg.append(s("text", { class: "sd-col", x: x(d) + W / 2, y: 16, text: `+${d}` }));
  const anchor = trace.spec[round.first - 1];
  svg.append(
    s(
      "g",
      {
        class: "sd-box sd-box-anchor",
        transform: `translate(4,${y(rows.anchor)})`,
        role: "img",
        "aria-label": `anchor: ${anchor ? spoken(anchor.text || trace.word(anchor.id)) : ""}`,
      },
      s("rect", { width: left - 22, height: H, rx: 15 }),
      s("text", {
        class: "sd-word",
        x: 10,
        y: H / 2 + 4,
        text: anchor ? boxed(anchor.text || trace.word(anchor.id), 8) : "anchor",
      }),
    ),
  );
  const edge = (x0, y0, x1, y1, cls) =>
    s("path", { class: cls, d: `M${x0},${y0} C${x0 + 16},${y0} ${x1 - 16},${y1} ${x1},${y1}` });
  draft.tokens.forEach((_, i) => {
    const p = draft.parent[i];
    svg.append(
      edge(
        p < 0 ? left - 18 : x(draft.depth[p]) + W,
        (p < 0 ? y(rows.anchor) : y(rows.row[p])) + H / 2,
        x(draft.depth[i]),
        y(rows.row[i]) + H / 2,
        `sd-edge${seen && path.has(i) ? " sd-edge-kept" : ""}`,
      ),
    );
  });
  draft.tokens.forEach((id, i) => {
    svg.append(
      box(trace, {
        x: x(draft.depth[i]),
        y: y(rows.row[i]),
        w: W,
        h: H,
        id,
        p: maybe(draft.q[i]),
        status: seen ? verify.status[i] : null,
        node: i,
        chosen: false,
        pick: seen && verify.picks[draft.parent[i] + 1] === id,
      }),
    );
    if (origins.length > 1 && str(draft.origin[i]) !== origins[0])
      svg.append(
        s("rect", {
          class: "sd-stripe",
          x: x(draft.depth[i]) - 5,
          y: y(rows.row[i]) + 3,
          width: 4,
          height: H - 6,
          rx: 2,
        }),
      );
  });
  const own = seen && verify.kept.find((k) => k.source === "correction" || k.source === "bonus");
  if (own) ownToken(trace, round, own, rows, { svg, edge, x, y, W, H, left });
  const words = bounds.length
    ? "Bars: how likely the draft breaks right there, r(i) = c₁…cᵢ · (1 − cᵢ₊₁); ▼ = a new branch starts there. "
    : "";
  const stripes =
    origins.length > 1
      ? `Grey stripe on the left: from ${origins.slice(1).join(", ")}; without: from ${origins[0]}. `
      : "";
  const key = h("p", {
    class: "sd-key",
    text: `${words}${stripes}${seen ? `✓ kept, ✗ rejected, · not reached${verify.cut ? ", – dropped after the end" : ""}; ★ the target's own choice; orange or green box = the token the target added.` : "Bar in each box: the drafter's probability."}`,
  });
  return [...out, h("div", { class: "sd-scroll" }, svg), key];
}

/** Row of each node: children keep their order, a parent sits on its first child's row. */
function treeRows(draft) {
  const kids = new Map();
  draft.parent.forEach((p, i) => kids.set(p, [...(kids.get(p) || []), i]));
  const row = new Array(draft.tokens.length).fill(0);
  let next = 0;
  const stack = [...(kids.get(-1) || [])].reverse();
  const fresh = new Set((kids.get(-1) || []).slice(1));
  while (stack.length) {
    const i = stack.pop();
    if (fresh.has(i)) next += 1;
    row[i] = next;
    const mine = kids.get(i) || [];
    mine.slice(1).forEach((k) => fresh.add(k));
    stack.push(...[...mine].reverse());
  }
  return { row, anchor: 0, count: next + 1 };
}

/** The token the target wrote itself, drawn after the last node it kept, on a free row. */
function ownToken(trace, round, own, rows, { svg, edge, x, y, W, H, left }) {
  const path = acceptedPath(round),
    last = path.length ? path[path.length - 1] : -1;
  const depth = last < 0 ? 0 : round.draft.depth[last];
  const from = last < 0 ? rows.anchor : rows.row[last];
  const taken = new Set(round.draft.tokens.map((_, i) => `${round.draft.depth[i]}:${rows.row[i]}`));
  let row = from;
  while (taken.has(`${depth + 1}:${row}`)) row += 1;
  if (row >= rows.count) svg.setAttribute("height", y(row + 1) + 6);
  svg.append(
    edge(
      last < 0 ? left - 18 : x(depth) + W,
      y(from) + H / 2,
      x(depth + 1),
      y(row) + H / 2,
      "sd-edge sd-edge-own",
    ),
  );
  svg.append(
    s(
      "g",
      {
        class: `sd-box sd-box-${own.source}`,
        transform: `translate(${x(depth + 1)},${y(row)})`,
        role: "img",
        "aria-label": `${own.source}: ${spoken(own.text || trace.word(own.id))}`,
      },
      s("rect", { width: W, height: H, rx: 6 }),
      s("text", {
        class: "sd-word",
        x: 7,
        y: H / 2 + 4,
        text: boxed(own.text || trace.word(own.id), Math.floor((W - 26) / 7.4)),
      }),
      s("text", {
        class: "sd-mark",
        x: W - 5,
        y: H / 2 + 4,
        text: own.source === "bonus" ? "+" : "▲",
      }),
    ),
  );
}

function boundaryBars(svg, bounds, branches, at) {
  const high = Math.max(...bounds, 1e-9);
  bounds.forEach((r, i) => {
    const tall = (40 * r) / high,
      chosen = branches.has(i);
    svg.append(
      s("rect", {
        class: `sd-bound${chosen ? " sd-bound-chosen" : ""}`,
        x: at(i) - 7,
        y: 56 - tall,
        width: 14,
        height: Math.max(1, tall),
        role: "img",
        "aria-label": `boundary after ${i}: ${percent(r)}${chosen ? ", branches here" : ""}`,
      }),
    );
    svg.append(s("text", { class: "sd-col", x: at(i), y: 12, text: percent(r) }));
    if (chosen) svg.append(s("text", { class: "sd-branch", x: at(i), y: 72, text: "▼" }));
  });
}

/** Several drafts or searched paths side by side with the score that chose between them. */
function draftTable(trace, round, stage) {
  const { notes } = round.draft,
    seen = stage === "verify";
  const rows = list(notes.drafts || notes.paths).slice(0, 12);
  if (rows.length < 2) return null;
  const judged = rows.some((d) => d && maybe(d.own) !== null); // the target's scores chose; they are known only after its pass
  const chosen = judged && !seen ? -1 : num(notes.drafts ? notes.chosen : notes.path);
  const columns = judged
    ? [
        ["drafter expects", (d) => maybe(d && d.own)],
        ["target promises", (d) => (seen ? maybe(d && d.score) : null)],
      ]
    : [["score", (d) => maybe(d && d.score)]];
  return h(
    "div",
    { class: "sd-scroll" },
    h(
      "table",
      { class: "sd-drafts" },
      h("caption", {
        text: notes.drafts
          ? "Parallel drafts from one pass, by the streak of accepted tokens they promise"
          : "Paths searched through the lattice, best score first",
      }),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col", text: "" }),
          columns.map(([name]) => h("th", { scope: "col", text: name })),
          h("th", { scope: "col", text: "tokens" }),
        ),
      ),
      h(
        "tbody",
        {},
        rows.map((d, i) =>
          h(
            "tr",
            { class: i === chosen ? "sd-chosen" : "" },
            h("th", { scope: "row", text: `${i === chosen ? "▶ " : ""}${i + 1}` }),
            columns.map(([, read]) => scoreCell(read(d), rows.map(read))),
            h("td", {}, draftChips(trace, round, list(d && d.ids), seen)),
          ),
        ),
      ),
    ),
  );
}

/** A bar as long as the score is high among the others. */
function scoreCell(score, all) {
  if (score === null) return h("td", { text: "–" });
  const known = all.filter((x) => x !== null),
    low = Math.min(...known),
    span = Math.max(...known) - low || 1;
  return h(
    "td",
    { class: "sd-score" },
    h("span", { class: "sd-score-bar", style: `width:${8 + (46 * (score - low)) / span}px` }),
    h("span", { text: score.toFixed(2) }),
  );
}

function draftChips(trace, round, ids, seen) {
  const nodes = follow(round.draft, ids);
  return ids.map((id, k) => {
    const status = seen && nodes[k] >= 0 ? round.verify.status[nodes[k]] : null;
    return h("span", {
      class: `sd-chip sd-chip-${status || "none"}`,
      text: `${boxed(trace.word(id), 10)}${status && status !== "unreached" ? ` ${STATUS_MARK[status] || ""}` : ""}`,
    });
  });
}

function lengthNote({ length, lattice }) {
  if (!length || typeof length !== "object") return null;
  const wide = list(lattice).length,
    short =
      wide && wide < num(length.k)
        ? `, of which the search used ${wide}, as the text may end there`
        : "";
  return h("p", {
    class: "sd-key",
    text: `Adaptive draft length: k = ${num(length.k)} positions this round${short} (running means: generated ${num(length.gen).toFixed(1)}, accepted ${num(length.acc).toFixed(1)}).`,
  });
}
