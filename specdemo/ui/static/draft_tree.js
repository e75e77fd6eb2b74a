// A draft as a tree: `parent[i]` is the node before node i, -1 the anchor; parents come first.

/** Distance of each node from the anchor, 1 for its children. */
export function depths(parent) {
  const depth = [];
  for (const p of parent) depth.push(p >= 0 ? depth[p] + 1 : 1);
  return depth;
}

/** Where a candidate is from, in words: a copy continues an n-gram of the text so far. */
export const originName = (origin) => origin.replace(/\b(copy|ngram)\b/, "n-gram");

/** True if some node is not the only child of the node before it. */
export const isBranching = (draft) => draft.parent.some((p, i) => p !== i - 1);

/** Indices of the accepted nodes from the anchor down. */
export function acceptedPath(round) {
  if (!round.verify) return [];
  return round.verify.kept
    .filter((k) => k.source === "accepted" && k.node !== null)
    .map((k) => k.node);
}

/**
 * The branch worth showing in running text: the child that the drafter finds likeliest all the way
 * down.
 */
export function mainPath(draft) {
  const chance = (i) => draft.q[i] ?? -1;
  const path = [];
  let at = -1;
  for (;;) {
    let best = -1;
    draft.parent.forEach((p, i) => {
      if (p === at && (best < 0 || chance(i) > chance(best))) best = i;
    });
    if (best < 0) return path;
    path.push(best);
    at = best;
  }
}

/** Indices of the nodes from the anchor's child down to each leaf. */
export function branches(draft) {
  const inner = new Set(draft.parent);
  const up = (i) => (i < 0 ? [] : [...up(draft.parent[i]), i]);
  return draft.tokens
    .map((_, i) => i)
    .filter((i) => !inner.has(i))
    .map(up);
}

/** Nodes of the draft along `ids` from the anchor, -1 where the tree does not go there. */
export function nodesAlong(draft, ids) {
  const nodes = [];
  let at = -1;
  let left = false;
  for (const id of ids) {
    const here = at;
    const next = left
      ? -1
      : draft.tokens.findIndex((token, i) => token === id && draft.parent[i] === here);
    nodes.push(next);
    at = next;
    left = next < 0;
  }
  return nodes;
}

/**
 * Where a round rejected: the children of its last accepted node, and how many nodes lay behind
 * them.
 */
export function rejectedAt(round) {
  if (!round.draft || !round.verify) return { nodes: [], behind: 0 };
  const { status } = round.verify;
  const last = acceptedPath(round).at(-1) ?? -1;
  const nodes = [];
  round.draft.parent.forEach((p, i) => {
    if (p === last && status[i] === "rejected") nodes.push(i);
  });
  return { nodes, behind: status.filter((word) => word === "unreached").length };
}

/**
 * Row of each node in a drawing: children keep their order, a parent sits on its first child's row.
 */
export function treeRows(draft) {
  const children = new Map([[-1, []]]);
  draft.parent.forEach((p, i) => {
    children.set(i, []);
    children.get(p).push(i);
  });
  const row = new Array(draft.tokens.length).fill(0);
  const opensRow = new Set(children.get(-1).slice(1));
  const stack = [...children.get(-1)].reverse();
  let current = 0;
  while (stack.length) {
    const i = stack.pop();
    if (opensRow.has(i)) current += 1;
    row[i] = current;
    children
      .get(i)
      .slice(1)
      .forEach((k) => opensRow.add(k));
    stack.push(...[...children.get(i)].reverse());
  }
  return { row, count: current + 1 };
}

const BY_VERDICT = { accepted: 0, dropped: 1, rejected: 2 };

/**
 * (depth, token id) -> the node there, or -1. Of several nodes on different branches the one with
 * which the target went furthest, by the verdicts `status` if there are any, else the first.
 */
export function nodesByDepth(draft, status = []) {
  const found = new Map();
  const place = (i) => BY_VERDICT[status[i]] ?? 3;
  draft.tokens.forEach((id, i) => {
    const key = `${draft.depth[i]}:${id}`;
    if (!found.has(key) || place(i) < place(found.get(key))) found.set(key, i);
  });
  return (depth, id) => found.get(`${depth}:${id}`) ?? -1;
}

/** The target's own token at each depth along the accepted path. */
export function targetPicks(round) {
  const { picks } = round.verify;
  return [picks[0], ...acceptedPath(round).map((i) => picks[i + 1])].filter((id) => id != null);
}
