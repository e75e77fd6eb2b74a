// Below the race: save it, load another, share it.

import { raceQuery } from "./address.js";
import { h, save } from "./dom.js";
import { MAX_TRACE_BYTES, TOO_LARGE, parseTrace, traceText } from "./parse.js";
import { shorten } from "./shorten.js";

export class SaveBar {
  constructor(view, { server, standalone }) {
    this.view = view;
    this.file = h("input", {
      type: "file",
      accept: ".json,application/json",
      class: "sd-sr",
      tabindex: -1,
      "aria-label": "Trace file",
      onchange: () => this.openFile(this.file.files[0]),
    });
    this.link = h("input", {
      class: "sd-link",
      readonly: true,
      hidden: true,
      "aria-label": "Link to this run",
    });
    const button = (text, act) =>
      h("button", { type: "button", class: "sd-btn", text, onclick: act });
    this.root = h(
      "div",
      { class: "sd-foot", "data-part": "save" },
      button("Download trace", () => this.downloadTrace()),
      server && server.export_page
        ? button("Download as web page", () => this.downloadPage())
        : null,
      button("Load a trace…", () => this.file.click()),
      this.file,
      standalone ? null : button("Share link", () => this.share()),
      this.link,
    );
  }

  /** The name of a file about this race, without its ending. */
  get name() {
    return `specdemo-${this.view.trace.start.method.replace(/[^a-z0-9-]/gi, "") || "trace"}`;
  }

  /** False, with a message, while there is nothing to save. */
  hasTrace() {
    if (this.view.trace.events.length) return true;
    this.view.say("There is nothing to save yet; wait until the race has begun.", "status");
    return false;
  }

  downloadTrace() {
    if (!this.hasTrace()) return;
    const { view } = this;
    let text = view.trace.json();
    if (new Blob([text]).size > MAX_TRACE_BYTES) {
      const short = shorten(view.trace.events, MAX_TRACE_BYTES);
      if (!short) {
        view.say("This trace is larger than 20 MB; run with fewer tokens.", "error");
        return;
      }
      text = traceText(short.events);
      view.say(
        `This trace is larger than 20 MB, so how drafts were made is saved for the first ${short.complete} rounds only; all tokens and verdicts are in it.`,
        "status",
      );
    }
    save(`${this.name}.json`, text, "application/json");
  }

  async downloadPage() {
    if (!this.hasTrace()) return;
    const { name, view } = this;
    const answer = await view.options.server.export_page({ events: view.trace.events });
    if (answer && answer.html) save(`${name}.html`, answer.html, "text/html");
    else
      view.say(
        (answer && answer.error) || "The page could not be made; download the trace instead.",
        "error",
      );
  }

  share() {
    const { link, view } = this;
    link.value = `${location.origin}${location.pathname}?${raceQuery(view.trace.start)}`;
    link.hidden = false;
    link.focus();
    link.select();
    if (navigator.clipboard)
      navigator.clipboard.writeText(link.value).then(
        () => view.say("The link is on the clipboard.", "status"),
        () => {},
      );
  }

  async openFile(file) {
    const { view } = this;
    this.file.value = "";
    if (!file) return;
    if (view.running) {
      view.say(
        "A race is running here. Press Stop or wait for its end, then load the trace.",
        "error",
      );
      return;
    }
    const { events, fault } =
      file.size > MAX_TRACE_BYTES ? { fault: TOO_LARGE } : parseTrace(await file.text());
    if (fault) {
      view.say(fault, "error");
      return;
    }
    view.load(events);
    view.warnIfCut();
  }
}
