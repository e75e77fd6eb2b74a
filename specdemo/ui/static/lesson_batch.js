// Why drafting pays less in a server: users in one batch against the cost of a pass by its rows.

import { h } from "./dom.js";
import { times } from "./format.js";
import { batches } from "./lesson_models.js";
import { panel } from "./lesson_panel.js";
import { axes, curve, figure } from "./plot.js";

export const MOST_USERS = 16;

/** Nothing if the recording does not say what passes cost. */
export function batchTask(trace) {
  const costs = batches(trace);
  if (!costs) return "";
  const points = Array.from({ length: MOST_USERS }, (_, k) => [k + 1, costs.at(k + 1).gain]);
  const high = Math.max(1.2, ...points.map(([, gain]) => gain)) * 1.1;
  const plot = axes({
    xhigh: MOST_USERS,
    yhigh: high,
    xlabel: "users in one batch",
    ylabel: "× plain decoding",
    label: "Speed-up against the number of users in one batch",
  });
  curve(plot, points, "sd-l-spec");
  const even = [
    [0, 1],
    [MOST_USERS, 1],
  ];
  curve(plot, even, "sd-l-one");
  const said = h("p", { class: "sd-answer", role: "status" });
  const slider = h("input", {
    type: "range",
    class: "sd-scrub",
    min: 1,
    max: MOST_USERS,
    value: 1,
    "aria-label": "Users in one batch",
    oninput: () => update(),
  });
  const update = () => {
    const users = Number(slider.value);
    const { plain, drafted, gain, isMeasured } = costs.at(users);
    slider.setAttribute("aria-valuetext", `${users} users, ${times(gain)}`);
    const who = users === 1 ? "1 user" : `${users} users`;
    const far = isMeasured
      ? ""
      : ` Passes of more than ${costs.most} rows were not measured; their cost goes on along the last two that were.`;
    said.textContent = `${who}: plain decoding writes ${plain.toFixed(0)} tokens per second for all of them, with drafts ${drafted.toFixed(0)}: ${times(gain)}.${far}`;
  };
  update();
  const rows = costs.rows.toFixed(1);
  return panel(
    "Users in one batch",
    figure(
      "chart-batch",
      "Speed-up",
      `By the costs of this machine: a round of this recording has ${rows} rows a user and writes ${costs.tokens.toFixed(2)} tokens. ${loadWords(trace)}`,
      plot.svg,
    ),
    slider,
    said,
  );
}

/** Why one user's tokens per second here are not those of the race's left lane. */
function loadWords({ ar, start }) {
  const last = ar.at(-1);
  if (!last?.t || ar.length < 2) return "";
  const raced = (ar.length - 1) / last.t;
  return `Plain decoding of one user is ${(1000 / start.pass_ms[1]).toFixed(0)} tokens per second here, by the pass alone as measured at load, and ${raced.toFixed(0)} in the race below, by the clock, with all that is done around its passes.`;
}
