// The lesson: a card with words beside the same race view, which it loads, moves to the right
// moment and points at.

import { h, reducedMotion, watchTheme } from "./dom.js";
import { list } from "./format.js";
import { Handout } from "./handout.js";
import { experimentOf } from "./lesson_experiments.js";
import { withFigures } from "./lesson_figures.js";
import { pickRound } from "./lesson_rounds.js";
import { costTask, guessTask, knobTask } from "./lesson_tasks.js";
import { wordsAndPapers } from "./lesson_words.js";
import { lessonPlace, showPlace } from "./place.js";
import { Trace } from "./trace.js";
import { View } from "./view.js";

const SIDE_BY_SIDE = "(min-width: 1180px)"; // words and race beside each other

export class Lesson {
  /** `content` is what ui/lesson.py makes: {steps, glossary, papers, curve, sweeps}. */
  constructor(element, { server, content }) {
    this.server = server;
    this.content = content;
    this.steps = list(content.steps);
    this.traces = new Map(); // recordings that have come, by name
    this.at = -1; // the step on screen
    this.shown = null; // the recording on screen
    const race = h("div");
    this.view = new View(race, { server });
    this.experiment = h("div", { class: "sd-experiments" }); // to do above the race
    const stage = h("div", { class: "sd-lesson-view" }, this.experiment, race);
    this.count = h("span", { class: "sd-unit" });
    this.title = h("h2", { class: "sd-lesson-title", tabindex: -1 });
    this.words = h("div", { class: "sd-lesson-words" });
    this.tasks = h("div", { class: "sd-lesson-play" });
    this.handout = new Handout(content, (name) => this.folded(name));
    this.root = h("div", { class: "sd sd-lesson-root" }, this.card(), stage, this.handout.root);
    element.replaceChildren(this.root);
    watchTheme(this.root, false);
    this.go(this.asked() ?? 0, true);
    window.addEventListener("hashchange", () => this.go(this.asked() ?? this.at, true));
  }

  /** The step that the address names; null if none. */
  asked() {
    const id = lessonPlace(location.hash);
    const at = this.steps.findIndex((step) => step.id === id);
    return at < 0 ? null : at;
  }

  card() {
    const button = (text, cls, act) =>
      h("button", { type: "button", class: cls, text, onclick: act });
    this.back = button("◀ Back", "sd-btn", () => this.go(this.at - 1));
    this.next = button("Next ▶", "sd-btn sd-next", () => this.go(this.at + 1));
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
    return h(
      "section",
      { class: "sd-card sd-lesson", "aria-label": "Lesson" },
      h("div", { class: "sd-lesson-head" }, this.dots, this.count),
      this.title,
      this.words,
      this.tasks,
      h("div", { class: "sd-lesson-nav" }, this.back, this.next),
      wordsAndPapers(this.content),
    );
  }

  receive() {} // the page sends the lesson nothing

  async trace(name) {
    if (!this.traces.has(name))
      this.traces.set(name, list(await this.server.recorded_trace({ name })));
    return this.traces.get(name);
  }

  /** The recording of this name, as the views read it. */
  async folded(name) {
    const trace = new Trace();
    for (const event of await this.trace(name)) trace.push(event);
    return trace;
  }

  /** To step i; `quiet` moves neither the focus nor the page. */
  async go(i, quiet) {
    if (i < 0 || i >= this.steps.length || i === this.at) return;
    this.at = i;
    const step = this.steps[i];
    this.showWords(step, i);
    if (!quiet) {
      this.title.focus({ preventScroll: true });
      showPlace(`lesson-${step.id}`);
    }
    await this.stage(step, step.trace);
    if (this.at !== i) return;
    this.showTexts(step, this.view.trace);
    if (step.knob) this.tasks.append(knobTask(this, step));
    if (step.ask) this.tasks.append(guessTask(this, step));
    if (step.cost) this.tasks.append(costTask(this.view.trace));
    this.experiment.replaceChildren(experimentOf(step, this.view.trace, this.content));
    this.point(step);
    this.handout.fillWhenSeen(this.root);
    if (!quiet && matchMedia(SIDE_BY_SIDE).matches) this.showPoint("nearest");
  }

  showWords(step, i) {
    this.count.textContent = `step ${i + 1} of ${this.steps.length}`;
    this.title.textContent = step.title;
    this.showTexts(step, new Trace());
    this.tasks.replaceChildren();
    this.experiment.replaceChildren();
    this.back.disabled = i === 0;
    this.next.disabled = i === this.steps.length - 1;
    [...this.dots.children].forEach((dot, k) => {
      dot.classList.toggle("sd-now", k === i);
      dot.classList.toggle("sd-past", k < i);
      dot.setAttribute("aria-current", k === i ? "step" : "false");
    });
  }

  /** The step's texts, with the figures of its recording as far as it has come. */
  showTexts(step, trace) {
    const words = withFigures(list(step.text), trace).map((text) => h("p", { text }));
    words.push(this.lookAt(step.look));
    if (step.teacher) {
      const summary = h("summary", { text: "For the teacher" });
      const notes = withFigures(step.teacher, trace).map((text) => h("p", { text }));
      words.push(h("details", {}, summary, notes));
    }
    this.words.replaceChildren(...words);
  }

  lookAt(words) {
    const button = h("button", {
      type: "button",
      class: "sd-btn sd-show",
      text: "Show me",
      onclick: () => this.showPoint(),
    });
    return h("p", { class: "sd-look" }, h("strong", { text: "Look at: " }), words, " ", button);
  }

  /** Load the step's recording, stand at its moment, open its view, point at its parts. */
  async stage(step, name) {
    const events = await this.trace(name);
    const { view } = this;
    if (this.shown !== name) {
      const id = `lesson-${name}-${Math.random()}`;
      view.receive({
        type: "events",
        run: { id, live: false, play: false },
        offset: 0,
        events,
      });
      this.shown = name;
    }
    view.roundView.choose(step.tab || null);
    const rejected = this.root.querySelector(".sd-lesson-view .sd-legend input");
    if (rejected && rejected.checked !== Boolean(step.rejected)) rejected.click();
    this.stand(step.moment || {});
    this.point(step);
  }

  /** Frames the parts that the step is about. */
  point(step) {
    const parts = (selector) => this.root.querySelectorAll(`.sd-lesson-view ${selector}`);
    parts(".sd-point").forEach((part) => part.classList.remove("sd-point"));
    for (const part of list(step.points))
      parts(`[data-part="${part}"]`).forEach((node) => node.classList.add("sd-point"));
  }

  showPoint(block = "center") {
    const part = this.root.querySelector(".sd-point");
    if (part) part.scrollIntoView({ block, behavior: reducedMotion() ? "auto" : "smooth" });
  }

  /** Moves the playhead to a moment of a step: {play}, {at: "start" or "end"}, {round, stage}. */
  stand(moment) {
    const { player, trace } = this.view;
    player.pause();
    if (moment.play) {
      player.go(-1);
      if (reducedMotion()) player.finish();
      else player.play();
      return;
    }
    if (moment.at === "start") {
      player.go(-1);
      return;
    }
    if (moment.at === "end" || !trace.rounds.length) {
      player.finish();
      return;
    }
    const { index } = pickRound(trace, moment.round);
    const find = (kind) =>
      trace.timeline.findIndex((step) => step.round === index && (!kind || step.kind === kind));
    const at = find(moment.stage || "verify");
    player.go(at >= 0 ? at : find(null));
  }
}
