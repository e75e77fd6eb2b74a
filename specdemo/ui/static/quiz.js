// A quiz for the room: the replay stops in each round when its draft is complete, before the
// verdict, and asks how much of it the target will keep.

import { h } from "./dom.js";
import { plural } from "./format.js";
import { acceptedQuestion } from "./lesson_tasks.js";

const AT = 0.5; // share of a round on screen: drafted, not yet verified

export class Quiz {
  constructor(view) {
    this.view = view;
    this.on = h("input", {
      type: "checkbox",
      onchange: () => this.close(),
    });
    this.switch = h(
      "label",
      {
        class: "sd-quiz-switch",
        title: "Stop each round before the verdict and let the room guess",
      },
      this.on,
      " quiz",
    );
    this.root = h("div", {
      class: "sd-share-box sd-quiz",
      hidden: true,
      role: "group",
      "aria-label": "Quiz",
    });
    this.reset();
  }

  reset() {
    this.asked = new Set(); // rounds, by index
    this.right = 0;
    this.open = null; // the round that waits for its answer
    this.root.hidden = true;
  }

  /**
   * The moment of the next question after t and up to `next` seconds, of whose round `round` then
   * is; else null.
   */
  stopBetween(t, next) {
    if (!this.on.checked || this.view.running) return null;
    const round = this.view.trace.rounds.find(
      (r) => r.verify && r.draft?.tokens.length && !this.asked.has(r.index) && pause(r) > t,
    );
    return round && pause(round) <= next ? { round, t: pause(round) } : null;
  }

  ask(round) {
    const { trace } = this.view;
    this.asked.add(round.index);
    this.open = round;
    const { question, options, answer } = acceptedQuestion(round, (id) => trace.word(id));
    const reply = h("span", { role: "status" });
    const buttons = options.map(({ text, why }, k) =>
      h("button", {
        type: "button",
        class: "sd-btn",
        text,
        onclick: () => {
          if (this.open !== round) return;
          this.open = null;
          this.right += Number(k === answer);
          buttons.forEach((button, i) => button.classList.toggle("sd-right", i === answer));
          const verdict = k === answer ? "✓ Right." : "✗";
          reply.textContent = `${verdict} ${why} ${this.right} of ${plural(this.asked.size, "question")} right.`;
          this.reveal(round);
          onward.hidden = false;
          onward.focus();
        },
      }),
    );
    const onward = h("button", {
      type: "button",
      class: "sd-btn sd-next",
      text: "Go on",
      hidden: true,
      onclick: () => {
        this.root.hidden = true;
        this.view.player.play();
      },
    });
    this.root.replaceChildren(h("strong", { text: question }), ...buttons, onward, reply);
    this.root.hidden = false;
    buttons[0].focus();
  }

  /** The verdict of this round. */
  reveal(round) {
    const { player, trace } = this.view;
    const at = trace.timeline.findIndex(
      (step) => step.round === round.index && step.kind === "verify",
    );
    player.go(at);
  }

  close() {
    this.open = null;
    this.root.hidden = true;
  }
}

const pause = ({ t0, t1 }) => t0 + (t1 - t0) * AT;
