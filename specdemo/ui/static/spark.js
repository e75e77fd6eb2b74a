// The speed-up as it evolves, small, beside the ratio.

import { s } from "./dom.js";
import { speedupSeries } from "./figures.js";
import { times } from "./format.js";

const [WIDTH, HEIGHT] = [150, 34];

export class Spark {
  constructor() {
    this.key = null; // what is drawn
    this.root = s("svg", {
      class: "sd-spark",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      role: "img",
    });
  }

  /** Up to these checked rounds of `trace`; where the left lane is a method, its curve too. */
  update(trace, rounds, state) {
    const key = `${trace.start.prompt}|${rounds.length}|${trace.spec.length}|${trace.left.length}`;
    if (key === this.key) return;
    this.key = key;
    const right = speedupSeries(trace, rounds);
    const theirs = trace.against ? trace.against.rounds.filter((r) => r.t1 <= state.t) : [];
    const left = trace.against ? speedupSeries(trace.against, theirs) : [];
    const all = [...left, ...right];
    this.root.toggleAttribute("hidden", right.length < 2);
    const xhigh = Math.max(trace.start.max_new_tokens, ...all.map(([n]) => n));
    const yhigh = Math.max(2, ...all.map(([, ratio]) => ratio)) * 1.05;
    const x = (n) => ((WIDTH * n) / xhigh).toFixed(1);
    const y = (ratio) => (HEIGHT - (HEIGHT * ratio) / yhigh).toFixed(1);
    const line = (points, look) =>
      s("polyline", {
        class: `sd-line ${look}`,
        points: points.map(([n, ratio]) => `${x(n)},${y(ratio)}`).join(" "),
      });
    const even = { class: "sd-line sd-l-one", x1: 0, x2: WIDTH, y1: y(1), y2: y(1) };
    const last = right.at(-1);
    this.root.setAttribute(
      "aria-label",
      `Speed-up over plain decoding so far: ${last ? times(last[1]) : "none yet"}`,
    );
    this.root.replaceChildren(
      s("line", even),
      ...(left.length ? [line(left, "sd-l-ar")] : []),
      line(right, "sd-l-spec"),
    );
  }
}
