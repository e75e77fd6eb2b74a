// The playhead: a moment of the race on the lanes' own clocks, and the bar that moves it.

const SPEEDS = [0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 4];

class Player {
  constructor(view) {
    this.view = view;
    this.t = 0;
    this.beat = -1; // index of the last beat shown
    this.pinned = true; // follow the newest event
    this.playing = false;
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
    this.speed = h(
      "select",
      {
        class: "sd-select",
        "aria-label": "Replay speed",
        onchange: () => {
          this.auto = false;
          this.rate = Number(this.speed.value);
        },
      },
      SPEEDS.map((v) => h("option", { value: v, text: `${v}×` })),
    );
    this.where = h("span", { class: "sd-where", text: "" });
    this.live = h("button", {
      type: "button",
      class: "sd-btn sd-live",
      text: "● follow live",
      hidden: true,
      onclick: () => this.pin(),
    });
    this.halt = h("button", {
      type: "button",
      class: "sd-btn sd-halt",
      text: "■ Stop",
      hidden: true,
      onclick: () => document.getElementById("stop").click(),
    }); // the page's own may be out of sight
    const button = (name, label, act) =>
      h(
        "button",
        { type: "button", class: "sd-btn", "aria-label": label, title: label, onclick: act },
        icon(name),
      );
    this.root = h(
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
      this.halt,
    );
    this.setRate(0.1);
    this.auto = true;
  }

  setRate(rate) {
    this.rate = rate;
    this.speed.value = String(rate);
  }

  /** Slow enough that a class can follow: the whole race in about twelve seconds. */
  choosePace() {
    if (!this.auto) return;
    const wanted = this.view.trace.end / 12;
    this.setRate(
      SPEEDS.reduce(
        (best, v) =>
          Math.abs(Math.log(v / (wanted || 1))) < Math.abs(Math.log(best / (wanted || 1)))
            ? v
            : best,
        0.1,
      ),
    );
  }

  reset(pinned) {
    this.pause();
    this.waiting = false;
    this.t = 0;
    this.beat = -1;
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
    this.choosePace();
    this.playing = true;
    this.button.replaceChildren(icon("pause"));
    this.button.setAttribute("aria-label", "Pause");
    this.lastFrame = null;
    const tick = (now) => {
      if (!this.playing || !this.root.isConnected) return this.pause();
      if (this.lastFrame !== null) this.advance(((now - this.lastFrame) / 1000) * this.rate);
      this.lastFrame = now;
      nextFrame(tick);
    };
    nextFrame(tick);
  }

  pause() {
    this.playing = false;
    this.button.replaceChildren(icon("play"));
    this.button.setAttribute("aria-label", "Play");
  }

  advance(dt) {
    const { trace } = this.view;
    this.t = Math.min(this.t + dt, trace.end);
    this.beat = this.beatAt(this.t);
    if (this.t >= trace.end) {
      this.beat = trace.beats.length - 1;
      if (trace.done || !this.view.running) this.pause();
      else this.pinned = true;
    }
    this.view.draw();
  }

  beatAt(t) {
    const { beats } = this.view.trace;
    let low = -1,
      high = beats.length - 1;
    while (low < high) {
      const mid = Math.ceil((low + high) / 2);
      if (beats[mid].t <= t) low = mid;
      else high = mid - 1;
    }
    return low;
  }

  seek(t) {
    this.pinned = false;
    this.t = clamp(t, 0, this.view.trace.end);
    this.beat =
      this.t >= this.view.trace.end ? this.view.trace.beats.length - 1 : this.beatAt(this.t);
    this.view.draw();
  }

  /** To beat number i; -1 is the start. */
  go(i) {
    const { beats } = this.view.trace;
    this.pinned = false;
    this.beat = clamp(i, -1, beats.length - 1);
    this.t = this.beat < 0 ? 0 : beats[this.beat].t;
    this.view.draw();
  }

  step(by) {
    this.pause();
    const here = this.pinned ? this.view.trace.beats.length - 1 : this.beat;
    this.go(here + by);
  }

  finish() {
    this.pause();
    this.pinned = true;
    this.view.draw();
  }

  pin() {
    this.pause();
    this.pinned = true;
    this.view.draw();
  }

  /** To the verdict of the next or previous round. */
  stepRound(by) {
    this.pause();
    const { beats } = this.view.trace;
    let i = (this.pinned ? beats.length : this.beat) + by;
    while (i >= 0 && i < beats.length && beats[i].kind !== "verify") i += by;
    if (i >= beats.length) this.finish();
    else this.go(i);
  }

  /** The Step button: on by one round, from the start again when the end is on screen. */
  nextRound() {
    const { trace, running } = this.view;
    if (!running && (this.pinned || this.t >= trace.end)) {
      this.go(-1);
      this.view.say(
        !trace.beats.length
          ? "The race was stopped before its first round; Run starts a new one."
          : "The race is over: Step goes through it again, from its first round. Run starts a new one.",
        "status",
      );
    }
    const checked = trace.beats.findLast((b) => b.kind === "verify"),
      here = this.beat < 0 ? null : trace.beats[this.beat];
    this.waiting =
      running &&
      !this.pinned &&
      (!checked || (here && here.kind === "verify" && here.round >= checked.round));
    if (!this.waiting) this.stepRound(1);
  }

  /** More of the race has come: take the step that was asked for before its round was there. */
  arrived() {
    if (this.waiting) this.nextRound();
  }

  update(t, label) {
    const { trace } = this.view;
    const value = trace.end ? Math.round((1000 * t) / trace.end) : 0;
    if (document.activeElement !== this.bar || !this.bar.matches(":active"))
      this.bar.value = String(value);
    this.bar.setAttribute("aria-valuetext", `${seconds(t)}, ${label}`);
    this.where.textContent = `${seconds(t)} · ${label}`;
    this.live.hidden = !(this.view.running && !this.pinned);
  }

  /** Space, arrows, Home and End anywhere in the race view that does not use them itself. */
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const tag = e.target.tagName,
      typed =
        tag === "TEXTAREA" || tag === "SELECT" || (tag === "INPUT" && e.target.type !== "range");
    if (typed || (e.key === " " && (tag === "BUTTON" || tag === "A" || tag === "SUMMARY"))) return;
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
