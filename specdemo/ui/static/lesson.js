// The lesson: a card with words beside the same race view, which it loads, moves to the right moment and points at.

class Lesson {
  constructor(element, { server, steps }) {
    this.server = server;
    this.steps = list(steps);
    this.traces = new Map();
    this.at = -1;
    const stage = h("div", { class: "sd-lesson-view" });
    this.view = new View(stage, { server });
    this.count = h("span", { class: "sd-unit" });
    this.title = h("h2", { class: "sd-lesson-title", tabindex: -1 });
    this.words = h("div", { class: "sd-lesson-words" });
    this.play = h("div", { class: "sd-lesson-play" });
    this.back = h("button", {
      type: "button",
      class: "sd-btn",
      text: "◀ Back",
      onclick: () => this.go(this.at - 1),
    });
    this.next = h("button", {
      type: "button",
      class: "sd-btn sd-next",
      text: "Next ▶",
      onclick: () => this.go(this.at + 1),
    });
    this.dots = h(
      "div",
      { class: "sd-dots", role: "group", "aria-label": "Steps of the lesson" },
      this.steps.map((step, i) =>
        h("button", {
          type: "button",
          class: "sd-dot",
          "aria-label": `Step ${i + 1}: ${step.title}`,
          title: step.title,
          text: String(i + 1),
          onclick: () => this.go(i),
        }),
      ),
    );
    this.card = h(
      "section",
      { class: "sd-card sd-lesson", "aria-label": "Lesson" },
      h("div", { class: "sd-lesson-head" }, this.dots, this.count),
      this.title,
      this.words,
      this.play,
      h("div", { class: "sd-lesson-nav" }, this.back, this.next),
    );
    this.root = h("div", { class: "sd sd-lesson-root" }, this.card, stage);
    element.replaceChildren(this.root);
    watchTheme(this.root, false);
    this.go(0, true);
  }

  receive() {} // the page sends the lesson nothing

  async trace(name) {
    if (!this.traces.has(name))
      this.traces.set(name, list(await this.server.recorded_trace({ name })));
    return this.traces.get(name);
  }

  async go(i, quiet) {
    if (i < 0 || i >= this.steps.length || i === this.at) return;
    this.at = i;
    const step = this.steps[i];
    this.count.textContent = `step ${i + 1} of ${this.steps.length}`;
    this.title.textContent = step.title;
    this.words.replaceChildren(
      ...list(step.text).map((line) => h("p", { text: line })),
      ...(step.look
        ? [
            h(
              "p",
              { class: "sd-look" },
              h("strong", { text: "Look at: " }),
              step.look,
              " ",
              h("button", {
                type: "button",
                class: "sd-btn sd-show",
                text: "Show me",
                onclick: () => this.showPoint(),
              }),
            ),
          ]
        : []),
      ...(step.teacher
        ? [
            h(
              "details",
              {},
              h("summary", { text: "For the teacher" }),
              h("p", { text: step.teacher }),
            ),
          ]
        : []),
    );
    this.play.replaceChildren();
    this.back.disabled = i === 0;
    this.next.disabled = i === this.steps.length - 1;
    [...this.dots.children].forEach((dot, k) => {
      dot.classList.toggle("sd-now", k === i);
      dot.classList.toggle("sd-past", k < i);
      dot.setAttribute("aria-current", k === i ? "step" : "false");
    });
    if (!quiet) this.title.focus({ preventScroll: true });
    await this.stage(step, step.trace);
    if (this.at !== i) return;
    if (step.knob) this.play.append(this.knob(step));
    if (step.ask) this.play.append(this.ask(step));
    if (step.cost) this.play.append(this.cost());
    if (!quiet && matchMedia("(min-width: 1180px)").matches) this.showPoint("nearest"); // words and picture stand side by side
  }

  /** Load the step's recording, stand at its moment, open its view, point at its parts. */
  async stage(step, name) {
    const events = await this.trace(name);
    const { view } = this;
    if (this.shown !== name) {
      view.receive({
        run: `lesson-${name}-${Math.random()}`,
        from: 0,
        events,
        live: false,
        play: false,
        badge: "recording",
      });
      this.shown = name;
    }
    view.roundView.choose(step.tab || null);
    this.stand(step.moment || {});
    view.root.querySelectorAll(".sd-point").forEach((part) => part.classList.remove("sd-point"));
    for (const part of list(step.points))
      view.root
        .querySelectorAll(`[data-part="${part}"]`)
        .forEach((node) => node.classList.add("sd-point"));
  }

  showPoint(block = "center") {
    const part = this.view.root.querySelector(".sd-point");
    if (part) part.scrollIntoView({ block, behavior: reducedMotion() ? "auto" : "smooth" });
  }

  stand(moment) {
    const { view } = this,
      { player, trace } = view;
    player.pause();
    if (moment.play) {
      player.go(-1);
      if (!reducedMotion()) player.play();
      else player.finish();
      return;
    }
    if (moment.at === "end" || !trace.rounds.length) return player.finish();
    const round = this.pick(moment.round);
    const kinds = { draft: "draft", verify: "verify", denoise: "denoise" };
    const want = kinds[moment.stage] || "verify";
    const at = trace.beats.findIndex((b) => b.round === round.index && b.kind === want);
    player.go(at >= 0 ? at : trace.beats.findIndex((b) => b.round === round.index));
  }

  /** A round worth showing: most kept, least kept, broken in the middle, branching, or a number. */
  pick(which) {
    const rounds = this.view.trace.rounds.filter(
      (r) => r.verify && r.draft && r.draft.tokens.length,
    );
    const all = rounds.length ? rounds : this.view.trace.rounds;
    const most = (score) => all.reduce((best, r) => (score(r) > score(best) ? r : best), all[0]);
    if (which === "best") return most((r) => r.accepted);
    if (which === "worst") return most((r) => -r.accepted);
    if (which === "broken")
      return most((r) =>
        r.verify.kept.some((k) => k.source === "correction") ? Math.min(r.accepted, 4) : -1,
      );
    if (which === "bonus")
      return most((r) =>
        r.verify.kept.some((k) => k.source === "bonus") ? 10 + r.accepted : r.accepted,
      );
    if (which === "branching")
      return most((r) =>
        r.draft && acceptedPath(r).some((node, k) => node !== k) ? r.accepted : -1,
      );
    return all[clamp(num(which), 0, all.length - 1)];
  }

  /** Several recordings that differ in one setting. */
  knob(step) {
    const note = h("p", { class: "sd-key", text: "" });
    const told = () => {
      const { trace } = this.view,
        n = trace.rounds.length;
      const kept = trace.rounds.reduce((sum, r) => sum + r.accepted, 0);
      note.textContent = `${n} rounds, ${(kept / Math.max(n, 1)).toFixed(2)} accepted drafts per round, ${times(num(trace.done && trace.done.result.speedup, 1))} the speed of plain decoding.`;
    };
    const buttons = step.knob.options.map((o) =>
      h("button", {
        type: "button",
        class: "sd-btn",
        "aria-pressed": String(o.trace === step.trace),
        text: o.label,
        onclick: async (e) => {
          buttons.forEach((b) => b.setAttribute("aria-pressed", String(b === e.currentTarget)));
          await this.stage(step, o.trace);
          told();
        },
      }),
    );
    told();
    return h(
      "div",
      { class: "sd-ask", role: "group", "aria-label": step.knob.label },
      h("p", {}, h("strong", { text: step.knob.label })),
      h("div", { class: "sd-choices" }, buttons),
      note,
    );
  }

  /** A question to answer before looking; the answer comes from the recording where it can. */
  ask(step) {
    const ask = step.ask;
    let options = list(ask.options),
      right = num(ask.answer),
      why = str(ask.why),
      question = str(ask.question);
    if (ask.kind === "accepted") {
      const round = this.pick((step.moment || {}).round),
        n = Math.max(...round.draft.depth);
      options = Array.from({ length: Math.min(n, 15) + 1 }, (_, k) => String(k));
      right = round.accepted;
      question = `The longest branch of this draft has ${plural(n, "token")}. How many will the target keep?`;
      why =
        right === n
          ? "All of them: then the target's own next token comes on top, for free."
          : `${right}. The first wrong token ends the round: everything after it was drafted on a wrong beginning.`;
    }
    const answer = h("p", { class: "sd-answer", role: "status" });
    const buttons = options.map((text, k) =>
      h("button", {
        type: "button",
        class: "sd-btn",
        text,
        onclick: () => {
          buttons.forEach((b, i) => {
            b.classList.toggle("sd-right", i === right);
            b.setAttribute("aria-pressed", String(i === k));
          });
          answer.textContent = `${k === right ? "✓ Right. " : "✗ Not quite. "}${why}`;
          if (ask.kind === "accepted") this.stand({ ...step.moment, stage: "verify" });
        },
      }),
    );
    return h(
      "div",
      { class: "sd-ask", role: "group", "aria-label": "Question" },
      h("p", {}, h("strong", { text: `Guess first: ${question}` })),
      h("div", { class: "sd-choices" }, buttons),
      answer,
    );
  }

  /** The break-even calculation with one slider. */
  cost() {
    const { trace } = this.view,
      rounds = trace.rounds.filter((r) => r.verify);
    const mean = (f) => rounds.reduce((sum, r) => sum + f(r), 0) / Math.max(rounds.length, 1);
    const draft = mean((r) => num(r.verify.draft_seconds) * 1000),
      check = mean((r) => num(r.verify.verify_seconds) * 1000);
    const last = trace.ar[trace.ar.length - 1],
      plain = last ? (last.t * 1000) / Math.max(trace.ar.length - 1, 1) : 1;
    const out = h("p", { class: "sd-answer", role: "status" });
    const slider = h("input", {
      type: "range",
      min: 1,
      max: 8,
      step: 0.1,
      value: mean((r) => r.count).toFixed(1),
      "aria-label": "Tokens per round",
      class: "sd-scrub",
      oninput: () => tell(),
    });
    const tell = () => {
      const tau = Number(slider.value),
        gain = (tau * plain) / (draft + check);
      slider.setAttribute("aria-valuetext", `${tau} tokens per round, ${times(gain)}`);
      out.textContent = `${tau.toFixed(1)} tokens per round × ${plain.toFixed(1)} ms (one plain token) ÷ (${draft.toFixed(1)} ms draft + ${check.toFixed(1)} ms check) = ${times(gain)} ${gain >= 1 ? "– it pays." : "– it does not pay."} Break-even lies at ${((draft + check) / plain).toFixed(2)} tokens per round.`;
    };
    tell();
    return h(
      "div",
      { class: "sd-ask", role: "group", "aria-label": "Break-even" },
      h("p", {}, h("strong", { text: "Move one knob: tokens per round" })),
      slider,
      out,
    );
  }
}
