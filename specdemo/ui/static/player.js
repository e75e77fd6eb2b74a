// The playhead: a moment of the race on the lanes' own clocks, and the bar that moves it.

import { h, icon, nextFrame } from "./dom.js";
import { clamp, seconds } from "./format.js";
import { Quiz } from "./quiz.js";

const SPEEDS = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4];
const ROUND_SECONDS = 1; // of a replay: slow enough that a class can follow

export class Player {
  constructor(view) {
    this.view = view;
    this.t = 0; // seconds on the lanes' clocks
    this.at = -1; // index of the last step of the timeline shown
    this.pinned = true; // follow the newest event
    this.playing = false;
    this.waiting = false; // a step was asked for before its round was there
    this.lastFrame = null; // when the replay last moved
    this.autoSpeed = true; // until a speed is chosen by hand
    this.button = h(
      "button",
      {
        type: "button",
        class: "sd-btn sd-play",
        "aria-label": "Play",
        onclick: () => this.toggle(),
      },
      icon("play"),
    );
    this.bar = h("input", {
      type: "range",
      class: "sd-scrub",
      min: 0,
      max: 1000,
      value: 0,
      step: 1,
      "aria-label": "Moment of the race",
      oninput: () => {
        this.pause();
        this.seek((this.bar.value / 1000) * view.trace.end);
      },
    });
    this.speed = this.speedMenu();
    this.quiz = new Quiz(view);
    this.where = h("span", { class: "sd-where", text: "" });
    this.live = h("button", {
      type: "button",
      class: "sd-btn sd-live",
      text: "● follow live",
      hidden: true,
      onclick: () => this.finish(),
    });
    this.stop = h("button", {
      type: "button",
      class: "sd-btn sd-halt",
      text: "■ Stop",
      hidden: true,
      onclick: () => document.getElementById("stop").click(), // the page's own may be out of sight
    });
    this.root = this.layout();
    this.setRate(0.1);
  }

  layout() {
    const button = (name, label, act) =>
      h(
        "button",
        { type: "button", class: "sd-btn", "aria-label": label, title: label, onclick: act },
        icon(name),
      );
    return h(
      "div",
      { class: "sd-card sd-player", role: "group", "aria-label": "Replay", "data-part": "player" },
      h(
        "div",
        { class: "sd-buttons" },
        button("start", "To the start (Home)", () => this.go(-1)),
        button("back", "One step back (left arrow)", () => this.step(-1)),
        this.button,
        button("forward", "One step on (right arrow)", () => this.step(1)),
        button("end", "To the end (End)", () => this.finish()),
      ),
      this.bar,
      this.where,
      h("label", { class: "sd-speed" }, "speed ", this.speed),
      this.live,
      this.stop,
    );
  }

  speedMenu() {
    return h(
      "select",
      {
        class: "sd-select",
        "aria-label": "Replay speed",
        onchange: () => {
          this.autoSpeed = false;
          this.rate = Number(this.speed.value);
        },
      },
      SPEEDS.map((v) => h("option", { value: v, text: `${v}×` })),
    );
  }

  setRate(rate) {
    this.rate = rate;
    this.speed.value = String(rate);
  }

  /** The speed at which a round takes about a second. */
  chooseSpeed() {
    if (!this.autoSpeed) return;
    const { rounds, end } = this.view.trace;
    const clock = rounds.at(-1)?.t1 || end;
    const wanted = clock / (Math.max(rounds.length, 1) * ROUND_SECONDS) || 1;
    const distance = (v) => Math.abs(Math.log(v / wanted));
    this.setRate(SPEEDS.reduce((best, v) => (distance(v) < distance(best) ? v : best), 0.1));
  }

  reset(pinned) {
    this.pause();
    this.quiz.reset();
    this.waiting = false;
    this.t = 0;
    this.at = -1;
    this.pinned = pinned;
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    const { trace } = this.view;
    if (!trace.events.length) return;
    if (this.pinned || this.t >= trace.end) {
      this.pinned = false;
      this.go(-1);
    }
    this.chooseSpeed();
    this.playing = true;
    this.button.replaceChildren(icon("pause"));
    this.button.setAttribute("aria-label", "Pause");
    this.lastFrame = null;
    nextFrame((now) => this.onFrame(now));
  }

  onFrame(now) {
    if (!this.playing || !this.root.isConnected) {
      this.pause();
      return;
    }
    if (this.lastFrame !== null) this.advance(((now - this.lastFrame) / 1000) * this.rate);
    this.lastFrame = now;
    nextFrame((next) => this.onFrame(next));
  }

  pause() {
    this.playing = false;
    this.button.replaceChildren(icon("play"));
    this.button.setAttribute("aria-label", "Play");
  }

  advance(dt) {
    const { trace } = this.view;
    const stop = this.quiz.stopBetween(this.t, this.t + dt);
    this.t = stop ? stop.t : Math.min(this.t + dt, trace.end);
    this.at = this.stepAt(this.t);
    if (stop) {
      this.pause();
      this.quiz.ask(stop.round);
    }
    if (this.t >= trace.end) {
      this.at = trace.timeline.length - 1;
      this.pinned = true;
      if (trace.done || !this.view.running) this.pause();
    }
    this.view.draw();
  }

  /** Index of the last step of the timeline at time t. */
  stepAt(t) {
    const { timeline } = this.view.trace;
    let low = -1;
    let high = timeline.length - 1;
    while (low < high) {
      const mid = Math.ceil((low + high) / 2);
      if (timeline[mid].t <= t) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  seek(t) {
    const { trace } = this.view;
    this.pinned = false;
    this.t = clamp(t, 0, trace.end);
    this.at = this.t >= trace.end ? trace.timeline.length - 1 : this.stepAt(this.t);
    this.view.draw();
  }

  /** To step i of the timeline; -1 is the start. */
  go(i) {
    const { timeline } = this.view.trace;
    this.pinned = false;
    this.at = clamp(i, -1, timeline.length - 1);
    this.t = this.at < 0 ? 0 : timeline[this.at].t;
    this.view.draw();
  }

  step(by) {
    this.pause();
    const here = this.pinned ? this.view.trace.timeline.length - 1 : this.at;
    this.go(here + by);
  }

  /** To the newest event, and on with it. */
  finish() {
    this.pause();
    this.pinned = true;
    this.view.draw();
    Object.values(this.view.lanes).forEach((lane) => lane.follow(true));
  }

  /** To the verdict of the next or previous round. */
  stepRound(by) {
    this.pause();
    const { timeline } = this.view.trace;
    let i = (this.pinned ? timeline.length : this.at) + by;
    while (i >= 0 && i < timeline.length && timeline[i].kind !== "verify") i += by;
    if (i >= timeline.length) this.finish();
    else this.go(i);
  }

  /** The Step button: on by one round, from the start again when the end is on screen. */
  nextRound() {
    const { trace, running } = this.view;
    if (!running && (this.pinned || this.t >= trace.end)) {
      this.go(-1);
      this.view.say(
        trace.timeline.length
          ? "The race is over: Step goes through it again, from its first round. Run starts a new one."
          : "The race was stopped before its first round; Run starts a new one.",
        "status",
      );
    }
    const checked = trace.timeline.findLast((step) => step.kind === "verify");
    const here = this.at < 0 ? null : trace.timeline[this.at];
    const isLast = !checked || (here && here.kind === "verify" && here.round >= checked.round);
    this.waiting = running && !this.pinned && Boolean(isLast);
    if (!this.waiting) this.stepRound(1);
  }

  /** More of the race has come: take the step that was asked for before its round was there. */
  arrived() {
    if (this.waiting) this.nextRound();
  }

  update(t, label) {
    const { trace, running } = this.view;
    const value = trace.end ? Math.round((1000 * t) / trace.end) : 0;
    if (document.activeElement !== this.bar || !this.bar.matches(":active"))
      this.bar.value = String(value);
    this.bar.setAttribute("aria-valuetext", `${seconds(t)}, ${label}`);
    this.where.textContent = `${seconds(t)} · ${label}`;
    this.live.hidden = !(running && !this.pinned);
  }

  /** Space, arrows, Home and End anywhere in the race view that does not use them itself. */
  onKey(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || usesKey(e.target, e.key)) return;
    const act = {
      " ": () => this.toggle(),
      ArrowRight: () => this.step(1),
      ArrowLeft: () => this.step(-1),
      PageDown: () => this.stepRound(1),
      PageUp: () => this.stepRound(-1),
      Home: () => {
        this.pause();
        this.go(-1);
      },
      End: () => this.finish(),
    }[e.key];
    if (!act) return;
    act();
    e.preventDefault();
  }
}

/**
 * True where the key belongs to what has the focus: texts and menus, and space on what it presses.
 */
function usesKey({ tagName, type }, key) {
  if (tagName === "TEXTAREA" || tagName === "SELECT") return true;
  if (tagName === "INPUT") return type !== "range";
  return key === " " && ["BUTTON", "A", "SUMMARY"].includes(tagName);
}
