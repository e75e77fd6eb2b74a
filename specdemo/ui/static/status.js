// Sentences about the race: one above it that everybody sees, one that screen readers announce,
// and the facts below it.

import { h } from "./dom.js";
import { plural } from "./format.js";

const ANNOUNCE_MS = 4000; // between two announcements while things move

/** A sentence above the race, about its state or an error. */
export class Banner {
  constructor() {
    this.root = h("p", { class: "sd-banner", hidden: true });
  }

  get showsError() {
    return !this.root.hidden && this.root.classList.contains("sd-banner-error");
  }

  /** `kind` is status or error; an empty text hides the banner. */
  show(text, kind) {
    this.root.textContent = text;
    this.root.hidden = !text;
    this.root.className = `sd-banner sd-banner-${kind}`;
    this.root.setAttribute("role", kind === "error" ? "alert" : "status");
    if (kind === "error" && this.root.checkVisibility()) {
      const { top, bottom } = this.root.getBoundingClientRect();
      // on a phone the button that was pressed is far above
      if (top < 0 || bottom > innerHeight - 100) this.root.scrollIntoView({ block: "center" });
    }
  }
}

/** Announces verified rounds to screen readers. */
export class Announcer {
  constructor() {
    this.root = h("p", { class: "sd-sr", role: "status", "aria-live": "polite" });
    this.at = 0; // when it last announced a round
    this.reset();
  }

  reset() {
    this.last = -1; // index of the round announced last
    this.root.textContent = "";
  }

  /** A verified round is on screen; not all are announced while the playhead moves. */
  announce({ index, draft, accepted, count }, isMoving) {
    if (index === this.last) return;
    const now = performance.now();
    if (isMoving && now - this.at < ANNOUNCE_MS) return;
    this.at = now;
    this.last = index;
    const drafts =
      draft && draft.tokens.length
        ? `${plural(accepted, "draft token")} accepted`
        : "nothing drafted";
    this.root.textContent = `Round ${index + 1}: ${drafts}, ${plural(count, "token")} generated.`;
  }
}

/** How far a prompt is read, or a serving engine's lane that is told later is written. */
export function readingWords({ lane, read, total }) {
  if (!lane) return `Reading the prompt: ${read} of ${total} tokens.`;
  const which = lane === "ar" ? "plain" : "speculative";
  return `The ${which} endpoint writes: ${read} of at most ${total} tokens; both lanes are shown together.`;
}

const optionsOf = ({ params }) =>
  Object.entries(params)
    .map(([name, value]) => `${name} ${value}`)
    .join(", ");

/** What stands below the lanes about the race: pair, method, options, machine. */
export function factsOf({ sampling, ...start }) {
  return [
    start.pair,
    start.method,
    optionsOf(start),
    start.against && `left lane ${start.against.method} ${optionsOf(start.against)}`.trim(),
    `at most ${plural(start.max_new_tokens, "new token")}`,
    start.engine ? "the engine's own rule" : `rule ${start.rule}`,
    sampling.temperature
      ? `temperature ${sampling.temperature}, top-p ${sampling.top_p}, seed ${sampling.seed}`
      : "greedy",
    start.hardware,
    start.dtype,
    start.target_pass && `${start.target_pass} pass`,
    start.target_step === "general" && `through transformers' own model (${start.why_general})`,
    start.why_host && `not captured: ${start.why_host}`,
    start.weights === "none" ? "" : start.weights,
  ];
}
