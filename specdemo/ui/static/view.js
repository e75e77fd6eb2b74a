// The race view: figures, lanes, replay bar, the round, charts. Feed it events; it draws the moment
// at the playhead.

import { remember } from "./address.js";
import { Charts } from "./charts.js";
import { h, nextFrame, reducedMotion, watchTheme } from "./dom.js";
import { typed } from "./events.js";
import { flow, list, num } from "./format.js";
import { forgetRun, keepRun } from "./kept_run.js";
import { Lane, legend, pendingCells } from "./lanes.js";
import { Panels } from "./panels.js";
import { Player } from "./player.js";
import { stateAtPlayhead, whereWords } from "./playhead.js";
import { Presenter } from "./presenter.js";
import { RoundView } from "./rounds.js";
import { SaveBar } from "./save_bar.js";
import { BlockStrip } from "./strip.js";
import { Score } from "./score.js";
import { Announcer, Banner, factsOf, readingWords } from "./status.js";
import { Tip } from "./tip.js";
import { Trace, firstDifference } from "./trace.js";

/** The page sends events as text: Gradio would patch nested data piece by piece. */
const unpack = (events) => (typeof events === "string" ? JSON.parse(events) : list(events));

export class View {
  /**
   * `options` are {server: functions on the Python side, standalone: true in a page of its own}.
   */
  constructor(element, options) {
    this.id = `sd-${Math.random().toString(36).slice(2, 9)}`;
    this.options = options || {};
    this.isMain = Boolean(element.closest("#race-view")); // beside the controls, not the lesson's

    this.trace = new Trace();
    this.run = null; // its name
    this.past = new Set(); // names of runs that something else has replaced
    this.running = false;
    this.total = 0; // events the server is known to have
    this.fetching = null; // the run whose missing events are on their way
    this.saysReading = false; // the banner says how far the prompt is read
    this.asked = null; // what the page asked for last

    this.label = "recording"; // where it is from: live, then finished or stopped

    this.scheduled = false; // a drawing is due at the next frame
    this.autoplay = false; // play as soon as there are events
    this.shownStart = null; // the start event whose words are on screen

    this.root = h("div", { class: "sd", "data-theme": "light" });
    this.tip = new Tip(this.root);
    this.banner = new Banner();
    this.announcer = new Announcer();
    this.player = new Player(this);
    this.lanes = { ar: new Lane("ar", this), spec: new Lane("spec", this) };
    this.score = new Score();
    this.strip = new BlockStrip(this);
    this.roundView = new RoundView(this);
    this.charts = new Charts(this);
    this.panels = new Panels(this);
    this.saveBar = new SaveBar(this, this.options);
    this.layout();
    this.presenter = new Presenter(this);
    this.listen();
    element.replaceChildren(this.root);
    watchTheme(this.root, this.options.standalone);
  }

  layout() {
    const { ar, spec } = this.lanes;
    this.badge = h("span", { class: "sd-badge", text: this.label });
    this.methodBadge = h("span", { class: "sd-method", hidden: true });
    this.prompt = h("p", { class: "sd-prompt", dir: "auto", tabindex: 0 });
    this.facts = h("p", { class: "sd-facts" });
    this.root.append(
      h(
        "div",
        { class: "sd-screen" },
        h(
          "div",
          { class: "sd-head", "data-part": "head" },
          h("div", { class: "sd-headline" }, this.badge, this.methodBadge, this.prompt),
        ),
        this.banner.root,
        this.saveBar.shareBox.root,
        h("div", { class: "sd-lanes" }, ar.root, this.score.root, spec.root),
        this.strip.root,
        this.player.quiz.root,
        this.player.root,
      ),
      legend((show) => this.root.classList.toggle("sd-show-rejected", show)),
      this.score.notesBelow,
      this.facts,
      this.roundView.root,
      this.charts.root,
      ...this.panels.roots,
      this.saveBar.root,
      this.announcer.root,
    );
  }

  listen() {
    this.root.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.tip.hide();
      this.player.onKey(e);
    });
    // with nothing focused the keys belong to the view that is on screen
    const onPageKey = (e) => {
      if (!this.root.isConnected) document.removeEventListener("keydown", onPageKey);
      else if (e.target === document.body && this.root.checkVisibility()) this.player.onKey(e);
    };
    document.addEventListener("keydown", onPageKey);
  }

  // -- what comes in --------------------------------------------------------------------------

  /** A message from the page, tagged by `type` (ui/messages.py); `run` is the race it is about. */
  receive(message) {
    if (!message || typeof message !== "object") return;
    const { run } = message;
    const request = run ? run.request : message.request;
    if (request) remember((this.asked = request));
    if (run && run.id !== this.run) {
      if (this.past.has(run.id)) return; // a late message of a race that was replaced
      this.begin(run);
    }
    this.handle(message, Boolean(request));
  }

  handle({ type, run, text, total, offset, events, confirm }, isRequest) {
    switch (type) {
      case "queued":
        // what was shown so far is not what was asked for
        if (isRequest && !this.running) this.player.pause();
        if (isRequest) keepRun();
        if (text) this.say(text, "status", true);
        break;
      case "status":
        // the model of a stopped race goes on loading
        if (!run || this.running) this.say(text, "status", true);
        break;
      case "events":
        this.take(num(offset), unpack(events));
        if (confirm) this.confirmDrawn(run.id);
        break;
      case "error":
        this.fail(text, num(total));
        break;
      case "advance":
        this.player.nextRound();
        break;
      case "ended":
        if (text) this.say(text, "status");
        this.ended(num(total));
        break;
    }
  }

  begin(run) {
    const live = Boolean(run.live);
    this.past.add(this.run);
    this.run = run.id;
    this.runs(live);
    this.trace = new Trace(live ? this.asked : null);
    this.total = 0;
    this.say("", "status");
    this.saveBar.shareBox.close(false);
    this.player.reset(!run.stepping);
    Object.values(this.lanes).forEach((lane) => lane.reset());
    this.roundView.reset();
    this.strip.reset();
    this.charts.reset();
    this.label = live ? "live" : run.badge || "recording";
    this.autoplay = !live && run.play !== false && !reducedMotion();
    this.announcer.reset();
    if (live && this.asked) {
      // until its own start event comes: the model may still be loading
      this.trace.start = typed({ ...this.asked, kind: "start" });
      this.showStart();
    }
    this.schedule();
  }

  /** Events number `offset` on. Gradio may drop a message; the server's copy fills the gap. */
  take(offset, events) {
    const have = this.trace.events.length;
    this.total = Math.max(this.total, offset + events.length);
    if (offset > have) {
      this.fetchMissing();
      return;
    }
    if (offset === 0 && !have && events.length && !this.banner.showsError) this.say("", "status");
    for (const event of events.slice(have - offset)) this.trace.push(event);
    if (this.trace.done) this.runs(false);
    this.panels.arrived();
    this.showStart();
    this.showReading();
    this.player.arrived();
    if (this.autoplay && this.trace.events.length) {
      this.autoplay = false;
      this.player.play();
    }
    this.schedule();
  }

  /** How far a long prompt is read, until both lanes begin. */
  showReading() {
    const { reading } = this.trace;
    if (reading && this.running) this.say(readingWords(reading), "status", true);
    else if (this.saysReading) this.say("", "status");
    this.saysReading = Boolean(reading && this.running);
  }

  async fetchMissing() {
    const { run } = this;
    if (this.fetching === run || !this.options.server) return;
    this.fetching = run;
    while (run === this.run && this.trace.events.length < this.total) {
      const have = this.trace.events.length;
      const events = await this.options.server.missing_events({ run, from: have });
      if (run !== this.run || !Array.isArray(events) || !events.length) break;
      this.take(have, events);
    }
    this.fetching = null;
  }

  /**
   * While a race runs nothing else on the page moves: its CPU may be the one that computes the
   * race.
   */
  runs(now) {
    this.running = now;
    (now ? keepRun : forgetRun)(this.run);
    this.player.stop.hidden = !now || !document.getElementById("stop");
    if (this.isMain) document.body.classList.toggle("sd-racing", now);
  }

  /** The engine on this browser's CPU waits until pixels, which other threads make, are there. */
  confirmDrawn(run) {
    const tell = () => setTimeout(() => this.options.server.drawn({ run, count: this.total }), 0);
    nextFrame(() => nextFrame(() => nextFrame(tell)));
  }

  ended(total) {
    const wasRunning = this.running;
    this.closeLive();
    this.catchUp(total);
    const { events, done } = this.trace;
    if (!this.banner.showsError) {
      if (events.length && events.length >= this.total && !done)
        this.say("Stopped. What was written so far stays here.", "status");
      else if (wasRunning && !this.total)
        this.say("Stopped before the race began; Run starts it again.", "status");
    }
    this.schedule();
  }

  /** An error; what a run had written, or what was on screen before it, stays. */
  fail(text, total) {
    this.closeLive();
    this.say(text, "error");
    this.catchUp(total);
    this.schedule();
  }

  catchUp(total) {
    this.total = Math.max(this.total, total);
    if (this.trace.events.length < this.total) this.fetchMissing();
  }

  closeLive() {
    this.runs(false);
    forgetRun();
    if (this.label !== "live") return;
    this.label = this.trace.done && !this.trace.done.stopped ? "finished" : "stopped";
  }

  /**
   * A sentence above the race; `kind` is status or error. What a race is `waiting` for also stands
   * beside the buttons: with the settings open the race is out of sight.
   */
  say(text, kind, waiting = false) {
    this.banner.show(text, kind);
    const besideButtons = this.isMain && document.getElementById("status");
    if (besideButtons) besideButtons.dataset.waiting = waiting ? text : "";
  }

  /** Shows a recording that did not come from the server. */
  load(events, badge = "loaded trace") {
    const run = { id: `file-${Date.now()}-${Math.random()}`, live: false, badge };
    this.receive({ type: "events", run, offset: 0, events });
  }

  warnIfCut() {
    if (!this.trace.done)
      this.say("This recording ends before its race did; what it holds is shown.", "status");
  }

  // -- what goes out: the moment at the playhead ----------------------------------------------

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    nextFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  /** Tokens at which a lane has come to its end. */
  get goal() {
    const { done, left, spec, start } = this.trace;
    return done ? Math.max(left.length, spec.length) : start.max_new_tokens || left.length;
  }

  get state() {
    return stateAtPlayhead(this.trace, this.player, this.running);
  }

  draw() {
    const { trace, player, state } = this;
    const { round, stage, step, t, ar, spec, left, opened } = state;
    const upto = step ? step.upto : 0;
    const index = opened ? opened.index : -1;
    const differs = firstDifference(trace, ar, spec);
    const leftDiffers = trace.against ? firstDifference(trace.against, ar, left) : differs;
    this.lanes.ar.update(left, state.leftClock, -1, leftDiffers);
    this.lanes.spec.update(spec, state.specClock, index, differs);
    this.lanes.spec.showPending(
      round && stage !== "verify" ? pendingCells(trace, round, stage, upto) : [],
    );
    player.update(t, whereWords(trace, state, player.playing && !this.running));
    const atRest = opened !== round;
    this.roundView.update(opened, {
      stage: atRest ? "verify" : stage,
      upto,
      seen: state.rounds,
      atRest,
    });
    this.strip.land(trace.rounds[state.rounds - 1] ?? null, this.lanes.spec);
    this.strip.update(state);
    this.score.update(trace, state, differs, leftDiffers);
    this.showBadge(state.ended);
    const isMoving = this.running || player.playing;
    this.charts.update({ ar, spec }, t, state.rounds, !isMoving);
    this.panels.update(!isMoving);
    if (round && stage === "verify") this.announcer.announce(round, isMoving);
  }

  /** Where the race is from; once it is over, whether the playhead stands before its end. */
  showBadge(atEnd) {
    const isOver = this.label === "finished" || this.label === "stopped";
    const word = this.player.playing ? "replay" : "paused";
    this.badge.textContent = isOver && !atEnd ? word : this.label;
    const green = this.label === "live" || (this.label === "finished" && atEnd);
    this.badge.classList.toggle("sd-badge-live", green);
  }

  /** Prompt, facts and titles of the lanes. */
  showStart() {
    const { start } = this.trace;
    if (this.shownStart === start) return;
    this.shownStart = start;
    this.prompt.textContent = flow(start.prompt);
    this.methodBadge.textContent = start.method ? `method: ${start.method}` : "";
    this.methodBadge.hidden = !start.method;
    this.facts.textContent = factsOf(start).filter(Boolean).join(" · ");
    const { ar, spec } = this.lanes;
    const drafts = "several tokens per pass of the target";
    if (start.against) ar.name(`Draft and verify: ${start.against.method}`, drafts);
    else ar.name("Plain decoding", "one token per pass of the target");
    if (start.method === "ar")
      spec.name("Plain decoding, once more", "nothing is drafted: any difference is timing noise");
    else spec.name(`Draft and verify: ${start.engine || start.method}`, drafts);
  }

  openToken(kind, i) {
    const token = this.lanes[kind].tokens[i];
    if (!token) return;
    if (kind === "spec" && token.round !== null) this.openRound(token.round);
    else {
      this.player.pause();
      this.player.seek(token.t);
    }
  }

  openRound(r) {
    const at = this.trace.timeline.findIndex((step) => step.round === r && step.kind === "verify");
    if (at < 0) return;
    this.player.pause();
    this.player.go(at);
  }
}
