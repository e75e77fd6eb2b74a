// The figures on top: speed-up, tokens per round, accepted draft tokens, and whether both lanes
// write the same.

import { h } from "./dom.js";
import {
  baselineScale,
  borrowedWeights,
  clocks,
  comparison,
  predictedSeries,
  speedWords,
  speedupSeries,
  sum,
  tooShort,
} from "./figures.js";
import { times } from "./format.js";
import { Spark } from "./spark.js";
import { compareAll, overPlain, rightOverLeft } from "./two_methods.js";

const LOW = 258; // pixels that all figures and their notes need beside the lanes
const SAME_BASELINE = 0.97; // the left lane counts as the baseline from this share of its speed on

export class Score {
  constructor() {
    this.times = h("strong", { class: "sd-times", text: "–" });
    this.timesWord = h("span", { class: "sd-unit", text: "speed-up so far" });
    this.spark = new Spark();
    this.timesNote = h("span", { class: "sd-unit sd-times-note", text: "" });
    this.weightsNote = h("span", { class: "sd-unit sd-weights-note", text: "" });
    this.notesBelow = h("p", { class: "sd-notes-below" }); // on a narrow screen, below the stage
    this.perRound = h("strong", { text: "–" });
    this.accepted = h("strong", { text: "–" });
    this.verdict = h("strong", { class: "sd-verdict-word", text: "–" });
    this.verdictNote = h("span", { class: "sd-unit", text: "" });
    const unit = (text) => h("span", { class: "sd-unit", text });
    const cell = (part, ...content) =>
      h("div", { class: "sd-score-cell", "data-part": part }, content);
    this.verdictCell = cell("verdict", this.verdict, this.verdictNote);
    this.root = h(
      "div",
      { class: "sd-scores" },
      cell(
        "speedup",
        this.times,
        this.timesWord,
        this.spark.root,
        this.timesNote,
        this.weightsNote,
      ),
      cell("per-round", this.perRound, unit("tokens per round")),
      cell("accepted", this.accepted, unit("accepted draft tokens per round")),
      this.verdictCell,
    );
    this.watchRoom();
  }

  /** Where lanes and figures are low, the notes stand below the stage alone. */
  watchRoom() {
    const measure = () => this.root.classList.toggle("sd-scores-low", this.root.clientHeight < LOW);
    new ResizeObserver(measure).observe(this.root);
  }

  /**
   * Draws the figures at this state of the playhead; `differs` is the first position at which the
   * right lane differs from plain decoding, `leftDiffers` that of the left one, or -1.
   */
  update(trace, state, differs, leftDiffers) {
    const done = state.ended ? trace.done : null;
    const rounds = trace.rounds.slice(0, state.rounds).filter((r) => r.verify);
    this.updateSpeed(trace, state, rounds, done);
    this.spark.update(trace, rounds, state);
    const borrowed = borrowedWeights(trace.start)
      ? "Runs on borrowed weights: none are trained for this method yet. "
      : "";
    this.weightsNote.textContent = borrowed + (done?.note ?? "");
    this.notesBelow.textContent = `${this.timesNote.textContent} ${this.weightsNote.textContent}`;
    const mean = (value) => (rounds.length ? (sum(rounds, value) / rounds.length).toFixed(2) : "–");
    const served = done && done.served;
    if (served && served.rounds === "totals") {
      // what is drawn are bursts of several rounds
      this.perRound.textContent = served.tokens_per_round.toFixed(2);
      this.accepted.textContent = served.accepted_per_round.toFixed(2);
    } else {
      this.perRound.textContent = mean((r) => r.count);
      this.accepted.textContent = mean((r) => r.accepted);
    }
    const { word, note, look } = trace.against
      ? compareAll(trace, state, differs, leftDiffers)
      : comparison(trace, state, differs, done);
    this.verdict.textContent = word;
    this.verdictNote.textContent = note;
    this.verdictCell.className = `sd-score-cell sd-verdict-${look}`;
  }

  updateSpeed(trace, state, rounds, done) {
    if (trace.against) {
      this.updateTwo(trace, state, rounds, done);
      return;
    }
    const lanes = laneRatio(state);
    const { unreliable, words } = clocks(trace, state.ar, rounds);
    const scale = baselineScale(trace);
    const ratio = tooShort(state)
      ? null
      : (done?.speedup ?? speedupSeries(trace, rounds).at(-1)?.[1] ?? (lanes && lanes * scale));
    if (ratio === null) this.showUnknownSpeed(trace, done);
    else {
      const even = trace.start.method === "ar" || times(ratio) === times(1);
      this.times.textContent = times(ratio);
      this.times.classList.toggle("sd-slower", !even && ratio < 1);
      this.times.classList.toggle("sd-even", even);
      const said = speedWords(trace, ratio, even) + (done ? "" : ", so far");
      this.timesWord.textContent = unreliable ? `unreliable: ${said}` : said;
    }
    this.times.classList.toggle("sd-unreliable", unreliable && ratio !== null);
    // live, both figures speak of the same tokens
    const vsLeft = done ? lanes : ratio && ratio / scale;
    this.timesNote.textContent =
      (ratio === null ? "" : baselineNote(vsLeft, scale)) +
      words +
      (unreliable ? predictedNote(trace, rounds) : "");
  }

  /** Two methods: the ratio of the lanes on screen, and what each has over plain decoding. */
  updateTwo(trace, state, rounds, done) {
    const { unreliable, words } = clocks(trace, state.ar, rounds);
    const ratio = tooShort(state) ? null : rightOverLeft(trace, state);
    if (ratio === null) this.showUnknownSpeed(trace, done);
    else {
      const even = times(ratio) === times(1);
      this.times.textContent = times(ratio);
      this.times.classList.toggle("sd-slower", !even && ratio < 1);
      this.times.classList.toggle("sd-even", even);
      const said = `the speed of the left lane${done ? "" : ", so far"}`;
      this.timesWord.textContent = unreliable ? `unreliable: ${said}` : said;
    }
    this.times.classList.toggle("sd-unreliable", unreliable && ratio !== null);
    this.timesNote.textContent = overPlain(trace, state, rounds) + words;
  }

  showUnknownSpeed(trace, done) {
    this.times.textContent = "–";
    this.times.classList.remove("sd-slower");
    this.times.classList.toggle("sd-even", trace.start.method === "ar");
    this.timesWord.textContent = done ? "too short for a speed-up" : "speed-up so far";
  }
}

/**
 * Tokens per second of the right lane over those of the left lane; null before both have decoded.
 */
function laneRatio({ ar, arClock, spec, specClock }) {
  const speed = (n, t) => (n > 1 && t > 0 ? (n - 1) / t : 0);
  const left = speed(ar, arClock);
  const right = speed(spec, specClock);
  return left && right ? right / left : null;
}

/** Says that the baseline is not the left lane, where it is not. */
function baselineNote(vsLeft, scale) {
  if (!vsLeft || scale > SAME_BASELINE) return "";
  return `${times(vsLeft)} vs. left lane, which runs wider, padded passes so that its bits match verification; the baseline is the faster one-row pass. `;
}

/** What the costs predict, which nothing disturbs during a race. */
function predictedNote(trace, rounds) {
  const last = predictedSeries(trace, rounds).at(-1);
  return last ? ` Predicted: ${times(last[1])}.` : "";
}
