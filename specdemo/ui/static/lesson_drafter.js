// Be the drafter: the student chooses the next tokens, the target's recorded tokens check them.

import { h } from "./dom.js";
import { boxed, flow, plural } from "./format.js";
import { draftPlaces, keptOf, nextPlace } from "./lesson_models.js";
import { panel } from "./lesson_panel.js";

const LENGTH = 3; // tokens of a draft
const TEXT_BEFORE = 60; // tokens shown before the draft
const FIRST = 6; // the first draft begins here: a text to go by

/** Nothing if the recording does not tell the target's candidates. */
export function drafterTask(trace) {
  const all = draftPlaces(trace);
  if (nextPlace(all, FIRST, LENGTH) < 0) return "";
  return new DrafterGame(trace, all).root;
}

class DrafterGame {
  constructor(trace, all) {
    this.trace = trace;
    this.all = all;
    this.rounds = 0;
    this.kept = 0; // of the student's drafts
    this.before = h("p", { class: "sd-drafter-text", dir: "auto" });
    this.fields = h("div", { class: "sd-drafter-fields" });
    this.said = h("p", { class: "sd-answer", role: "status" });
    this.total = h("p", { class: "sd-key" });
    this.verify = h("button", {
      type: "button",
      class: "sd-btn",
      text: "Verify",
      onclick: () => this.check(),
    });
    this.onward = h("button", {
      type: "button",
      class: "sd-btn",
      text: "Next round",
      hidden: true,
      onclick: () => this.begin(this.next),
    });
    this.root = panel(
      "Be the drafter",
      this.before,
      this.fields,
      h("div", { class: "sd-choices" }, this.verify, this.onward),
      this.said,
      this.total,
    );
    this.begin(FIRST);
  }

  /** A draft that begins at the first open place from `from` on. */
  begin(from) {
    const { all, trace } = this;
    const found = nextPlace(all, from, LENGTH);
    this.at = found < 0 ? nextPlace(all, FIRST, LENGTH) : found;
    const earlier = trace.spec.slice(Math.max(0, this.at - TEXT_BEFORE), this.at);
    this.before.replaceChildren(
      h("strong", { text: `${flow(trace.start.prompt)} ` }),
      `${this.at > TEXT_BEFORE ? "… " : ""}${earlier.map(({ text }) => flow(text)).join("")}`,
      h("span", { class: "sd-drafter-here", text: " ▏" }),
    );
    this.selects = Array.from({ length: LENGTH }, (_, k) =>
      h(
        "select",
        { class: "sd-select", "aria-label": `Draft token ${k + 1}` },
        h("option", { value: "", text: "choose …" }),
        all[this.at + k].options.map((id) =>
          h("option", { value: id, text: boxed(trace.word(id), 24) }),
        ),
      ),
    );
    this.marks = this.selects.map(() => h("small", { text: "" }));
    this.fields.replaceChildren(
      ...this.selects.map((select, k) => h("label", {}, select, this.marks[k])),
    );
    this.said.textContent = "";
    this.verify.hidden = false;
    this.onward.hidden = true;
  }

  check() {
    const guesses = this.selects.map((select) => (select.value ? Number(select.value) : null));
    const open = guesses.indexOf(null);
    if (open >= 0) {
      this.said.textContent = "Choose a token for every position first.";
      this.selects[open].focus();
      return;
    }
    const kept = keptOf(guesses, this.all, this.at);
    this.selects.forEach((select, k) => {
      select.disabled = true;
      this.marks[k].textContent = k < kept ? "✓ accepted" : k === kept ? "✗ rejected" : "not read";
    });
    this.rounds += 1;
    this.kept += kept;
    this.next = this.at + kept + 1;
    this.say(kept);
    this.verify.hidden = true;
    this.onward.hidden = false;
    this.onward.focus();
  }

  say(kept) {
    const own = this.all[this.at + kept]?.token;
    const word = own ? `“${boxed(this.trace.word(own.id), 20)}”` : "";
    const how = kept < LENGTH ? "the target's own token there is" : "and as a bonus it adds";
    const ending = word ? `${kept < LENGTH ? "; " : ", "}${how} ${word}` : "";
    this.said.textContent = `The target keeps ${plural(kept, "token")} of your draft${ending}.`;
    const drafted = this.trace.rounds.filter((r) => r.draft?.tokens.length);
    const theirs = drafted.reduce((n, r) => n + Math.min(r.accepted, LENGTH), 0) / drafted.length;
    this.total.textContent = `You: ${(this.kept / this.rounds).toFixed(2)} of ${LENGTH} kept in ${plural(this.rounds, "round")}. The drafter of this recording: ${theirs.toFixed(2)} of its first ${LENGTH}.`;
  }
}
