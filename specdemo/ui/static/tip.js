// One small panel of words for hover and focus.

import { h } from "./dom.js";
import { clamp } from "./format.js";

export class Tip {
  constructor(root) {
    this.root = root;
    this.box = h("div", { class: "sd-tip", role: "tooltip", hidden: true });
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
    const view = this.root.getBoundingClientRect();
    const at = node.getClientRects()[0] || node.getBoundingClientRect();
    const { offsetWidth, offsetHeight } = this.box;
    const left = clamp(at.left - view.left, 4, Math.max(4, view.width - offsetWidth - 4));
    const below = at.bottom - view.top + 6;
    const above = at.top - view.top - offsetHeight - 6;
    const overflows = at.bottom + offsetHeight + 10 > window.innerHeight;
    this.box.style.left = `${left}px`;
    this.box.style.top = `${overflows && above > 0 ? above : below}px`;
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
      area.addEventListener(off, () => this.hide());
    }
  }
}
