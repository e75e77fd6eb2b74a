// Pictures of the race for slides: the server draws them from the events.

import { h, save } from "./dom.js";
import { MAX_TRACE_BYTES } from "./parse.js";

const PICTURE_KINDS = [
  ["gif", "the whole race as an animation"],
  ["mp4", "the whole race as a film"],
  ["png", "the round on screen as a picture"],
  ["svg", "the round on screen as a drawing"],
];

export class Pictures {
  constructor(bar) {
    this.bar = bar;
    this.buttons = PICTURE_KINDS.map(([kind, title]) =>
      h("button", {
        type: "button",
        class: "sd-btn",
        title,
        text: kind.toUpperCase(),
        onclick: () => this.download(kind),
      }),
    );
    this.root = h(
      "span",
      { class: "sd-pictures", role: "group", "aria-label": "Pictures of this race" },
      "For slides ",
      this.buttons,
    );
  }

  async download(kind) {
    const { bar } = this;
    const { view } = bar;
    if (view.running) {
      view.say("A race runs here; a picture can be drawn when it is over.", "status");
      return;
    }
    const saved = bar.toSave(MAX_TRACE_BYTES);
    if (!saved) return;
    const { opened } = view.state;
    this.buttons.forEach((button) => (button.disabled = true));
    view.say("The picture is being drawn …", "status");
    try {
      const round = opened ? opened.index + 1 : null;
      const ask = { events: saved.events, kind, round };
      const answer = await view.options.server.picture(ask);
      if (answer?.data) {
        save(`${bar.name}.${kind}`, bytesOf(answer.data), answer.type);
        view.say("", "status");
      } else view.say(answer?.error || "The picture could not be drawn.", "error");
    } finally {
      this.buttons.forEach((button) => (button.disabled = false));
    }
  }
}

const bytesOf = (base64) => Uint8Array.from(window.atob(base64), (c) => c.charCodeAt(0));
