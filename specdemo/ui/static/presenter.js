// Presenting in a room: nothing but the race, in large type; clicker keys step through the rounds.

import { h } from "./dom.js";

const ON = "sd-presenting";
const IN_A_FIELD = "input:not([type=range]), textarea, select, [contenteditable]";

/** P begins and ends presenting, B blanks the screen, Escape ends both. */
export class Presenter {
  constructor(view) {
    const { root } = view;
    this.view = view;
    this.root = root;
    this.blank = h("div", { class: "sd-blank", hidden: true, role: "status" });
    root.append(this.blank);
    const onKey = (e) => {
      if (!root.isConnected) document.removeEventListener("keydown", onKey);
      else this.onKey(e);
    };
    document.addEventListener("keydown", onKey);
  }

  get isOn() {
    return document.body.classList.contains(ON);
  }

  onKey(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || e.repeat) return;
    if (!this.root.checkVisibility()) return;
    const key = e.key.toLowerCase();
    const typed = Boolean(e.target.closest?.(IN_A_FIELD));
    if (key === "escape" && this.isOn) this.toggle(false);
    else if (typed) return;
    else if (key === "p") this.toggle(!this.isOn);
    else if (key === "b" && this.isOn) this.showBlank(this.blank.hidden);
    else return;
    e.preventDefault();
  }

  toggle(on) {
    document.body.classList.toggle(ON, on);
    this.root.classList.toggle("sd-on-stage", on);
    if (!on) this.showBlank(false);
    window.scrollTo(0, 0);
    this.view.saveBar.shareBox.close(false);
    this.view.draw(); // the size of things has changed
  }

  showBlank(now) {
    this.blank.hidden = !now;
    this.blank.textContent = now ? "The screen is blank: B shows it again." : "";
  }
}
