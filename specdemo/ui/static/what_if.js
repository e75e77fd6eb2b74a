// What a race would have come to with another draft length, tree, drafting or pass cost, or batch:
// its recorded drafts are walked through again, token by token. No DOM.

import { acceptedPath } from "./draft_tree.js";

const MOST_NODES = 63; // of a tree that is grown from recorded candidates

/** What can be asked about this race, or why nothing can: {depth, size, columns, why}. */
export function possible(trace) {
  const checked = trace.rounds.filter((r) => r.verify);
  const drafted = checked.filter((r) => r.draft && r.draft.tokens.length);
  const { baseline_ms, pass_ms, rule, engine } = trace.start;
  if (engine)
    return { why: "The engine that ran this race tells neither its drafts nor its costs." };
  if (!drafted.length) return { why: "Nothing was drafted in this race so far." };
  if (!baseline_ms || !Object.keys(pass_ms).length)
    return { why: "This recording does not hold what a pass of the target costs." };
  const columns = rule === "match" && drafted.every((r) => columnsOf(r).length);
  const depth = Math.max(...drafted.map((r) => Math.max(...r.draft.depth, columnsOf(r).length)));
  return { depth, size: MOST_NODES, columns, why: "" };
}

/**
 * The race again, {rounds, tokens, inside, ms, speedup}: `inside` of its rounds begin within a
 * recorded one. `ask` is {gamma, size, draft, verify, batch}: at most `gamma` positions; `size`
 * nodes grown from the recorded candidates' probabilities, 0 = the recorded draft itself; factors
 * of the drafting and of the pass; streams decoded together.
 */
export function replay(trace, ask) {
  const end = trace.spec.length;
  const out = { rounds: 0, tokens: 0, inside: 0, ms: 0, speedup: null };
  const checked = trace.rounds.filter((r) => r.verify && r.count);
  let at = checked.length ? checked[0].first : end;
  while (at < end) {
    const round = checked.find((r) => at < r.first + r.count);
    if (!round) break;
    const offset = at - round.first;
    const draft = end - at > 1 ? draftedAt(trace, round, offset, ask) : NOTHING;
    const kept = Math.min(draft.accepted + 1, end - at);
    out.rounds += 1;
    out.tokens += kept;
    out.inside += Number(offset > 0);
    out.ms += roundMs(trace, round, draft, ask);
    at += kept;
  }
  const plain = trace.start.baseline_ms * growth(trace.start.pass_ms, 1, ask.batch);
  if (out.ms > 0) out.speedup = (out.tokens * plain) / out.ms;
  return out;
}

const NOTHING = { nodes: 0, accepted: 0 };

/** Nodes that a round beginning `offset` tokens into a recorded one drafts, and those accepted. */
function draftedAt(trace, round, offset, { gamma, size }) {
  if (!round.draft || !round.draft.tokens.length) return NOTHING;
  const columns = columnsOf(round).slice(offset, offset + gamma);
  if (size && trace.start.rule === "match" && columnsOf(round).length) {
    const truth = trace.spec.slice(round.first + offset).map((token) => token.id);
    return grown(columns, truth, size);
  }
  const { depth } = round.draft;
  const nodes = belowKept(round, offset).filter((i) => depth[i] <= offset + gamma);
  return {
    nodes: nodes.length,
    accepted: Math.max(0, Math.min(round.accepted, offset + gamma) - offset),
  };
}

/** The recorded nodes behind the first `offset` accepted ones. */
function belowKept(round, offset) {
  const below = new Set([offset ? acceptedPath(round)[offset - 1] : -1]);
  return round.draft.parent.flatMap((p, i) => (below.has(p) && below.add(i) ? [i] : []));
}

/**
 * The `size` likeliest nodes of the tree over these columns, [[id, probability], ...] each, and how
 * far the target's `truth` is among them: best first, by the product along the path.
 */
export function grown(columns, truth, size) {
  const open = (columns[0] ?? []).map(([id, p]) => ({ p, depth: 1, right: id === truth[0] }));
  let [nodes, accepted] = [0, 0];
  while (nodes < size && open.length) {
    const best = open.reduce((b, node, i) => (node.p > open[b].p ? i : b), 0);
    const [{ p, depth, right }] = open.splice(best, 1);
    nodes += 1;
    if (right) accepted = Math.max(accepted, depth);
    for (const [id, more] of columns[depth] ?? [])
      open.push({ p: p * more, depth: depth + 1, right: right && id === truth[depth] });
  }
  return { nodes, accepted };
}

/** Candidates of each position, as the last denoising step of the round's first block left them. */
function columnsOf({ frames }) {
  const block = frames.filter((frame) => frame.row === frames[0].row);
  return block.at(-1)?.top.filter((column) => column.length) ?? [];
}

function roundMs({ start }, round, draft, { gamma, size, draft: drafting, verify, batch }) {
  const { pass_ms } = start;
  const pass = passMs(pass_ms, batch * (draft.nodes + 1)) * verify;
  if (!draft.nodes) return pass;
  const depth = Math.max(...round.draft.depth);
  const serial = start.method === "ar-draft" && !size; // a pass for each of its tokens
  const part = serial ? Math.min(gamma, depth) / depth : 1;
  const together = growth(pass_ms, depth, batch);
  return pass + round.verify.draft_seconds * 1000 * part * drafting * together;
}

/** How much longer a pass over `batch` times as many rows takes. */
const growth = (costs, rows, batch) => passMs(costs, batch * rows) / passMs(costs, rows);

/**
 * Milliseconds of a pass over so many rows: those of the narrowest measured width that holds them,
 * which no wider one undercuts; beyond the widest, on along the line through the last two.
 */
export function passMs(costs, rows) {
  const known = Object.entries(costs)
    .map(([width, ms]) => [Number(width), ms])
    .sort((a, b) => a[0] - b[0]);
  const fitting = known.filter(([width]) => width >= rows).map(([, ms]) => ms);
  if (fitting.length) return Math.min(...fitting);
  const [[w1, ms1], [w2, ms2]] = known.length > 1 ? known.slice(-2) : [[0, 0], known[0]];
  return ms2 + ((rows - w2) * Math.max(0, ms2 - ms1)) / (w2 - w1);
}
