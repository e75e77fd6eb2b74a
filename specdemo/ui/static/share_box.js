// The link to a race, over the stage: as text, on the clipboard, and as a QR code for cameras.

import { h } from "./dom.js";
import { qrImage } from "./qr.js";

const SAID_MS = 4000; // for which the box says what became of the link
const OPENERS = "#share, .sd-share";

/** True for an address that no other device can open. */
export const isLoopback = (hostname) =>
  /^(127(\.\d+){3}|(.+\.)?localhost|\[::1\]|0\.0\.0\.0)$/.test(hostname);

const ON_THIS_COMPUTER =
  "Other devices cannot open this address, which is this computer's own: start the app with --host 0.0.0.0, open it under this computer's name or network address, and share from there.";

export class ShareBox {
  /** `server` is {qr_code}, where there is one. */
  constructor(server) {
    this.server = server;
    this.opener = null; // what had the focus when the box was opened
    this.timer = 0;
    this.link = h("input", { class: "sd-link", readonly: true, "aria-label": "Link to this run" });
    this.code = h("div", { class: "sd-share-code", role: "status" });
    this.said = h("span", { class: "sd-unit", role: "status" });
    this.root = h(
      "div",
      { class: "sd-share-box", role: "dialog", "aria-label": "Link to this race", hidden: true },
      h(
        "header",
        {},
        h("h3", { text: "Link to this race" }),
        this.said,
        h("button", {
          type: "button",
          class: "sd-btn",
          text: "Close",
          onclick: () => this.close(),
        }),
      ),
      this.link,
      this.code,
    );
    this.listen();
  }

  /** Escape and a click elsewhere close it. */
  listen() {
    const onKey = (e) => {
      if (e.key !== "Escape" || this.root.hidden) return;
      this.close();
      e.preventDefault();
      e.stopPropagation(); // presenting goes on, and the settings stay open
    };
    const onPress = (e) => {
      if (this.root.hidden || this.root.contains(e.target)) return;
      if (!e.target.closest?.(OPENERS)) this.close(false);
    };
    document.addEventListener("keydown", onKey, true);
    document.addEventListener("pointerdown", onPress, true);
  }

  /** Shows this link; where the box is open already, closes it. */
  toggle(link) {
    if (!this.root.hidden) {
      this.close();
      return;
    }
    this.opener = document.activeElement;
    this.link.value = link;
    this.root.hidden = false;
    this.link.focus();
    this.link.select();
    this.drawCode(link);
    if (navigator.clipboard)
      navigator.clipboard.writeText(link).then(
        () => this.say("The link is on the clipboard."),
        () => {},
      );
  }

  /** The focus goes back to what opened the box unless it has gone elsewhere. */
  close(returns = true) {
    if (this.root.hidden) return;
    this.root.hidden = true;
    this.say("");
    if (!returns) return;
    const opener = this.opener?.matches(OPENERS) ? this.opener : document.querySelector(OPENERS);
    opener?.focus({ preventScroll: true });
  }

  say(text) {
    clearTimeout(this.timer);
    this.said.textContent = text;
    if (text) this.timer = setTimeout(() => this.say(""), SAID_MS);
  }

  async drawCode(link) {
    this.code.replaceChildren();
    if (isLoopback(new URL(link).hostname)) {
      this.code.textContent = ON_THIS_COMPUTER;
      return;
    }
    const { rows } = (this.server?.qr_code && (await this.server.qr_code({ text: link }))) || {};
    if (this.link.value !== link) return;
    if (rows) this.code.replaceChildren(qrImage(rows, "QR code of this link"));
    else this.code.textContent = "Too long for a QR code: shorten the prompt.";
  }
}
