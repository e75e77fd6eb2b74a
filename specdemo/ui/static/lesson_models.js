// What the lesson's experiments compute from a recording. No DOM.

import { acceptedPath } from "./draft_tree.js";
import { sum } from "./figures.js";
import { candidatesAt } from "./token_bars.js";

const MAX_SHOWN = 6; // tokens of the ratio test; the others count as one outcome
const GOOD_CHANCE = 0.6; // of acceptance: both outcomes of the test are seen soon

/** Every token that both models say something of: {drafter, target} candidates and the token. */
const places = (trace) =>
  trace.spec
    .filter((token) => token.round !== null)
    .map((token) => ({ token, ...candidatesAt(trace, token) }))
    .filter(({ drafter, target }) => drafter.length && target.length);

/**
 * The place of a recording at which the ratio test is shown: {token, outcomes}; null if it tells of
 * none. `outcomes` are [{id, p, q}], the last one (id null) all other tokens together.
 */
export function ratioPlace(trace) {
  const all = places(trace).map(({ token, drafter, target }) => ({
    token,
    outcomes: outcomesOf(drafter, target),
  }));
  const distance = ({ outcomes }) => Math.abs(acceptance(outcomes) - GOOD_CHANCE);
  return all.reduce((best, one) => (!best || distance(one) < distance(best) ? one : best), null);
}

/** Target's p and drafter's q of the same tokens, likeliest first. */
export function outcomesOf(drafter, target) {
  const q = new Map(drafter);
  const p = new Map(target);
  const weight = (id) => Math.max(p.get(id) ?? 0, q.get(id) ?? 0);
  const ids = [...new Set([...p.keys(), ...q.keys()])]
    .sort((a, b) => weight(b) - weight(a))
    .slice(0, MAX_SHOWN);
  const known = ids.map((id) => ({ id, p: p.get(id) ?? 0, q: q.get(id) ?? 0 }));
  const left = (key) => Math.max(0, 1 - sum(known, (one) => one[key]));
  return [...known, { id: null, p: left("p"), q: left("q") }];
}

/** The chance that a token drawn from q is accepted: the sum of min(p, q). */
export const acceptance = (outcomes) => sum(outcomes, ({ p, q }) => Math.min(p, q));

/** What is drawn after a rejection: max(0, p − q), scaled to sum to 1. */
export function residual(outcomes) {
  const left = outcomes.map(({ p, q }) => Math.max(0, p - q));
  const all = sum(left, (value) => value);
  return left.map((value) => (all ? value / all : 0));
}

/**
 * One ratio test: {drafted, chance, draw, accepted, kept}, indices of outcomes. `random` gives
 * numbers from 0 to 1.
 */
export function drawRatio(outcomes, random) {
  const drafted = drawn(
    outcomes.map(({ q }) => q),
    random(),
  );
  const { p, q } = outcomes[drafted];
  const chance = Math.min(1, p / q);
  const draw = random();
  const accepted = draw < chance;
  const kept = accepted ? drafted : drawn(residual(outcomes), random());
  return { drafted, chance, draw, accepted, kept };
}

/** The index at which the running sum of these probabilities passes `u`. */
function drawn(chances, u) {
  let left = u * sum(chances, (value) => value);
  const at = chances.findIndex((value) => (left -= value) < 0);
  return at < 0 ? chances.findLastIndex((value) => value > 0) : at;
}

/**
 * Who sees whom in the pass that verifies a tree: rows of the anchor (node -1) and the nodes,
 * {node, sees: a truth value a row, verdict}. All rows see the whole cache.
 */
export function maskRows(round) {
  const { parent } = round.draft;
  const kept = new Set(acceptedPath(round));
  const rows = [-1, ...parent.keys()];
  const above = (node) => (node < 0 ? [-1] : [...above(parent[node]), node]);
  return rows.map((node) => {
    const seen = new Set(above(node));
    return {
      node,
      sees: rows.map((other) => seen.has(other)),
      isKept: node < 0 || kept.has(node),
      verdict: node < 0 ? "anchor" : (round.verify?.status[node] ?? ""),
    };
  });
}

/**
 * A server that decodes for many users at once, from the costs of this recording: a function of
 * their number that gives milliseconds of a pass and tokens per second of all of them, plainly and
 * with drafts, and whether the costs were measured so far. Null where the recording has no costs.
 */
export function batches(trace) {
  const { pass_ms } = trace.start;
  const widths = Object.keys(pass_ms)
    .map(Number)
    .sort((a, b) => a - b);
  const rounds = trace.rounds.filter((r) => r.verify);
  if (widths.length < 2 || !rounds.length) return null;
  const mean = (value) => sum(rounds, value) / rounds.length;
  const rows = mean((r) => r.verify.rows);
  const tokens = mean((r) => r.count);
  const draft = mean((r) => r.verify.draft_seconds * 1000);
  const cost = (n) => passCost(widths, pass_ms, n);
  const most = widths.at(-1);
  return {
    rows,
    tokens,
    most,
    at(users) {
      const plain = (1000 * users) / cost(users);
      // the drafter's pass grows as the target's does
      const drafting = (draft * cost(users)) / cost(1);
      const round = drafting + cost(users * rows);
      const drafted = (1000 * users * tokens) / round;
      return { plain, drafted, gain: drafted / plain, round, isMeasured: users * rows <= most };
    },
  };
}

/** Milliseconds of a pass over n rows: between two measured widths, or on along the last two. */
export function passCost(widths, pass_ms, n) {
  const above = widths.findIndex((width) => width >= n);
  const k = above < 0 ? widths.length - 1 : Math.max(1, above);
  const [a, b] = [widths[k - 1], widths[k]];
  return pass_ms[a] + ((pass_ms[b] - pass_ms[a]) * (n - a)) / (b - a);
}

/** A number that an id always has, without its order. */
const mixed = (id) => Math.imul(id + 1, 0x9e3779b1) >>> 0;

/**
 * Where a person may draft: {token, options}, the target's likeliest tokens at each place of the
 * speculative lane, in an order that says nothing (small ids are common words).
 */
export function draftPlaces(trace) {
  return trace.spec.map((token) => {
    const { target } = token.round === null ? { target: [] } : candidatesAt(trace, token);
    const ids = new Set([token.id, ...target.map(([id]) => id)]);
    return { token, options: [...ids].sort((a, b) => mixed(a) - mixed(b)) };
  });
}

/** The first place from `from` on where `n` tokens in a row leave a choice; -1 if there is none. */
export function nextPlace(all, from, n) {
  for (let i = from; i + n <= all.length; i++)
    if (all.slice(i, i + n).every(({ options }) => options.length > 1)) return i;
  return -1;
}

/** How many of these guesses the target keeps: up to the first that is not its own token. */
export function keptOf(guesses, all, from) {
  const wrong = guesses.findIndex((id, k) => id !== all[from + k].token.id);
  return wrong < 0 ? guesses.length : wrong;
}

/** The fewest users up to `most` from which drafting no longer pays; null if it always does. */
export function breakEvenUsers(costs, most) {
  for (let users = 1; users <= most; users++) if (costs.at(users).gain < 1) return users;
  return null;
}
