// Charts of the chosen runs: one for each series.

import {el, ask} from "./dom.js";
import {Chart, formatNumber, formatX} from "./chart.js";
import {kAxes, offsetOf} from "./data.js";

const kWeights = [0, .6, .9, .97, .99];
const kFirst = ["loss", "held_out_loss", "grad_norm", "lr", "tokens_per_s", "step_ms", "mfu"];
const kHidden = new Set(["tokens", "nonfinite"]);
const kMarkColors = {restart: "--accent", members: "--warn", nonfinite: "--bad", checkpoint: "--mark", commit: "--mark"};

export class ChartsView {
  constructor(app) {
    this.app = app;
    this.state = {axis: "step", logX: false, logY: false, weight: 0, marks: true, filter: ""};
    this.range = null;
    this.charts = new Map();  // by name of the series
    this.details = new Map();  // by run: marks, and the records they are of
    this.axis = el("select", {"aria-label": "x axis", onchange: () => this.set({axis: this.axis.value}, true)},
      Object.entries(kAxes).map(([key, axis]) => el("option", {value: key}, axis.label)));
    this.weight = el("select", {"aria-label": "smoothing", onchange: () => this.set({weight: +this.weight.value})},
      kWeights.map((w) => el("option", {value: w}, w ? `smooth ${w}` : "not smoothed")));
    this.logY = el("button", {"aria-pressed": false, onclick: () => this.set({logY: !this.state.logY})}, "log y");
    this.logX = el("button", {"aria-pressed": false, onclick: () => this.set({logX: !this.state.logX})}, "log x");
    this.marksButton = el("button", {"aria-pressed": true, onclick: () => this.set({marks: !this.state.marks})}, "marks");
    this.reset = el("button", {onclick: () => this.zoom(null), hidden: true}, "whole range");
    this.filter = el("input", {type: "search", placeholder: "filter charts", "aria-label": "Filter charts", oninput: () => { this.state.filter = this.filter.value.toLowerCase(); this.update(true); }});
    this.grid = el("div.charts");
    this.key_ = el("div.key");
    this.root = el("div", {}, el("div.bar", {}, this.axis, this.weight, this.logY, this.logX, this.marksButton, this.reset, this.filter), this.key_, this.grid);
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) { const card = this.charts.get(entry.target.dataset.name); if (card) card.isSeen = entry.isIntersecting; }
      this.load();
    }, {rootMargin: "200px"});
    new ResizeObserver(() => this.draw()).observe(this.grid);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  set(change, asksAnew) {
    Object.assign(this.state, change);
    this.axis.value = this.state.axis;
    this.weight.value = this.state.weight;
    for (const [button, on] of [[this.logY, this.state.logY], [this.logX, this.state.logX], [this.marksButton, this.state.marks]]) {
      button.setAttribute("aria-pressed", on);
    }
    if (asksAnew) this.zoom(null);
    else this.draw();
  }

  key(event) {
    const axes = Object.keys(kAxes), next = (list, now) => list[(list.indexOf(now) + 1) % list.length];
    if (event.key === "x") this.set({axis: next(axes, this.state.axis)}, true);
    else if (event.key === "l") this.set({logY: !this.state.logY});
    else if (event.key === "g") this.set({logX: !this.state.logX});
    else if (event.key === "s") this.set({weight: next(kWeights, this.state.weight)});
    else if (event.key === "0" || event.key === "Escape") this.zoom(null);
    else return false;
    return true;
  }

  zoom(range) {
    this.range = range;
    this.reset.hidden = !range;
    this.zoomedAt = performance.now();
    this.load();
    this.draw();
  }

  names() {
    const names = new Set();
    for (const run of this.app.chosenRuns()) for (const series of run.series) if (!kHidden.has(series.name) && series.name.toLowerCase().includes(this.state.filter)) names.add(series.name);
    const place = (name) => { const i = kFirst.indexOf(name); return i < 0 ? kFirst.length : i; };
    return [...names].sort((a, b) => place(a) - place(b) || a.localeCompare(b));
  }

  update() {
    const runs = this.app.chosenRuns(), names = this.names();
    if (!names.length) {
      this.charts.clear();
      this.grid.replaceChildren(el("p.empty", {}, !this.app.runs.size ? "No run is here yet. atoll train writes one, and it appears by itself."
        : !runs.length ? "Choose a run." : "The chosen runs have no numbers yet."));
      this.key_.replaceChildren();
      return;
    }
    const isSame = names.length === this.charts.size && names.every((name) => this.charts.has(name)) && this.grid.firstChild?.dataset?.name === names[0];
    if (!isSame) {
      for (const name of this.charts.keys()) if (!names.includes(name)) { this.seen.unobserve(this.charts.get(name).root); this.charts.delete(name); }
      for (const name of names) if (!this.charts.has(name)) this.add(name);
      this.grid.replaceChildren(...names.map((name) => this.charts.get(name).root));
    }
    this.key_.replaceChildren(...(runs.length > 1 ? runs.slice(0, 60).map((run) => { const label = el("span.chip", {title: run.id}, this.app.nameOf(run.id)); label.style.borderColor = label.style.color = this.app.colors.get(run.id); return label; }) : []));
    this.load();
    this.loadMarks();
  }

  add(name) {
    const plot = el("div.plot"), readout = el("div.readout");
    const root = el("section.chart", {"data-name": name}, el("h3", {ondblclick: () => { root.classList.toggle("tall"); this.draw(); }}, name), plot, readout);
    const chart = new Chart(plot, {zoom: (from, to) => this.zoom([from, to]), reset: () => this.zoom(null), cursor: (x) => this.cursor(x)});
    chart.overlay.setAttribute("aria-label", `chart of ${name}`);
    this.charts.set(name, {name, root, plot, readout, chart, isSeen: false});
    this.seen.observe(root);
  }

  view() {
    const width = this.charts.values().next().value?.plot.clientWidth || 400;
    // Of many runs a column is two pixels wide: they hide each other anyway, and no extreme is lost.
    const points = width / (this.app.chosenRuns().length > 8 ? 2 : 1);
    return {axis: this.state.axis, from: this.range?.[0] ?? null, to: this.range?.[1] ?? null, points: Math.max(100, Math.min(2000, Math.round(points / 50) * 50))};
  }

  async load() {
    if (this.isLoading) { this.loadsAgain = true; return; }
    this.isLoading = true;
    try {
      do {
        this.loadsAgain = false;
        const names = [...this.charts.values()].filter((card) => card.isSeen).map((card) => card.name), view = this.view();
        if (!names.length) break;
        // Six at a time: as many as a browser connects.
        const waiting = this.app.chosenRuns().slice();
        const work = async () => {
          for (let run = waiting.shift(); run; run = waiting.shift()) {
            const has = new Set(run.series.map((series) => series.name));
            const wanted = names.filter((name) => has.has(name));
            if (wanted.length && await this.app.store.load(run, wanted, view)) this.app.soon("draw", () => this.draw(), 40 + 5 * (this.drawTook ?? 0));
            if (this.loadsAgain) return;
          }
        };
        await Promise.all([work(), work(), work(), work(), work()]);
      } while (this.loadsAgain);
      this.loadedAt = performance.now();
      this.draw();  // the choice may be another one, of which all is there
    } catch (error) {
      this.app.showLink(error.message, false);
    } finally { this.isLoading = false; }
  }

  async loadMarks() {
    for (const run of this.app.chosenRuns().slice(0, 8)) {
      const known = this.details.get(run.id);
      if (known && known.records === run.records && known.generation === run.generation) continue;
      this.details.set(run.id, {...known, records: run.records, generation: run.generation});
      try {
        this.details.set(run.id, {...await ask("api/run", {run: run.id}), records: run.records});
        this.app.soon("draw", () => this.draw(), 0);
      } catch (error) { this.app.showLink(error.message, false); }
    }
  }

  marks(run) {
    const detail = this.details.get(run.id), style = getComputedStyle(this.root), axis = kAxes[this.state.axis];
    if (!detail?.marks || !this.state.marks) return [];
    const offset = offsetOf(run, this.state.axis);
    const list = detail.marks.map((mark) => ({kind: mark.kind, text: mark.text, x: mark.at[axis.place] - offset, step: mark.at[0]}));
    // Between the first record and the last, by steps: a checkpoint has no record of its own.
    const part = (step) => (step - run.first[0]) / Math.max(1, run.last[0] - run.first[0]);
    for (const [step] of detail.checkpoints) {
      const x = run.first[axis.place] + part(step) * (run.last[axis.place] - run.first[axis.place]);
      list.push({kind: "checkpoint", text: `checkpoint of step ${step}`, x: (axis.place === 0 ? step : x) - offset, step});
    }
    for (const mark of list) mark.color = style.getPropertyValue(kMarkColors[mark.kind] ?? "--mark").trim();
    return list;
  }

  draw() {
    const begun = performance.now(), runs = this.app.chosenRuns();
    const marks = runs.length <= 8 ? runs.flatMap((run) => this.marks(run)) : [];
    const cuts = new Map(runs.map((run) => [run.id, this.marks(run).filter((mark) => mark.kind === "restart").map((mark) => mark.x)]));
    const options = {axis: this.state.axis, logX: this.state.logX, logY: this.state.logY, weight: this.state.weight};
    for (const card of this.charts.values()) {
      if (!card.isSeen) continue;
      const lines = [];
      for (const run of runs) {
        const part = this.app.store.part(run, card.name);
        if (!part) continue;
        const bad = part.bad.map(([, x]) => x);
        lines.push({label: run.id, color: this.app.colors.get(run.id), size: part.size, x0: part.x0, x1: part.x1, min: part.min, max: part.max, mean: part.mean, bad,
                    cuts: [...bad, ...cuts.get(run.id)].sort((a, b) => a - b)});
      }
      card.chart.set(lines, marks, this.range, options);
      if (!this.isPointing) this.readout(card, null);
    }
    this.drawnAt = performance.now();
    // Drawing takes no more than a sixth of the time while points come in: until it is seen, which is long after this
    // function where there is no GPU.
    this.drawTook = this.drawnAt - begun;
    requestAnimationFrame(() => requestAnimationFrame(() => { this.drawTook = performance.now() - begun; }));
  }

  cursor(x) {
    this.isPointing = x !== null;
    for (const card of this.charts.values()) {
      if (!card.isSeen) continue;
      card.chart.setCursor(x);
      this.readout(card, x);
    }
  }

  readout(card, x) {
    const text = (line, value, low, high) => `${card.chart.lines.length > 1 ? line.label.split("/").pop() + " " : ""}${formatNumber(value)}${high > low ? ` (${formatNumber(low)} to ${formatNumber(high)})` : ""}`;
    const parts = [];
    if (x === null) {
      for (const line of card.chart.lines.slice(0, 6)) if (line.mean.length) parts.push(text(line, line.shown.at(-1)));
    } else {
      parts.push(formatX(x, this.state.axis));
      for (const hit of card.chart.at(x).slice(0, 6)) if (hit) parts.push(text(hit.line, hit.y, hit.min, hit.max));
      const near = card.chart.marks.find((mark) => Math.abs(card.chart.px(mark.x) - card.chart.px(x)) < 4);
      if (near) parts.push(near.text);
    }
    card.readout.textContent = parts.join("  ·  ");
    card.readout.title = card.readout.textContent;
  }
}
