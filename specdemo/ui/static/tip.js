// One small panel of words for hover and focus.

import { h } from "./dom.js";
import { clamp } from "./format.js";

const GAP = 6; // pixels to the node
const EDGE = 4; // to the window's edges

/** The window's y of a box this high: below the node, else above it, else over it, in sight. */
function placed({ top, bottom }, height) {
  const lowest = window.innerHeight - height - EDGE;
  if (bottom + GAP <= lowest) return Math.max(EDGE, bottom + GAP);
  return top - GAP - height >= EDGE ? top - GAP - height : Math.max(EDGE, lowest);
}

export class Tip {
  constructor(root) {
    this.root = root;
    this.box = h("div", { class: "sd-tip", role: "tooltip", hidden: true });
    this.box.addEventListener("mouseleave", () => this.hide());
    root.append(this.box);
  }

  /** Shows the lines beside a node; a line is a text, [text, class], or an element. */
  show(node, lines) {
    this.box.replaceChildren(
      ...lines.map((line) => {
        if (Array.isArray(line)) return h("div", { class: `sd-tip-${line[1]}`, text: line[0] });
        return typeof line === "string" ? h("div", { text: line }) : line;
      }),
    );
    this.box.hidden = false;
    // its width is that of its words, wherever it was last
    this.box.style.left = 0;
    const view = this.root.getBoundingClientRect();
    const at = node.getClientRects()[0] || node.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.box;
    const left = clamp(at.left - view.left, 4, Math.max(4, view.width - offsetWidth - 4));
    this.box.style.left = `${left}px`;
    // what is higher than the window can be scrolled
    this.box.classList.toggle("sd-tip-tall", this.box.scrollHeight > this.box.clientHeight);
    this.box.style.top = `${placed(at, offsetHeight) - view.top}px`;
  }

  hide() {
    this.box.hidden = true;
  }

  /** Shows `lines(node)` for the nodes of `area` that match the selector, on hover and on focus. */
  watch(area, selector, lines) {
    for (const [on, off] of [
      ["mouseover", "mouseout"],
      ["focusin", "focusout"],
    ]) {
      area.addEventListener(on, (e) => {
        const node = e.target.closest(selector);
        const words = node && lines(node);
        if (words) this.show(node, words);
      });
      area.addEventListener(off, (e) => {
        if (!this.box.contains(e.relatedTarget)) this.hide();
      });
    }
  }
}
