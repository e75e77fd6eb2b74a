// Small helpers. Every piece of text reaches the page through textContent: model output is hostile
// input.

const SVG = "http://www.w3.org/2000/svg";

/**
 * An element with attributes (`on…` = listener, `text` = textContent) and children (strings become
 * text nodes).
 */
export function h(tag, attrs, ...kids) {
  return dress(document.createElement(tag), attrs, kids);
}

/** The same for SVG. */
export function s(tag, attrs, ...kids) {
  return dress(document.createElementNS(SVG, tag), attrs, kids);
}

function dress(node, attrs, kids) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") node.textContent = value;
    else if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const kid of kids.flat(Infinity))
    if (kid !== null && kid !== undefined && kid !== false) node.append(kid);
  return node;
}
export function reducedMotion() {
  return typeof matchMedia === "function" && matchMedia("(prefers-reduced-motion: reduce)").matches;
}

export function save(name, text, type) {
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

export function icon(name) {
  return s(
    "svg",
    { class: "sd-icon", viewBox: "0 0 18 18", "aria-hidden": "true" },
    s("path", { d: ICONS[name] }),
  );
}

/** The next frame for the view itself (see raf_throttle.js). */
export function nextFrame(f) {
  return (window.specdemoFrame || window.requestAnimationFrame.bind(window))(f);
}

/** Gradio marks its dark theme on the body; a page of our own follows the system. */
export function watchTheme(root, standalone) {
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
