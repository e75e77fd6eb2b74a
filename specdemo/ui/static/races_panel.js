// Every race of this visit over each other, in Plotly's charts, which load when this is opened.

import { h, save } from "./dom.js";
import { plural, times } from "./format.js";
import { keepRaces, keptRaces, nameOf, racesCsv, summaryOf, withLatest } from "./races.js";

const SCRIPT = "specdemo/plotly.js";
// Okabe-Ito
const COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C00"];
const DASHES = ["solid", "dash", "dot", "dashdot"];
const NONE = "There is no race of this visit yet: Run begins one, and its curves are drawn here.";
const NOT_KEPT = "This browser keeps nothing for the page, so a reload forgets these races.";

let plotly = null; // the library, once it is asked for

function loadPlotly() {
  plotly ??= new Promise((loaded, failed) => {
    const script = h("script", { src: SCRIPT, onload: () => loaded(window.Plotly) });
    script.addEventListener("error", () => {
      plotly = null;
      failed(new Error("not loaded"));
    });
    document.head.append(script);
  });
  return plotly;
}

export class RacesPanel {
  constructor(view) {
    this.view = view;
    this.races = keptRaces(sessionStorage);
    this.hidden = new Set(); // ids of races that are not drawn
    this.summary = h("summary", {});
    this.note = h("p", { class: "sd-note", role: "status" });
    this.list = h("ol", { class: "sd-races-list", "aria-label": "Races of this visit" });
    this.plots = ["time", "speedup", "accepted"].map((name) =>
      h("div", { "data-part": `races-${name}` }),
    );
    const button = (text, act) =>
      h("button", { type: "button", class: "sd-btn", text, onclick: act });
    this.root = h(
      "details",
      { class: "sd-card sd-races", "data-part": "races", ontoggle: () => this.draw() },
      this.summary,
      this.list,
      h(
        "div",
        { class: "sd-races-bar" },
        button("Download CSV", () => this.save("csv")),
        button("Download JSON", () => this.save("json")),
        button("Forget all", () => this.forget()),
      ),
      this.note,
      h("div", { class: "sd-races-plots" }, this.plots),
    );
    this.showList();
  }

  /** A race of this page has ended. */
  add(trace, id) {
    if (trace.spec.length < 2) return;
    this.races = withLatest(this.races, summaryOf(trace, id, new Date()));
    this.note.textContent = keepRaces(sessionStorage, this.races) ? "" : NOT_KEPT;
    this.showList();
    this.draw();
  }

  forget() {
    this.races = [];
    keepRaces(sessionStorage, []);
    this.showList();
    this.draw();
  }

  save(kind) {
    if (!this.races.length) this.note.textContent = NONE;
    else if (kind === "csv") save("specdemo-races.csv", racesCsv(this.races), "text/csv");
    else save("specdemo-races.json", JSON.stringify(this.races, null, 1), "application/json");
  }

  showList() {
    const { races } = this;
    this.summary.textContent = `Your races: ${plural(races.length, "race")} of this visit, kept in this browser alone`;
    this.list.replaceChildren(
      ...races.map((race, i) => {
        const box = h("input", {
          type: "checkbox",
          checked: !this.hidden.has(race.id),
          onchange: () => {
            if (box.checked) this.hidden.delete(race.id);
            else this.hidden.add(race.id);
            this.draw();
          },
        });
        const speed = race.speedup === null ? "" : `${times(race.speedup)} plain decoding · `;
        const text = `${nameOf(race, i + 1)} · ${speed}${race.parameters} · ${race.prompt}`;
        return h("li", {}, h("label", {}, box, h("span", { text })));
      }),
    );
  }

  async draw() {
    if (!this.root.open || this.view.running) return;
    const none = !this.races.length;
    this.plots.forEach((plot) => (plot.hidden = none));
    if (none || this.note.textContent === NONE) this.note.textContent = none ? NONE : "";
    if (none) return;
    let library;
    try {
      library = await loadPlotly();
    } catch {
      this.note.textContent = "The charts could not be loaded; close and open this to try again.";
      return;
    }
    const shown = this.races
      .map((race, i) => ({ race, name: nameOf(race, i + 1), ...lookOf(i) }))
      .filter(({ race }) => !this.hidden.has(race.id));
    const ink = getComputedStyle(this.root).color;
    [overTime(shown), bySpeed(shown), byPosition(shown)].forEach(([data, layout], i) =>
      library.react(this.plots[i], data, dressed(layout, ink), plotOptions(this.plots[i])),
    );
  }
}

const lookOf = (i) => ({
  color: COLORS[i % COLORS.length],
  dash: DASHES[Math.floor(i / COLORS.length) % DASHES.length],
});

function overTime(shown) {
  const line = (race, written, more) => ({
    x: written,
    y: written.map((_, k) => k + 1),
    mode: "lines",
    legendgroup: race.id,
    ...more,
  });
  const data = shown.flatMap(({ race, name, color, dash }) => [
    line(race, race.written, { name, line: { color, dash, shape: "hv" } }),
    line(race, race.plain, {
      name: `${name}, plain decoding`,
      showlegend: false,
      line: { color, width: 1, dash: "dot" },
      opacity: 0.6,
    }),
  ]);
  return [data, { title: "Tokens against time (thin: plain decoding)", x: "seconds", y: "tokens" }];
}

function bySpeed(shown) {
  const timed = shown.filter(({ race }) => race.speedup !== null);
  const methods = [...new Set(timed.map(({ race }) => race.method))];
  const data = methods.map((method) => {
    const mine = timed.filter(({ race }) => race.method === method);
    return {
      name: method.replace(/[<>&]/g, ""),
      type: "box",
      boxpoints: "all",
      jitter: 0.3,
      pointpos: 0,
      y: mine.map(({ race }) => race.speedup),
      text: mine.map(({ name }) => name),
      marker: { color: COLORS[methods.indexOf(method) % COLORS.length] },
    };
  });
  return [data, { title: "Speed-up by method", x: "", y: "times plain decoding" }];
}

function byPosition(shown) {
  const data = shown.map(({ race, name, color, dash }) => ({
    name,
    x: race.accepted.map((_, k) => k + 1),
    y: race.accepted,
    mode: "lines+markers",
    line: { color, dash },
  }));
  return [
    data,
    { title: "Acceptance by position", x: "position in the draft", y: "share accepted" },
  ];
}

const PLOT_HEIGHT = 380; // pixels of a chart

function dressed({ title, x, y }, ink) {
  const axis = (text) => ({
    title: { text },
    gridcolor: "#88888840",
    zerolinecolor: "#88888880",
    rangemode: "tozero",
    automargin: true,
  });
  return {
    // below the toolbar
    title: { text: title, font: { size: 15 }, y: 1 - 46 / PLOT_HEIGHT, yanchor: "middle" },
    height: PLOT_HEIGHT,
    margin: { t: 70, r: 10, l: 50 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: ink, size: 13 },
    xaxis: axis(x),
    yaxis: axis(y),
    legend: { orientation: "h", y: -0.38 }, // below the axis's title
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#888888", activecolor: ink },
  };
}

const plotOptions = (plot) => ({
  displaylogo: false,
  responsive: true,
  displayModeBar: true,
  toImageButtonOptions: { filename: `specdemo-${plot.dataset.part}`, scale: 2 },
});
