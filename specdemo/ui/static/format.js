// Numbers and texts as people read them, and the casts that make untrusted values safe. No DOM.

/** The number, or null if it is none. */
export const maybe = (value) => (Number.isFinite(value) ? value : null);
export const num = (value, fallback = 0) => (Number.isFinite(value) ? value : fallback);
export const list = (value) => (Array.isArray(value) ? value : []);
export const record = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};

/** The text of a text, a number or a truth value; anything else has none. */
export function str(value) {
  if (typeof value === "string") return value;
  return typeof value === "number" || typeof value === "boolean" ? String(value) : "";
}

export const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
export const plural = (n, word, words) => `${n} ${n === 1 ? word : words || word + "s"}`;

export function percent(p) {
  if (p === null || p === undefined) return "–";
  const value = p * 100;
  if (value >= 99.95) return "100 %";
  if (value >= 10) return `${value.toFixed(0)} %`;
  if (value >= 0.1) return `${value.toFixed(1)} %`;
  return value > 0 ? "< 0.1 %" : "0 %";
}

export function seconds(t) {
  if (t === null || t === undefined) return "–";
  if (t >= 100) return `${t.toFixed(0)} s`;
  if (t >= 1) return `${t.toFixed(2)} s`;
  return `${(t * 1000).toFixed(t >= 0.1 ? 0 : 1)} ms`;
}

export const rate = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
export const times = (value) => `${value.toFixed(2)}×`;

// Control and direction-changing characters would rearrange or hide their neighbours; draw a stand-
// in for each. The two joiners (\u200c, \u200d) are letters' own business: emoji, Persian, Indic.
const CONTROLS = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f";
const INVISIBLE = "\\u061c\\u200b\\u200e\\u200f\\u202a-\\u202e\\u2060-\\u2069\\ufeff";
const HIDDEN = new RegExp(`[${CONTROLS}${INVISIBLE}]`, "g");
const segmenter = Intl.Segmenter ? new Intl.Segmenter() : null;

/** The characters of a text as people count them. */
const characters = (text) =>
  segmenter ? Array.from(segmenter.segment(text), ({ segment }) => segment) : [...text];

/** A token as running text. */
export function flow(text) {
  return str(text).replace(/\r\n?/g, "\n").replace(/\t/g, "    ").replace(HIDDEN, "\u00a4");
}

/** A token in a box: nothing invisible, at most `limit` characters. */
export function boxed(text, limit = 14) {
  let shown = str(text).replace(HIDDEN, "\u00a4").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  if (/^\ufffd+$/.test(shown)) return "◌";
  if (/^ +$/.test(shown)) return "␣".repeat(Math.min(shown.length, 4));
  shown = shown.replace(/^ /, "");
  if (/^[\u200c\u200d]+$/.test(shown)) return "◌";
  const letters = characters(shown);
  return letters.length > limit ? letters.slice(0, limit - 1).join("") + "…" : shown || "∅";
}

/** A token read aloud. */
export function spoken(text) {
  const shown = boxed(text, 40);
  return (
    { "⏎": "new line", "␣": "space", "◌": "part of a character", "∅": "nothing" }[shown] || shown
  );
}
