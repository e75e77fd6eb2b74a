// What there is to do above the race in a step of the lesson.

import { h } from "./dom.js";
import { batchTask } from "./lesson_batch.js";
import { drawTask } from "./lesson_draw.js";
import { drafterTask } from "./lesson_drafter.js";
import { maskTask } from "./lesson_mask.js";
import { panel } from "./lesson_panel.js";
import { sweepTask } from "./lesson_sweep.js";

const LACKING = "This step's recording does not hold what is needed to try it.";

/** An element; an empty text where the step has no experiment. */
export function experimentOf(step, trace, content) {
  if (!step.experiment) return "";
  return made(step, trace, content) || panel("To try", h("p", { text: LACKING }));
}

function made(step, trace, content) {
  switch (step.experiment) {
    case "draw":
      return drawTask(trace);
    case "drafter":
      return drafterTask(trace);
    case "mask":
      return maskTask(trace, step.moment?.round);
    case "batch":
      return batchTask(trace);
    case "sweep":
      return sweepTask(content.sweeps[step.sweep]);
    case "training":
      return trainingCurve(content.curve);
    default:
      return "";
  }
}

/** The SVG that the drafter's training wrote, as a picture: no script of it could run. */
function trainingCurve(svg) {
  if (!svg) return "";
  return panel(
    "The learning curve of this page's own drafter",
    h("img", {
      class: "sd-curve",
      alt: "Loss, share of right first tokens and, where it was measured, tokens per round, against steps of training",
      src: `data:image/svg+xml,${encodeURIComponent(svg)}`,
    }),
    h("p", {
      class: "sd-key",
      text: "Each axis goes from the lowest to the highest value measured, not from 0.",
    }),
  );
}
