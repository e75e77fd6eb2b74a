// The block strip without its drawing: which cells a round shows in each of its phases. No DOM.

import { acceptedPath, isBranching, mainPath, nodesAlong } from "./draft_tree.js";
import { clamp } from "./format.js";

// Shares of a round on screen while it is replayed: its parts are not to scale, as drafting is too
// short to be seen; when a round begins and ends is its own clock's.
const MASKED = 0.1;
const DENOISED = 0.44;
const CHECKED = 0.58;
const JUDGED = 0.92;

/**
 * What of which round is on screen: {round, kind, upto, walked}. `kind` is masks, denoise, draft,
 * check or verdict, `upto` how many denoising frames are there, `walked` how many positions are
 * judged.
 */
export function momentOf(trace, player, state, running) {
  const checked = trace.rounds.filter((r) => r.verify);
  if (player.playing && !running && checked.length) {
    const round = checked.find((r) => r.t1 > player.t) ?? checked.at(-1);
    return replayed(round, clamp((player.t - round.t0) / (round.t1 - round.t0 || 1), 0, 1));
  }
  const round = state.opened;
  if (!round) return null;
  const atRest = round !== state.round;
  const upto = state.step ? state.step.upto : 0;
  if (round.verify && (atRest || state.stage === "verify")) return judged(round, Infinity);
  if (state.stage === "draft") return { round, kind: "draft", upto: Infinity, walked: 0 };
  return { round, kind: upto ? "denoise" : "masks", upto, walked: 0 };
}

const judged = (round, walked) => ({ round, kind: "verdict", upto: Infinity, walked });

/** The moment of a checked round, `part` of which has passed. */
export function replayed(round, part) {
  const steps = round.timeline.filter((step) => step.kind === "denoise");
  const moment = (kind, upto = Infinity) => ({ round, kind, upto, walked: 0 });
  if (steps.length && part < MASKED) return moment("masks", 0);
  if (steps.length && part < DENOISED) {
    const share = (part - MASKED) / (DENOISED - MASKED);
    return moment("denoise", steps[Math.floor(share * steps.length)].upto);
  }
  if (round.draft?.tokens.length && !steps.length && part < MASKED + 0.1) return moment("draft");
  if (part < CHECKED) return moment("check");
  const share = Math.min(1, (part - CHECKED) / (JUDGED - CHECKED));
  const walked = Math.ceil(share * (round.accepted + 1));
  return judged(round, walked > round.accepted ? Infinity : walked);
}

/**
 * Nodes of the branch on screen: the one that the drafter finds likeliest, or its chosen draft;
 * once the target judges, the one with which it went furthest.
 */
export function shownPath({ draft, ...round }, isJudged) {
  if (!draft) return [];
  const { drafts, chosen } = draft.notes;
  const picked = drafts && drafts[chosen] ? nodesAlong(draft, drafts[chosen].ids) : null;
  const main = picked && picked.every((i) => i >= 0) ? picked : mainPath(draft);
  if (!isJudged) return main;
  const accepted = acceptedPath(round);
  if (accepted.every((node, k) => main[k] === node)) return main;
  return [...accepted, ...behind(draft, accepted.at(-1))];
}

/** The likeliest branch below a node. */
function behind(draft, top) {
  const parent = draft.parent.map((p) => (p === top ? -1 : p >= 0 && p !== top ? p : -2));
  return mainPath({ ...draft, parent });
}

/** How many other children the node before this one has. */
const siblings = (draft, node) => draft.parent.filter((p) => p === draft.parent[node]).length - 1;

/** Frames of one row, as far as they have come. */
const framesOf = (round, row, upto) => round.frames.slice(0, upto).filter((f) => f.row === row);

/**
 * Cells of the main row: {id, conf, masked, fresh, node, verdict, alternatives}; `verdict` is
 * accepted, rejected, unreached, dropped, or null before it is known.
 */
export function mainCells({ round, kind, upto, walked }) {
  const firstRow = round.frames[0]?.row ?? 0;
  if (kind === "masks" || kind === "denoise") {
    if (kind === "masks") return (round.frames[0]?.ids ?? []).map(() => mask());
    const frames = framesOf(round, firstRow, upto);
    const frame = frames.at(-1);
    const before = frames.at(-2);
    return frame ? frame.ids.map((id, k) => guess(frame, before, id, k)) : [];
  }
  const { draft, verify } = round;
  const isJudged = kind === "verdict" && Boolean(verify);
  const last = framesOf(round, firstRow, Infinity).at(-1);
  return shownPath(round, isJudged).map((node, k) => ({
    id: draft.tokens[node],
    conf: draft.q[node] ?? (last && last.ids[k] === draft.tokens[node] ? last.conf[k] : null),
    masked: false,
    fresh: false,
    node,
    verdict: isJudged && k < walked ? (verify.status[node] ?? null) : null,
    alternatives: siblings(draft, node),
  }));
}

const mask = () => ({
  id: null,
  conf: null,
  masked: true,
  fresh: false,
  node: -1,
  verdict: null,
  alternatives: 0,
});

function guess(frame, before, id, k) {
  const isNew = !before || before.masked[k] || before.ids[k] !== id;
  return { ...mask(), id, conf: frame.conf[k], masked: frame.masked[k], fresh: isNew };
}

/**
 * The target's own token of a judged round and the column where it stands: {token, at}; null before
 * the walk has come there.
 */
export function targetToken({ round, kind, walked }) {
  if (kind !== "verdict" || walked <= round.accepted) return null;
  const token = round.verify.kept.find((k) => k.source !== "accepted");
  return token ? { token, at: round.accepted } : null;
}

/** Further rows {label, start, cells}: other drafts, or what was drafted anew from a boundary. */
export function thinRows(moment) {
  const { round, kind, upto } = moment;
  const drafts = round.draft?.notes.drafts;
  if (drafts && (kind === "draft" || kind === "check" || kind === "verdict"))
    return otherDrafts(moment, drafts);
  const firstRow = round.frames[0]?.row ?? 0;
  const later = new Map(); // the newest frame of each row
  for (const frame of round.frames.slice(0, upto))
    if (frame.row !== firstRow) later.set(frame.row, frame);
  const rows = [...later.values()].map((frame) => {
    const start = Math.min(Number(/\d+$/.exec(frame.label)?.[0] ?? 0), frame.ids.length);
    const nodes = round.draft && kind !== "denoise" ? nodesAlong(round.draft, frame.ids) : [];
    const cells = frame.ids.map((id, k) => ({
      id,
      conf: frame.conf[k],
      verdict: statusOf(moment, nodes[k] ?? -1, k),
    }));
    return { label: frame.label, start, cells: cells.slice(start) };
  });
  return rows.sort((a, b) => b.start - a.start); // as in the tree: the last boundary on top
}

function otherDrafts(moment, drafts) {
  const { round } = moment;
  const shown = shownPath(round, moment.kind === "verdict" && Boolean(round.verify));
  const key = (nodes) => nodes.join();
  const rows = drafts.map(({ ids }, i) => ({ ids, i, nodes: nodesAlong(round.draft, ids) }));
  return rows
    .filter(({ nodes }) => key(nodes.slice(0, shown.length)) !== key(shown))
    .map(({ ids, i, nodes }) => ({
      label: `draft ${i + 1}`,
      start: 0,
      cells: ids.map((id, k) => ({
        id,
        conf: nodes[k] >= 0 ? round.draft.q[nodes[k]] : null,
        verdict: statusOf(moment, nodes[k], k),
      })),
    }));
}

const statusOf = ({ round, kind, walked }, node, k) =>
  kind === "verdict" && node >= 0 && k < walked ? (round.verify.status[node] ?? null) : null;

/** Which of the drafts is in the main row, from 1; 0 where there is only one. */
export function draftInFront(moment) {
  const drafts = moment.round.draft?.notes.drafts;
  if (!drafts || moment.kind === "masks" || moment.kind === "denoise") return 0;
  const shown = shownPath(moment.round, moment.kind === "verdict");
  return (
    1 + drafts.findIndex(({ ids }) => nodesAlong(moment.round.draft, ids).join() === shown.join())
  );
}

/**
 * Where a copied draft, or as much of its beginning as there is, stood in the text so far: {before,
 * copy, after} of the last such place, or null.
 */
export function quotation(trace, round) {
  const { draft } = round;
  if (!draft || !draft.tokens.length || isBranching(draft)) return null;
  if (!isCopied(draft)) return null;
  const words = draft.tokens.map((id) => trace.word(id));
  const written = trace.spec.slice(0, round.first).map((token) => token.text);
  const text = `${trace.start.prompt}\n${written.join("")}`;
  for (let n = words.length; n > 0; n--) {
    const copy = words.slice(0, n).join("").trimStart();
    const at = copy ? text.lastIndexOf(copy) : -1;
    if (at < 0) continue;
    const after = at + copy.length;
    return {
      before: text.slice(Math.max(0, at - 40), at),
      copy,
      after: text.slice(after, after + 30),
    };
  }
  return null;
}

/** Whether all of a draft continues an n-gram of the text so far. */
export const isCopied = (draft) =>
  draft.origin.every((from) => from === "ngram" || from === "copy");

/** Names of the phases of this round in order, and which is on screen: {names, at}. */
export function phases({ round, kind }) {
  const { frames, draft } = round;
  const copies = draft && draft.tokens.length > 0 && isCopied(draft);
  const start = frames.length
    ? isChainOfPasses(frames)
      ? ["draft"]
      : ["masks", "denoise"]
    : copies
      ? ["copy"]
      : draft && draft.notes.why
        ? []
        : ["draft"];
  const names = [...start, "verify", "keep"];
  const name = { check: "verify", verdict: "keep", draft: start.at(-1) ?? "verify" }[kind] ?? kind;
  const at = names.indexOf(name);
  return { names, at: at < 0 ? 0 : at };
}

/** True where each pass adds a token, as an autoregressive drafter's do. */
export const isChainOfPasses = (frames) =>
  frames.length > 1 && frames.every((f, i) => !i || f.ids.length > frames[i - 1].ids.length);
