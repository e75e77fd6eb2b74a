// A pane that scrolls sideways and says so: “more” at the side where something is hidden.

import { h } from "./dom.js";

const SLACK = 4; // pixels that hide nothing

/**
 * `matters` selects what the pane shows first where not all of it fits; `attrs` are the pane's own.
 */
export function scroller({ matters, ...attrs }, ...kids) {
  const pane = h("div", { class: "sd-scroll", ...attrs }, kids);
  const hint = (side, text) => h("span", { class: `sd-beyond sd-beyond-${side}`, text });
  const root = h(
    "div",
    { class: "sd-scroller" },
    pane,
    h(
      "div",
      { class: "sd-beyonds", "aria-hidden": "true" },
      hint("left", "← more"),
      hint("right", "more →"),
    ),
  );
  const update = () => {
    const right = pane.scrollWidth - pane.clientWidth - pane.scrollLeft;
    root.classList.toggle("sd-has-left", pane.scrollLeft > SLACK);
    root.classList.toggle("sd-has-right", right > SLACK);
  };
  let isShown = false;
  new ResizeObserver(() => {
    if (!isShown && pane.clientWidth) {
      isShown = true;
      if (matters) reveal(pane, pane.querySelector(matters));
    }
    update();
  }).observe(pane);
  pane.addEventListener("scroll", update, { passive: true });
  return root;
}

/** Scrolls the pane, not the page, until `part` stands in it. */
function reveal(pane, part) {
  if (!part) return;
  const [inner, outer] = [part.getBoundingClientRect(), pane.getBoundingClientRect()];
  if (inner.right > outer.right)
    pane.scrollLeft += inner.right - outer.right + pane.clientWidth / 4;
}
