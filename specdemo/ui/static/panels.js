// The panels below the charts that are opened by who wants them.

import { RacesPanel } from "./races_panel.js";
import { WhatIf } from "./what_if_panel.js";

export class Panels {
  constructor(view) {
    this.view = view;
    this.whatIf = new WhatIf(view);
    this.races = view.isMain ? new RacesPanel(view) : null;
    this.roots = [this.whatIf, this.races].filter(Boolean).map(({ root }) => root);
  }

  update(settled) {
    this.whatIf.update(settled);
  }

  /** More of the race is there; once it is over it is one of this visit's. */
  arrived() {
    const { trace, run, label } = this.view;
    if (this.races && trace.done && label === "live") this.races.add(trace, run);
  }
}
