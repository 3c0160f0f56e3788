// Charts of the chosen runs: one for each series.

import {el, ask} from "./dom.js";
import {Chart} from "./chart.js";
import {kAxes, offsetOf, whole} from "./data.js";
import {formatExactX, formatNumber} from "./numbers.js";
import {csvOf, download, pictureOf} from "./save_chart.js";
import {meanLine, seedGroups} from "./seeds.js";

const kWeights = [0, .6, .9, .97, .99];
const kFirst = ["loss", "held_out_loss", "reward_margin", "reward_accuracy", "grad_norm", "lr", "tokens_per_s",
  "step_ms", "mfu"];
const kHidden = new Set(["tokens", "nonfinite"]);
const kInTip = 10;  // lines that a tip has room for
const kMarkColors = {restart: "--accent", members: "--warn", nonfinite: "--bad", checkpoint: "--mark", commit: "--mark"};

// The last value of each line.
const lastOf = (chart) => chart.lines.filter((line) => line.mean.length).map((line) => ({line, i: line.mean.length - 1, y: line.shown.at(-1)}));

export class ChartsView {
  constructor(app) {
    this.app = app;
    this.state = {axis: "step", logX: false, logY: false, weight: 0, marks: true, mean: false, filter: ""};
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
    this.mean = el("button", {"aria-pressed": false, title: "runs that differ in their seed alone, as one line", onclick: () => this.set({mean: !this.state.mean})}, "mean of seeds");
    this.reset = el("button", {onclick: () => this.zoom(null), hidden: true}, "whole range");
    this.filter = el("input", {type: "search", placeholder: "filter charts", "aria-label": "Filter charts", oninput: () => { this.set({filter: this.filter.value}); this.update(true); }});
    this.grid = el("div.charts");
    this.key_ = el("div.key");
    this.root = el("div", {}, el("div.bar", {}, this.axis, this.weight, this.logY, this.logX, this.marksButton, this.mean, this.reset, this.filter), this.key_, this.grid);
    this.seen = new IntersectionObserver((entries) => {
      for (const entry of entries) { const card = this.charts.get(entry.target.dataset.name); if (card) card.isSeen = entry.isIntersecting; }
      this.load();
    }, {rootMargin: "200px"});
    new ResizeObserver(() => this.draw()).observe(this.grid);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // What a link has of this view.
  shown() { return {...this.state, range: this.range}; }
  take({axis, weight, logX, logY, range, filter, mean, marks}) {
    this.filter.value = filter;
    this.set({axis, weight, logX, logY, filter, mean, marks});
    this.zoom(range);
  }

  set(change, asksAnew) {
    Object.assign(this.state, change);
    this.axis.value = this.state.axis;
    if (![...this.weight.options].some((option) => +option.value === this.state.weight)) this.weight.append(el("option", {value: this.state.weight}, `smooth ${this.state.weight}`));
    this.weight.value = this.state.weight;
    for (const [button, on] of [[this.logY, this.state.logY], [this.logX, this.state.logX], [this.marksButton, this.state.marks], [this.mean, this.state.mean]]) {
      button.setAttribute("aria-pressed", on);
    }
    this.app.tellAddress();
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
    this.app.tellAddress();
    this.load();
    this.draw();
  }

  names() {
    const names = new Set();
    for (const run of this.app.chosenRuns()) for (const series of run.series) if (!kHidden.has(series.name) && series.name.toLowerCase().includes(this.state.filter.toLowerCase())) names.add(series.name);
    // What the machine does comes last.
    const place = (name) => { const i = kFirst.indexOf(name); return i >= 0 ? i : kFirst.length + name.startsWith("system/"); };
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
    this.mean.hidden = !seedGroups(runs).length && !this.state.mean;
    this.key_.replaceChildren(...(runs.length > 1 ? runs.slice(0, 60).map((run) => { const label = el("span.chip", {title: run.id}, this.app.shortName(run.id)); label.style.borderColor = label.style.color = this.app.colorOf(run.id); return label; }) : []));
    this.load();
    this.loadMarks();
  }

  add(name) {
    const plot = el("div.plot"), readout = el("div.readout"), tip = el("div.tip", {hidden: true});
    const save = (kind, title, action) => el("button.small", {title, onclick: () => action().catch((error) => this.app.showLink(error.message, false))}, kind);
    const root = el("section.chart", {"data-name": name}, el("div.head", {}, el("h3", {ondblclick: () => { root.classList.toggle("tall"); this.draw(); }}, name),
      save("CSV", `numbers of ${name} of the chosen runs, in the range that is shown`, () => this.saveNumbers(card)), save("PNG", `a picture of this chart`, () => this.savePicture(card))), plot, readout);
    const chart = new Chart(plot, {zoom: (from, to) => this.zoom([from, to]), reset: () => this.zoom(null), cursor: (point) => this.point(card, point)});
    plot.append(tip);
    chart.overlay.setAttribute("aria-label", `chart of ${name}`);
    const card = {name, root, plot, readout, tip, chart, isSeen: false};
    this.charts.set(name, card);
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
    const style = getComputedStyle(this.root), color = (run) => style.getPropertyValue(this.app.colors.get(run.id)).trim();
    const options = {axis: this.state.axis, logX: this.state.logX, logY: this.state.logY, weight: this.state.weight};
    for (const card of this.charts.values()) {
      if (!card.isSeen) continue;
      const lines = this.lines(runs, card.name, cuts, color);
      card.chart.set(lines, marks, this.range, options);
      if (!this.isPointing) this.readout(card, lastOf(card.chart));
    }
    if (this.pointed?.card.isSeen) this.point(this.pointed.card, this.pointed.point);  // there may be a newer value
    this.drawnAt = performance.now();
    // Drawing takes no more than a sixth of the time while points come in: until it is seen, which is long after this
    // function where there is no GPU.
    this.drawTook = this.drawnAt - begun;
    requestAnimationFrame(() => requestAnimationFrame(() => { this.drawTook = performance.now() - begun; }));
  }

  lines(runs, name, cuts, color) {
    const list = [], of = new Map();
    for (const run of runs) {
      const part = this.app.store.part(run, name);
      if (!part) continue;
      const bad = part.bad.map(([, x]) => x);
      of.set(run, {label: this.app.shortName(run.id), color: color(run), size: part.size, x0: part.x0, x1: part.x1, min: part.min, max: part.max, mean: part.mean, bad,
                   cuts: [...bad, ...cuts.get(run.id)].sort((a, b) => a - b)});
    }
    const groups = this.state.mean ? seedGroups(runs) : [];
    for (const group of groups) {
      const lines = group.filter((run) => of.has(run)).map((run) => of.get(run));
      if (lines.length < 2) continue;
      for (const run of group) of.delete(run);
      list.push({...meanLine(lines), hasSpread: true, color: lines[0].color, label: `mean of ${lines.length} seeds${groups.length > 1 ? ` of ${lines[0].label}` : ""}`});
    }
    return [...list, ...of.values()];
  }

  // The pointer is at a place of a chart: the nearest point of a line there, on all charts.
  point(card, point) {
    this.pointed = point && {card, point};
    const hit = point && card.chart.nearest(point.x);
    this.isPointing = !!hit;
    for (const one of this.charts.values()) {
      if (!one.isSeen) continue;
      one.chart.setCursor(hit?.x ?? null);
      const hits = hit ? one.chart.at(hit.x) : lastOf(one.chart);
      this.readout(one, hits, hit);
      one.tip.hidden = one !== card || !hit;
      if (one === card && hit) this.tip(one, hits, hit, point);
    }
  }

  // The places that a record, or a bucket of several, stands for.
  place({x0, x1}) { return formatExactX(x0, this.state.axis) + (x1 > x0 ? ` to ${formatExactX(x1, this.state.axis)}` : ""); }

  // What a line has, with its own place where that is not `at`.
  value({line, i, y, x0, x1, isBad}, at) {
    const elsewhere = at && (x0 !== at.x0 || x1 !== at.x1) ? ` at ${this.place({x0, x1})}` : "";
    return (isBad ? "not finite" : this.numbers(line, i, y)) + elsewhere;
  }
  numbers(line, i, y) {
    if (line.hasSpread) return `${formatNumber(y)} ± ${formatNumber((line.max[i] - line.min[i]) / 2, 3)} (${line.counts[i]}: ${formatNumber(line.least[i])} to ${formatNumber(line.most[i])})`;
    const [low, high] = [line.min[i], line.max[i]];
    return formatNumber(line.mean[i]) + (high > low ? ` (${formatNumber(low)} to ${formatNumber(high)})` : "") + (this.state.weight ? ` smoothed ${formatNumber(y)}` : "");
  }

  // A line of text below a chart: the last values, or those at the pointer.
  readout(card, hits, at) {
    const parts = hits.slice(0, 6).map((hit) => `${card.chart.lines.length > 1 ? hit.line.label + " " : ""}${this.value(hit, at)}`);
    if (at) {
      parts.unshift(`${kAxes[this.state.axis].label} ${this.place(at)}`);
      const near = card.chart.marks.find((mark) => Math.abs(card.chart.px(mark.x) - card.chart.px(at.x)) < 4);
      if (near) parts.push(near.text);
    }
    card.readout.textContent = parts.join("  ·  ");
    card.readout.title = card.readout.textContent;
  }

  // Beside the pointer: where it is, and what each run has there. A record at another place than the nearest one says its own.
  tip(card, hits, at, {x, y}) {
    const near = (hit) => hit.isBad ? 0 : Math.abs(card.chart.py(hit.y) - y);
    const shown = hits.slice().sort((a, b) => near(a) - near(b)).slice(0, kInTip).sort((a, b) => (b.y ?? Infinity) - (a.y ?? Infinity));
    card.tip.replaceChildren(el("b", {}, `${kAxes[this.state.axis].label} ${this.place(at)}`), ...shown.map((hit) => {
      const swatch = el("i");
      swatch.style.background = hit.line.color;
      return el("div", {}, swatch, el("span", {}, hit.line.label), el("em", {}, this.value(hit, at)));
    }), ...(hits.length > kInTip ? [el("div", {}, `and ${hits.length - kInTip} more`)] : []));
    const width = card.plot.clientWidth, px = card.chart.px(at.x);
    card.tip.style.left = px < width / 2 ? `${px + 12}px` : "auto";
    card.tip.style.right = px < width / 2 ? "auto" : `${width - px + 12}px`;
    card.tip.style.maxWidth = `${Math.max(260, Math.max(px, width - px) - 14)}px`;
  }

  async saveNumbers(card) {
    const runs = this.app.chosenRuns().filter((run) => run.series.some((series) => series.name === card.name));
    const parts = await Promise.all(runs.map(async (run) => ({run: run.id, ...await whole(run, card.name, this.view())})));
    download(card.name, "csv", new Blob([csvOf(card.name, kAxes[this.state.axis].label, parts)], {type: "text/csv"}));
  }

  async savePicture(card) {
    const style = getComputedStyle(this.root), color = (name) => style.getPropertyValue(name).trim();
    const picture = pictureOf(card.chart, card.name, kAxes[this.state.axis].label, {card: color("--card"), ink: color("--ink"), faint: color("--faint")});
    download(card.name, "png", await new Promise((done) => picture.toBlob(done)));
  }
}
