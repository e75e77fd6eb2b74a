// Below the race: save it, load another, share it.

import { raceQuery } from "./address.js";
import { h, save } from "./dom.js";
import { boxed, str } from "./format.js";
import { keyList } from "./keys.js";
import { MAX_TRACE_BYTES, TOO_LARGE, parseTrace, traceText } from "./parse.js";
import { Pictures } from "./pictures.js";
import { Recordings } from "./recordings.js";
import { ShareBox } from "./share_box.js";
import { shorten } from "./shorten.js";

// of the events of a page: the server, which writes numbers longer at times, reads 20 MB
const MAX_PAGE_BYTES = 0.97 * MAX_TRACE_BYTES;

export class SaveBar {
  constructor(view, { server, standalone, recordings }) {
    this.view = view;
    this.file = h("input", {
      type: "file",
      accept: ".json,application/json",
      class: "sd-sr",
      tabindex: -1,
      "aria-label": "Trace file",
      onchange: () => this.openFile(this.file.files[0]),
    });
    // on the stage, as the button that opens it is in the page's first row
    this.shareBox = new ShareBox(server);
    this.kept = null; // {events, name} of a trace that waits for the end of a race
    this.keptButton = h("button", {
      type: "button",
      class: "sd-btn",
      text: "Show the trace",
      hidden: true,
      onclick: () => this.showKept(),
    });
    const button = (text, act, mark = "") =>
      h("button", { type: "button", class: `sd-btn ${mark}`, text, onclick: act });
    this.root = h(
      "div",
      { class: "sd-foot", "data-part": "save" },
      button("Download trace", () => this.downloadTrace()),
      server && server.export_page
        ? button("Download as web page", () => this.downloadPage())
        : null,
      server && server.picture ? new Pictures(this).root : null,
      button("Load a trace…", () => this.file.click()),
      this.file,
      this.keptButton,
      standalone ? null : button("Share link", () => this.share(), "sd-share"),
      recordings ? new Recordings(view, recordings).root : null,
      view.player.quiz.switch,
      keyList(),
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

  /**
   * {events, complete} to be saved: the whole race, complete null, or one shortened to `limit`
   * bytes, which is said. Null, with a message, where there is nothing or it is too large even so.
   */
  toSave(limit) {
    if (!this.hasTrace()) return null;
    const { view } = this;
    if (new Blob([view.trace.json()]).size <= limit)
      return { events: view.trace.events, complete: null };
    const short = shorten(view.trace.events, limit);
    if (short)
      view.say(
        `This race is larger than 20 MB, so how drafts were made is saved for the first ${short.complete} rounds only; all tokens and verdicts are in it.`,
        "status",
      );
    else view.say("This race is larger than 20 MB; run with fewer tokens.", "error");
    return short;
  }

  downloadTrace() {
    const saved = this.toSave(MAX_TRACE_BYTES);
    if (saved) save(`${this.name}.json`, traceText(saved.events), "application/json");
  }

  async downloadPage() {
    const { name, view } = this;
    const saved = this.toSave(MAX_PAGE_BYTES);
    if (!saved) return;
    const answer = await view.options.server.export_page(saved);
    if (answer && answer.html) save(`${name}.html`, answer.html, "text/html");
    else
      view.say(
        (answer && answer.error) || "The page could not be made; download the trace instead.",
        "error",
      );
  }

  share() {
    const { start, asked, events } = this.view.trace;
    const hasRace = asked || events.length;
    const query = hasRace
      ? raceQuery({ ...start, chosen_dtype: asked && str(asked.chosen_dtype) })
      : location.search.slice(1); // of a link whose prompt has not been raced yet
    this.shareBox.toggle(`${location.origin}${location.pathname}?${query}`);
  }

  async openFile(file) {
    const { view } = this;
    this.file.value = "";
    if (!file) return;
    const { events, fault } =
      file.size > MAX_TRACE_BYTES ? { fault: TOO_LARGE } : parseTrace(await file.text());
    if (fault) {
      view.say(fault, "error");
      return;
    }
    this.keep({ events, name: boxed(file.name, 40) });
    this.showKept();
  }

  /** A trace that cannot be shown at once keeps a button; null takes it away. */
  keep(trace) {
    this.kept = trace;
    this.keptButton.hidden = !trace;
    if (trace) this.keptButton.textContent = `Show ${trace.name}`;
  }

  showKept() {
    const { kept, view } = this;
    if (view.running) {
      view.say(
        `${kept.name} is a valid trace, kept until the race here is over: press Stop or wait for its end, then “Show ${kept.name}” below.`,
        "status",
      );
      return;
    }
    this.keep(null);
    view.load(kept.events);
    view.warnIfCut();
  }
}
