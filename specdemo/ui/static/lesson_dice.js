// The ratio test with live dice: target and drafter side by side, what was drafted, whether it was
// accepted, and how often each token was kept so far.

import { h } from "./dom.js";
import { boxed, percent } from "./format.js";
import { acceptance, ratioPlace, residual, rollRatio } from "./lesson_models.js";
import { panel } from "./lesson_panel.js";

const MANY = 200;
const COLUMNS = ["token", "target's p", "drafter's q", "after a rejection", "kept so far"];

/** Nothing if the recording does not tell the drafter's and the target's probabilities. */
export function diceTask(trace, random = Math.random) {
  const place = ratioPlace(trace);
  return place ? new Dice(trace, place, random).root : "";
}

class Dice {
  constructor(trace, { token, outcomes }, random) {
    this.trace = trace;
    this.outcomes = outcomes;
    this.random = random;
    this.said = h("p", { class: "sd-answer", role: "status" });
    this.total = h("p", { class: "sd-key" });
    const left = residual(outcomes);
    this.rows = outcomes.map((one, k) => outcomeRow(this.word(one), one, left[k]));
    const button = (text, onclick) =>
      h("button", { type: "button", class: "sd-btn", text, onclick });
    this.root = panel(
      `The ratio test for one position of this recording: token ${token.position + 1}`,
      this.table(),
      h(
        "div",
        { class: "sd-choices" },
        button("Roll once", () => this.roll(1)),
        button(`Roll ${MANY} times`, () => this.roll(MANY)),
        button("Begin again", () => this.reset()),
      ),
      this.said,
      this.total,
    );
    this.reset();
  }

  word({ id }) {
    return id === null ? "any other token" : boxed(this.trace.word(id), 16);
  }

  table() {
    const head = COLUMNS.map((text) => h("th", { scope: "col", text }));
    const body = this.rows.map(({ root }) => root);
    return h(
      "table",
      { class: "sd-dice" },
      h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, body),
    );
  }

  reset() {
    this.counts = this.outcomes.map(() => 0);
    this.rolls = 0;
    this.accepted = 0;
    this.said.textContent = "";
    this.total.textContent = "";
    for (const { root, kept, bar } of this.rows) {
      root.classList.remove("sd-dice-drafted", "sd-dice-kept");
      bar.style.setProperty("--p", 0);
      kept.textContent = "–";
    }
  }

  roll(n) {
    let result;
    for (let i = 0; i < n; i++) {
      result = rollRatio(this.outcomes, this.random);
      this.counts[result.kept] += 1;
      this.accepted += Number(result.accepted);
    }
    this.rolls += n;
    this.show(result);
  }

  show(result) {
    const { accepted, counts, outcomes, rolls } = this;
    this.rows.forEach(({ root, kept, bar }, k) => {
      root.classList.toggle("sd-dice-drafted", k === result.drafted);
      root.classList.toggle("sd-dice-kept", k === result.kept);
      const share = counts[k] / rolls;
      bar.style.setProperty("--p", share);
      kept.textContent = percent(share);
    });
    this.said.textContent = this.rollWords(result);
    this.total.textContent = `${rolls} rolls: ${percent(accepted / rolls)} accepted; the sum of min(p, q) is ${percent(acceptance(outcomes))}. The kept tokens come as often as the target's p says, whatever q is.`;
  }

  rollWords({ drafted, chance, dice, accepted, kept }) {
    const one = this.outcomes[drafted];
    const test = `Drafted “${this.word(one)}”: min(1, ${percent(one.p)} / ${percent(one.q)}) = ${percent(chance)}, the dice say ${percent(dice)}`;
    return accepted
      ? `${test}: accepted.`
      : `${test}: rejected; drawn from the residual: “${this.word(this.outcomes[kept])}”.`;
  }
}

function outcomeRow(word, { p, q }, left) {
  const bar = (value, cls) => h("i", { class: cls, style: `--p:${value}` });
  const cell = (value, cls) => h("td", {}, bar(value, cls), h("small", { text: percent(value) }));
  const kept = h("small", { text: "–" });
  const grown = bar(0, "sd-dice-count");
  const root = h(
    "tr",
    {},
    h("th", { scope: "row", text: word }),
    cell(p, "sd-dice-p"),
    cell(q, "sd-dice-q"),
    cell(left, "sd-dice-left"),
    h("td", {}, grown, kept),
  );
  return { root, kept, bar: grown };
}
