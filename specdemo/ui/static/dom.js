// Small helpers. Every piece of text reaches the page through textContent: model output is hostile input.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes (`on…` = listener, `text` = textContent) and children (strings become text nodes). */
function h(tag, attrs, ...kids) {
  return dress(document.createElement(tag), attrs, kids);
}

/** The same for SVG. */
function s(tag, attrs, ...kids) {
  return dress(document.createElementNS(SVG, tag), attrs, kids);
}

function dress(node, attrs, kids) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const kid of kids.flat())
    if (kid !== null && kid !== undefined && kid !== false) node.append(kid);
  return node;
}

const num = (value, fallback = 0) =>
  typeof value === "number" && Number.isFinite(value) ? value : fallback;
const maybe = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);
const list = (value) => (Array.isArray(value) ? value : []);
const str = (value) =>
  typeof value === "string" ? value : value === null || value === undefined ? "" : String(value);
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const plural = (n, word, words) => `${n} ${n === 1 ? word : words || word + "s"}`;

function percent(p) {
  if (p === null || p === undefined) return "–";
  const value = p * 100;
  return value >= 99.95
    ? "100 %"
    : value >= 10
      ? `${value.toFixed(0)} %`
      : value >= 0.1
        ? `${value.toFixed(1)} %`
        : value > 0
          ? "< 0.1 %"
          : "0 %";
}

function seconds(t) {
  if (t === null || t === undefined) return "–";
  return t >= 100
    ? `${t.toFixed(0)} s`
    : t >= 1
      ? `${t.toFixed(2)} s`
      : `${(t * 1000).toFixed(t >= 0.1 ? 0 : 1)} ms`;
}

const rate = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1));
const times = (value) => `${value.toFixed(2)}×`;

// Control and direction-changing characters would rearrange or hide their neighbours; draw a stand-in for each.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** A token as running text. */
function flow(text) {
  return str(text).replace(/\r\n?/g, "\n").replace(/\t/g, "    ").replace(HIDDEN, "\u00a4");
}

/** A token in a box: nothing invisible, at most `limit` characters. */
function boxed(text, limit = 14) {
  let shown = str(text).replace(HIDDEN, "\u00a4").replace(/\n/g, "⏎").replace(/\t/g, "⇥");
  if (/^\ufffd+$/.test(shown)) return "◌";
  if (/^ +$/.test(shown)) return "␣".repeat(Math.min(shown.length, 4));
  shown = shown.replace(/^ /, "");
  const letters = [...shown];
  return letters.length > limit ? letters.slice(0, limit - 1).join("") + "…" : shown || "∅";
}

/** A token read aloud. */
function spoken(text) {
  const shown = boxed(text, 40);
  return (
    { "⏎": "new line", "␣": "space", "◌": "part of a character", "∅": "nothing" }[shown] || shown
  );
}

function reducedMotion() {
  return typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function save(name, text, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Icons as shapes: not every machine has the media symbols in its fonts.
const ICONS = {
  start: "M3 3h3v12H3zM15 3v12L7 9z",
  back: "M13 3v12L4 9z",
  play: "M4 2l12 7-12 7z",
  pause: "M4 3h4v12H4zM11 3h4v12h-4z",
  forward: "M5 3v12l9-6z",
  end: "M3 3v12l8-6zM12 3h3v12h-3z",
};

function icon(name) {
  return s(
    "svg",
    { class: "sd-icon", viewBox: "0 0 18 18", "aria-hidden": "true" },
    s("path", { d: ICONS[name] }),
  );
}

/** The next frame for the view itself (see raf_throttle.js). */
function nextFrame(f) {
  return (window.specdemoFrame || window.requestAnimationFrame.bind(window))(f);
}

/** Gradio marks its dark theme on the body; a page of our own follows the system. */
function watchTheme(root, standalone) {
  const dark = standalone ? matchMedia("(prefers-color-scheme: dark)") : null;
  const set = () => {
    root.dataset.theme = (dark ? dark.matches : document.body.classList.contains("dark"))
      ? "dark"
      : "light";
  };
  set();
  if (dark) dark.addEventListener("change", set);
  else
    new MutationObserver(set).observe(document.body, {
      attributes: true,
      attributeFilter: ["class"],
    });
}
