// The race view: score, lanes, replay bar, the round, charts. Feed it events; it draws the moment at the playhead.

const BUSY = 1.5; // times the expected cost of the rounds, from where on something else was computing
const ROOM = 260; // pixels: player and a few lines of the lanes

class View {
  constructor(element, options) {
    this.id = `sd-${Math.random().toString(36).slice(2, 9)}`;
    this.options = options || {}; // {server, standalone}
    this.races = Boolean(element.closest("#race-view")); // the view beside the controls, not the lesson's
    this.trace = new Trace();
    this.running = false;
    this.run = null;
    this.total = 0; // events the server is known to have
    this.past = new Set(); // runs that something else has replaced
    this.root = h("div", { class: "sd", "data-theme": "light" });
    this.tip = new Tip(this.root);
    this.spoken = h("p", { class: "sd-sr", role: "status", "aria-live": "polite" });
    this.banner = h("p", { class: "sd-banner", hidden: true });
    this.player = new Player(this);
    this.lanes = { ar: new Lane("ar", this), spec: new Lane("spec", this) };
    this.roundView = new RoundView(this);
    this.charts = new Charts(this);
    this.root.append(
      this.head(),
      this.banner,
      this.score(),
      h("div", { class: "sd-lanes" }, this.lanes.ar.root, this.lanes.spec.root),
      this.legend(),
      this.facts,
      this.player.root,
      this.roundView.root,
      this.charts.root,
      this.foot(),
      this.spoken,
    );
    this.root.addEventListener("keydown", (e) => {
      if (e.key === "Escape") this.tip.hide();
      this.player.key(e);
    });
    element.replaceChildren(this.root);
    document.addEventListener(
      "keydown",
      (this.pageKey = (e) => {
        // with nothing focused the keys belong to the view that is on screen
        if (!this.root.isConnected) document.removeEventListener("keydown", this.pageKey);
        else if (e.target === document.body && this.root.checkVisibility()) this.player.key(e);
      }),
    );
    watchTheme(this.root, this.options.standalone);
  }

  head() {
    this.badge = h("span", { class: "sd-badge", text: "recording" });
    this.prompt = h("p", { class: "sd-prompt", dir: "auto" });
    this.facts = h("p", { class: "sd-facts" });
    return h(
      "div",
      { class: "sd-head", "data-part": "head" },
      h("div", { class: "sd-headline" }, this.badge, this.prompt),
    );
  }

  score() {
    this.times = h("strong", { class: "sd-times", text: "–" });
    this.timesWord = h("span", { class: "sd-unit", text: "speed-up so far" });
    this.timesNote = h("span", { class: "sd-unit sd-times-note", text: "" });
    this.perRound = h("strong", { text: "–" });
    this.keptPer = h("strong", { text: "–" });
    this.verdict = h("strong", { class: "sd-verdict-word", text: "–" });
    this.verdictNote = h("span", { class: "sd-unit", text: "" });
    const cell = (part, value, ...words) =>
      h("div", { class: "sd-score-cell", "data-part": part }, value, words);
    return h(
      "div",
      { class: "sd-scores" },
      cell("speedup", this.times, this.timesWord, this.timesNote),
      cell("per-round", this.perRound, h("span", { class: "sd-unit", text: "tokens per round" })),
      cell(
        "accepted",
        this.keptPer,
        h("span", { class: "sd-unit", text: "accepted drafts per round" }),
      ),
      cell("verdict", this.verdict, this.verdictNote),
    );
  }

  legend() {
    const one = (kind, word) =>
      h(
        "li",
        {},
        h("span", { class: `sd-tok sd-${kind}` }, sign(), "word"),
        h("span", { text: word }),
      );
    this.showFallen = h("input", {
      type: "checkbox",
      checked: true,
      onchange: () => this.root.classList.toggle("sd-hide-fallen", !this.showFallen.checked),
    });
    return h(
      "div",
      { class: "sd-legend", "data-part": "legend" },
      h(
        "ul",
        { "aria-label": "Legend" },
        one("accepted", "accepted draft"),
        one("correction", "corrected"),
        one("bonus", "bonus, all were right"),
        one("plain", "written alone"),
        one("rejected", "rejected"),
        one("ghost-word", "not checked yet"),
      ),
      h("label", {}, this.showFallen, " show rejected"),
    );
  }

  foot() {
    const button = (text, act) =>
      h("button", { type: "button", class: "sd-btn", text, onclick: act });
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
    const name = () =>
      `specdemo-${str(this.trace.start.method).replace(/[^a-z0-9-]/gi, "") || "trace"}`;
    return h(
      "div",
      { class: "sd-foot", "data-part": "save" },
      button(
        "Download trace",
        () => this.nothingYet() || save(`${name()}.json`, this.trace.json(), "application/json"),
      ),
      this.options.server && this.options.server.export_page
        ? button("Download as web page", () => this.nothingYet() || this.download(name()))
        : null,
      button("Load a trace…", () => this.file.click()),
      this.file,
      this.options.standalone ? null : button("Share link", () => this.share()),
      this.link,
    );
  }

  // -- what comes in ---------------------------------------------------------------------------------------------------------

  /** A message from the page: new events of a run, a word about its state, a step, or a refusal. */
  receive(message) {
    if (!message || typeof message !== "object") return;
    if (message.ask) remember((this.asked = message.ask));
    if (message.run !== undefined && message.run !== this.run) {
      if (this.past.has(message.run)) return; // its last words come after what took its place
      this.begin(message);
    }
    if (message.refusal) return this.refused(message.refusal, num(message.total));
    if (message.ask && !this.running) this.player.pause(); // what was shown so far is not what was asked for
    if (message.status && (message.run === undefined || this.running))
      this.say(message.status, "status"); // not what a stopped run still says of its model
    // the page sends text, so that Gradio's streaming has no nested data to patch piece by piece
    if (message.events)
      this.take(
        num(message.from),
        typeof message.events === "string" ? JSON.parse(message.events) : list(message.events),
      );
    if (message.ack) this.tellWhenDrawn(message.run);
    if (message.advance) this.player.nextRound();
    if (message.ended) this.ended(num(message.total));
  }

  begin(message) {
    this.past.add(this.run);
    this.run = message.run;
    this.runs(Boolean(message.live));
    this.trace = new Trace();
    this.total = 0;
    this.say("", "status");
    this.player.reset(!message.stepping);
    Object.values(this.lanes).forEach((lane) => lane.reset());
    this.roundView.reset();
    this.charts.reset();
    this.badge.textContent = message.live ? "live" : message.badge || "recording";
    this.badge.classList.toggle("sd-badge-live", Boolean(message.live));
    if (this.races) document.body.classList.toggle("sd-loaded", Boolean(message.loaded)); // Plotly's chart is drawn by the server, which has not seen this trace
    this.autoplay = !message.live && message.play !== false && !reducedMotion();
    this.spokenRound = -1;
    if (message.live && this.asked) {
      this.trace.start = this.asked;
      this.showStart();
    } // until the race says so itself: the model may still be loading
    this.schedule();
    if (message.live && this.lanes.ar.root.getBoundingClientRect().top > innerHeight - ROOM)
      this.root.scrollIntoView({ block: "start" }); // on a phone the controls fill the screen
  }

  /** Events number `from` on. Windows may be merged by the browser on the way; a gap is filled from the server's copy. */
  take(from, events) {
    const have = this.trace.events.length;
    this.total = Math.max(this.total, from + events.length);
    if (from > have) return this.fetchMissing();
    if (from === 0 && !have && events.length && !this.refusing) this.say("", "status");
    for (const event of events.slice(have - from)) this.trace.push(event);
    if (this.trace.done) this.runs(false);
    this.showStart();
    this.player.arrived();
    if (this.autoplay && this.trace.events.length) {
      this.autoplay = false;
      this.player.play();
    }
    this.schedule();
  }

  async fetchMissing() {
    const run = this.run;
    if (this.fetching === run || !this.options.server) return;
    this.fetching = run;
    let events = null;
    while (run === this.run && this.trace.events.length < this.total) {
      const have = this.trace.events.length;
      events = await this.options.server.missing_events({ run, from: have });
      if (run !== this.run || !Array.isArray(events) || !events.length) break;
      this.take(have, events);
    }
    this.fetching = null;
  }

  /** While a race runs the page around the view keeps still: whatever moves there is drawn by the processor that may be computing. */
  runs(now) {
    this.running = now;
    this.player.halt.hidden = !now || !document.getElementById("stop");
    if (this.races) document.body.classList.toggle("sd-racing", now);
  }

  /** The engine may share its processor with this browser; it goes on when what it sent is on screen. */
  tellWhenDrawn(run) {
    nextFrame(() => setTimeout(() => this.options.server.drawn({ run, count: this.total }), 0));
  }

  ended(total) {
    const was = this.running;
    this.closeLive();
    this.catchUp(total);
    if (
      this.trace.events.length >= this.total &&
      !this.trace.done &&
      this.trace.events.length &&
      !this.refusing
    )
      this.say("Stopped. What was written so far stays here.", "status");
    else if (was && !this.total && !this.refusing)
      this.say("Stopped before the race began; Run starts it again.", "status");
    this.schedule();
  }

  /** What a run had written, or what was on screen before it, stays. */
  refused(words, total) {
    this.closeLive();
    this.say(words, "refusal");
    this.catchUp(total);
    this.schedule();
  }

  catchUp(total) {
    this.total = Math.max(this.total, total);
    if (this.trace.events.length < this.total) this.fetchMissing();
  }

  closeLive() {
    this.runs(false);
    if (this.badge.textContent !== "live") return;
    const whole = this.trace.done && !this.trace.done.stopped;
    this.badge.textContent = whole ? "finished" : "stopped";
    this.badge.classList.toggle("sd-badge-live", Boolean(whole));
  }

  get refusing() {
    return !this.banner.hidden && this.banner.classList.contains("sd-banner-refusal");
  }

  say(text, kind) {
    this.banner.textContent = text;
    this.banner.hidden = !text;
    this.banner.className = `sd-banner sd-banner-${kind}`;
    this.banner.setAttribute("role", kind === "refusal" ? "alert" : "status");
    if (kind === "refusal" && this.root.checkVisibility()) {
      const { top, bottom } = this.banner.getBoundingClientRect();
      if (top < 0 || bottom > innerHeight - 100) this.banner.scrollIntoView({ block: "center" }); // on a phone the button that was pressed is far above
    }
  }

  load(events, badge) {
    this.receive({
      run: `file-${Date.now()}-${Math.random()}`,
      events,
      badge: badge || "loaded trace",
      from: 0,
      live: false,
      play: true,
      loaded: true,
    });
  }

  async openFile(file) {
    this.file.value = "";
    if (!file) return;
    if (this.running)
      return this.say(
        "A race is running here. Press Stop or wait for its end, then load the trace.",
        "refusal",
      );
    const parsed =
      file.size > MAX_TRACE_BYTES
        ? parseTrace({ length: file.size })
        : parseTrace(await file.text());
    if (typeof parsed === "string") this.say(parsed, "refusal");
    else {
      this.load(parsed);
      this.warnIfCut();
    }
  }

  warnIfCut() {
    if (!this.trace.done)
      this.say("This recording ends before its race did; what it holds is shown.", "status");
  }

  /** True, and said, while there is nothing to save. */
  nothingYet() {
    if (this.trace.events.length) return false;
    this.say("There is nothing to save yet; wait until the race has begun.", "status");
    return true;
  }

  async download(name) {
    const answer = await this.options.server.export_page({ events: this.trace.events });
    if (answer && answer.html) save(`${name}.html`, answer.html, "text/html");
    else
      this.say(
        (answer && answer.refusal) || "The page could not be made; download the trace instead.",
        "refusal",
      );
  }

  share() {
    this.link.value = `${location.origin}${location.pathname}?${raceQuery(this.trace.start)}`;
    this.link.hidden = false;
    this.link.focus();
    this.link.select();
    if (navigator.clipboard)
      navigator.clipboard.writeText(this.link.value).then(
        () => this.say("The link is on the clipboard.", "status"),
        () => {},
      );
  }

  // -- what goes out: the moment at the playhead --------------------------------------------------------------------------------

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    nextFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  get goal() {
    return this.trace.done
      ? Math.max(this.trace.ar.length, this.trace.spec.length)
      : num(this.trace.start.max_new_tokens) || this.trace.ar.length;
  }

  /** How much of the trace is on screen. */
  moment() {
    const { trace, player } = this;
    const beats = trace.beats,
      at = player.pinned ? beats.length - 1 : player.beat;
    const beat = at >= 0 ? beats[at] : null;
    const ended = player.pinned || (at === beats.length - 1 && player.t >= trace.end);
    const round = (beat && trace.rounds[beat.round]) || null;
    const closed = Boolean(round && round.verify && (beat.kind === "verify" || beat.kind === "ar"));
    const spec =
      ended && !this.running
        ? trace.spec.length
        : !round
          ? Math.min(1, trace.spec.length)
          : closed
            ? round.first + round.count
            : round.first;
    const t = player.pinned ? trace.end : player.t;
    const ar = ended ? trace.ar.length : countUntil(trace.ar, t);
    const last = (tokens, n) => (n ? tokens[n - 1].t : 0);
    return {
      t,
      beat,
      round,
      ended,
      ar,
      spec: Math.min(spec, trace.spec.length),
      stage: closed ? "verify" : beat && beat.kind === "draft" ? "draft" : "denoise",
      arClock: ar < trace.ar.length && !player.pinned ? t : last(trace.ar, ar),
      specClock:
        ended || (closed && beat.round === trace.rounds.length - 1)
          ? last(trace.spec, spec)
          : player.pinned
            ? last(trace.spec, spec)
            : t,
      rounds: !beat ? 0 : closed ? beat.round + 1 : Math.max(0, beat.round),
    };
  }

  draw() {
    const { trace } = this,
      m = this.moment();
    this.following = this.player.pinned || this.player.playing;
    const differs = firstDifference(trace, m.ar, m.spec);
    this.lanes.ar.update(m.ar, m.arClock, -1, differs);
    this.lanes.spec.update(m.spec, m.specClock, m.round ? m.round.index : -1, differs);
    this.lanes.spec.ghosts(
      m.round && m.stage !== "verify" ? ghostCells(trace, m.round, m.stage, m.beat.upto) : [],
    );
    const label = m.round
      ? `round ${m.round.index + 1} of ${trace.rounds.length}, ${{ denoise: "denoising", draft: "drafted", verify: "checked" }[m.stage]}`
      : "before the first round";
    this.player.update(m.t, label);
    this.roundView.update(m.round ? m.round.index : -1, m.stage, m.beat ? m.beat.upto : 0);
    this.scores(m, differs);
    this.charts.update(
      { ar: m.ar, spec: m.spec },
      m.t,
      m.rounds,
      !this.running && !this.player.playing,
    );
    this.speak(m);
  }

  scores(m, differs) {
    const { trace } = this,
      result = (trace.done && trace.done.result) || {};
    const over = m.ended && trace.done;
    const speed = (n, t) => (n > 1 && t > 0 ? (n - 1) / t : 0);
    const a = speed(m.ar, m.arClock),
      b = speed(m.spec, m.specClock);
    const rounds = trace.rounds.slice(0, m.rounds).filter((r) => r.verify),
      n = rounds.length;
    const series = speedupSeries(trace, rounds); // the chart's, so that card and chart never differ
    const ratio =
      over && maybe(result.speedup) !== null
        ? result.speedup
        : series.length
          ? series[series.length - 1][1]
          : a && b
            ? (b / a) * plainScale(trace)
            : null;
    this.times.textContent = ratio === null ? "–" : times(ratio);
    const even = trace.start.method === "ar" || (ratio !== null && times(ratio) === times(1));
    this.times.classList.toggle("sd-slower", !even && ratio !== null && ratio < 1);
    this.times.classList.toggle("sd-even", even);
    const soFar = over ? "" : ", so far";
    this.timesWord.textContent =
      ratio === null
        ? over
          ? "too short for a speed-up"
          : "speed-up so far"
        : speedWords(trace, ratio, even) + soFar;
    const scale = plainScale(trace),
      lanes = over ? a && b && b / a : ratio && ratio / scale; // live, both speak of the same tokens
    const yardstick =
      ratio === null || !lanes || scale > 0.97
        ? ""
        : `${times(lanes)} the left lane; the yardstick is a faster one-row kernel. `;
    const slow = slowdown(trace, rounds);
    this.timesNote.textContent =
      yardstick +
      (slow > BUSY
        ? `The machine was busy: rounds took ${times(slow)} what they cost when the model was loaded.`
        : "");
    const total = (key) => rounds.reduce((sum, r) => sum + r[key], 0);
    this.perRound.textContent = n ? (total("count") / n).toFixed(2) : "–";
    this.keptPer.textContent = n ? (total("accepted") / n).toFixed(2) : "–";
    const [word, note, cls] = verdict(trace, m, differs, over ? result : null);
    this.verdict.textContent = word;
    this.verdictNote.textContent = note;
    this.verdict.parentNode.className = `sd-score-cell sd-verdict-${cls}`;
  }

  speak(m) {
    const round = m.round && m.stage === "verify" ? m.round.index : null;
    if (round === null || round === this.spokenRound) return;
    const now = performance.now();
    if (this.player.playing || this.running) {
      if (now - (this.spokeAt || 0) < 4000) return;
    }
    this.spokeAt = now;
    this.spokenRound = round;
    const r = m.round;
    this.spoken.textContent = `Round ${round + 1}: ${r.draft && r.draft.tokens.length ? `${r.accepted} drafts accepted, ` : "nothing drafted, "}${plural(r.count, "token")} written.`;
  }

  showStart() {
    const { start } = this.trace;
    if (this.shownStart === start) return;
    this.shownStart = start;
    this.prompt.textContent = flow(start.prompt);
    const { sampling = {} } = start;
    const params = Object.entries(start.params || {})
      .map(([k, v]) => `${k} ${v}`)
      .join(", ");
    this.facts.textContent = [
      start.pair,
      start.method,
      params,
      `at most ${plural(num(start.max_new_tokens), "new token")}`,
      `rule ${str(start.rule)}`,
      num(sampling.temperature)
        ? `temperature ${sampling.temperature}, top-p ${num(sampling.top_p, 1)}, seed ${num(sampling.seed)}`
        : "greedy",
      start.hardware,
      start.dtype,
      start.weights,
    ]
      .filter(Boolean)
      .map(str)
      .join(" · ");
    this.lanes.ar.title.textContent = "Plain decoding";
    this.lanes.ar.sub.textContent = "one token per pass of the target";
    const plain = start.method === "ar";
    this.lanes.spec.title.textContent = plain
      ? "Plain decoding, once more"
      : `Draft and verify: ${str(start.method)}`;
    this.lanes.spec.sub.textContent = plain
      ? "nothing is drafted: what differs is noise"
      : "several tokens per pass of the target";
  }

  openToken(kind, i) {
    const token = this.trace[kind][i];
    if (!token) return;
    if (kind === "spec" && token.round !== null) this.openRound(token.round);
    else {
      this.player.pause();
      this.player.seek(token.t);
    }
  }

  openRound(r) {
    const at = this.trace.beats.findIndex((b) => b.round === r && b.kind === "verify");
    if (at >= 0) {
      this.player.pause();
      this.player.go(at);
    }
  }

  stepRound(by) {
    this.player.stepRound(by);
  }
}
