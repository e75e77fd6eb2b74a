// The ratio test with live draws: target and drafter side by side, what was drafted, whether it was
// accepted, and how often each token was kept so far.

import { h } from "./dom.js";
import { boxed, percent } from "./format.js";
import { acceptance, ratioPlace, residual, drawRatio } from "./lesson_models.js";
import { panel } from "./lesson_panel.js";

const MANY = 200;
const COLUMNS = ["token", "target's p", "drafter's q", "after a rejection", "kept so far"];

/** Nothing if the recording does not tell the drafter's and the target's probabilities. */
export function drawTask(trace, random = Math.random) {
  const place = ratioPlace(trace);
  return place ? new Draws(trace, place, random).root : "";
}

class Draws {
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
        button("Draw once", () => this.draw(1)),
        button(`Draw ${MANY} times`, () => this.draw(MANY)),
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
      { class: "sd-draw" },
      h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, body),
    );
  }

  reset() {
    this.counts = this.outcomes.map(() => 0);
    this.draws = 0;
    this.accepted = 0;
    this.said.textContent = "";
    this.total.textContent = "";
    for (const { root, kept, bar } of this.rows) {
      root.classList.remove("sd-draw-drafted", "sd-draw-kept");
      bar.style.setProperty("--p", 0);
      kept.textContent = "–";
    }
  }

  draw(n) {
    let result;
    for (let i = 0; i < n; i++) {
      result = drawRatio(this.outcomes, this.random);
      this.counts[result.kept] += 1;
      this.accepted += Number(result.accepted);
    }
    this.draws += n;
    this.show(result);
  }

  show(result) {
    const { accepted, counts, outcomes, draws } = this;
    this.rows.forEach(({ root, kept, bar }, k) => {
      root.classList.toggle("sd-draw-drafted", k === result.drafted);
      root.classList.toggle("sd-draw-kept", k === result.kept);
      const share = counts[k] / draws;
      bar.style.setProperty("--p", share);
      kept.textContent = percent(share);
    });
    this.said.textContent = this.drawWords(result);
    this.total.textContent = `${draws} draws: ${percent(accepted / draws)} accepted; the sum of min(p, q) is ${percent(acceptance(outcomes))}. The kept tokens come as often as the target's p says, whatever q is.`;
  }

  drawWords({ drafted, chance, draw, accepted, kept }) {
    const one = this.outcomes[drafted];
    const test = `Drafted “${this.word(one)}”: min(1, ${percent(one.p)} / ${percent(one.q)}) = ${percent(chance)}, drawn: ${percent(draw)}`;
    return accepted
      ? `${test}: accepted.`
      : `${test}: rejected; drawn from the residual: “${this.word(this.outcomes[kept])}”.`;
  }
}

function outcomeRow(word, { p, q }, left) {
  const bar = (value, cls) => h("i", { class: cls, style: `--p:${value}` });
  const cell = (value, cls) => h("td", {}, bar(value, cls), h("small", { text: percent(value) }));
  const kept = h("small", { text: "–" });
  const grown = bar(0, "sd-draw-count");
  const root = h(
    "tr",
    {},
    h("th", { scope: "row", text: word }),
    cell(p, "sd-draw-p"),
    cell(q, "sd-draw-q"),
    cell(left, "sd-draw-left"),
    h("td", {}, grown, kept),
  );
  return { root, kept, bar: grown };
}
