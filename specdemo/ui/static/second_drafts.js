// What became of the second drafts of a round. No DOM.

import { list } from "./format.js";

const AFTER = /^branch after (\d+)$/; // the label of their steps, from drafters/d2sd.py

/**
 * A sentence on each place where a second draft began: a branch of its own, the same as an earlier
 * draft, or not in the tree; "" where the recording does not tell them.
 */
export function secondDrafts({ frames, draft }) {
  const first = frames.find(({ row }) => row === 0);
  const found = frames.flatMap((frame) => {
    const place = AFTER.exec(frame.label);
    return place ? [{ after: Number(place[1]), ids: list(frame.ids) }] : [];
  });
  if (!first || !found.length) return "";
  const known = [{ name: "the first block", ids: list(first.ids) }];
  const words = found.map(({ after, ids }) => {
    const same = known.find((one) => one.ids.every((id, k) => id === ids[k]));
    known.push({ name: `the one after ${after}`, ids });
    if (same) return { after, what: `the same as ${same.name}` };
    return { after, what: isIn(draft, ids) ? "a branch of its own" : "cut, it did not fit" };
  });
  words.sort((a, b) => a.after - b.after);
  return `Second drafts: ${words.map(({ after, what }) => `after ${after} ${what}`).join("; ")}.`;
}

/** Whether the tree goes along these ids from the anchor to their end. */
function isIn({ tokens, parent }, ids) {
  let at = -1;
  for (const id of ids) {
    const here = at;
    at = tokens.findIndex((token, i) => token === id && parent[i] === here);
    if (at < 0) return false;
  }
  return true;
}
