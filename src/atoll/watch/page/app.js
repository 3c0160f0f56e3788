// The page: which runs there are, which are chosen, and the view that is shown of them.

import {el, ask} from "./dom.js";
import {formatNumber} from "./numbers.js";
import {Store} from "./data.js";
import {readLink, writeLink} from "./link.js";
import {shortNames} from "./names.js";
import {ChartsView} from "./charts_view.js";
import {CompareView, EventsView, RanksView, SamplesView} from "./run_views.js";
import {IslandsView, StudyView} from "./search_views.js";
import {TimelineView} from "./timeline_view.js";

// In style.css, for light and for dark.
const kColors = Array.from({length: 10}, (_, i) => `--line-${i}`);
const kSorts = {changed: "last change", name: "name", state: "state", last: "loss: last", best: "loss: least", steps: "steps", tag: "tag"};
const kViews = [["charts", "Charts", ChartsView], ["compare", "Settings", CompareView], ["events", "Events", EventsView],
  ["samples", "Samples", SamplesView], ["ranks", "Ranks", RanksView], ["timeline", "Timeline", TimelineView], ["islands", "Islands", IslandsView], ["study", "Study", StudyView]];

class App {
  constructor() {
    this.runs = new Map();
    this.chosen = new Set();
    this.colors = new Map();
    this.prefix = "";
    this.names = new Map();
    this.told = new Map();
    this.numTold = 0;
    this.studies = [];
    this.ledgers = [];
    this.canWrite = false;
    this.store = new Store();
    this.views = new Map();
    this.search = document.getElementById("search");
    this.sort = document.getElementById("sort");
    for (const [key, label] of Object.entries(kSorts)) this.sort.append(el("option", {value: key}, label));
    this.search.addEventListener("input", () => this.drawRuns());
    this.sort.addEventListener("change", () => this.drawRuns());
    document.getElementById("all").addEventListener("click", () => { for (const run of this.listed()) this.chosen.add(run.id); this.choiceChanged(); });
    document.getElementById("none").addEventListener("click", () => { this.chosen.clear(); this.choiceChanged(); });
    document.getElementById("runs").addEventListener("keydown", (event) => this.runKey(event));
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("hashchange", () => this.readHash());
    this.start();
  }

  async start() {
    const {runs} = readLink(location.hash);
    if (runs?.length) this.takeRuns(runs);
    await this.refresh();
    this.readHash();
    this.connect();
  }

  // --- What the server knows

  async refresh() {
    const before = this.numTold;
    try {
      const list = await ask("api/runs");
      this.canWrite = list.can_write;
      this.studies = list.studies;
      this.ledgers = list.ledgers;
      // What the stream has told meanwhile may be newer than the list.
      for (const run of list.runs) if (!(this.told.get(run.id) > before)) this.take(run);
      const there = new Set(list.runs.map((run) => run.id));
      for (const id of this.runs.keys()) if (!there.has(id)) this.runs.delete(id);
      // What all have in common says nothing.
      const first = [...this.runs.keys()][0] ?? "", all = [...this.runs.keys()];
      this.names = shortNames(all);
      this.prefix = all.length > 1 ? first.split("/").slice(0, -1).reduce((prefix, part) => all.every((id) => id.startsWith(prefix + part + "/")) ? prefix + part + "/" : prefix, "") : "";
      this.drawTabs();
      this.drawRuns();
    } catch (error) { this.showLink(error.message, false); }
  }

  take(run) {
    const known = this.runs.get(run.id);
    if (known && known.generation !== run.generation) this.store.forget(run.id);
    this.runs.set(run.id, run);
  }

  connect() {
    const source = new EventSource("api/stream");
    source.onopen = async () => {
      // What was missed before the stream was there, or while it was cut, is asked for: record by record.
      const wasCut = this.wasCut;
      this.wasCut = false;
      await this.refresh();
      wasCut ? this.show() : this.view?.update?.();
      this.showLink("live", true);
    };
    source.onerror = () => { this.wasCut = true; this.showLink("connection lost", false); };
    source.addEventListener("run", (event) => {
      const run = JSON.parse(event.data);
      this.told.set(run.id, ++this.numTold);
      this.take(run);
      this.soon("runs", () => this.drawRuns(), 200);
      this.soon("view", () => this.view?.update?.(), 300);
    });
    source.addEventListener("list", () => this.soon("list", () => this.refresh(), 200));
  }

  showLink(text, isOn) {
    const link = document.getElementById("link");
    link.textContent = text;
    link.className = isOn ? "state" : "state off";
  }

  // Calls at most once in so many milliseconds.
  soon(name, action, ms) {
    this.timers ??= {};
    this.timers[name] ??= setTimeout(() => { this.timers[name] = null; action(); }, ms);
  }

  nameOf(id) { return (id.startsWith(this.prefix) ? id.slice(this.prefix.length) : id).replace(/(.)\/run$/, "$1"); }
  shortName(id) { return this.names.get(id) ?? id; }
  colorOf(id) { return `var(${this.colors.get(id)})`; }

  // --- The list of runs

  loss(run, key) {
    const series = run.series.find((one) => one.name === "loss") ?? run.series[0];
    return series ? (key === "best" ? series.min : series.last) ?? Infinity : Infinity;
  }
  tags(run) { return run.notes.flatMap((note) => String(note.text ?? "").match(/#[\p{L}\p{N}_-]+/gu) ?? []); }

  listed() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (run) => [run.id, run.state, ...run.notes.map((note) => note.text)].join(" ").toLowerCase();
    const list = [...this.runs.values()].filter((run) => words.every((word) => text(run).includes(word)));
    const by = {
      changed: (a, b) => b.last[2] - a.last[2], name: (a, b) => a.id.localeCompare(b.id, undefined, {numeric: true}),
      state: (a, b) => a.state.localeCompare(b.state), last: (a, b) => this.loss(a) - this.loss(b),
      best: (a, b) => this.loss(a, "best") - this.loss(b, "best"), steps: (a, b) => b.last[0] - a.last[0],
      tag: (a, b) => (this.tags(b).length > 0) - (this.tags(a).length > 0) || (this.tags(a)[0] ?? "").localeCompare(this.tags(b)[0] ?? ""),
    }[this.sort.value];
    return list.sort(by);
  }

  drawRuns() {
    const list = document.getElementById("runs"), focused = document.activeElement?.dataset?.id;
    if (!this.chosen.size && !this.hasChosen && this.runs.size) {
      const newest = [...this.runs.values()].sort((a, b) => (b.state === "running") - (a.state === "running") || b.last[2] - a.last[2]);
      for (const run of newest.slice(0, newest[0].state === "running" ? Math.max(1, newest.filter((r) => r.state === "running").slice(0, 5).length) : 1)) this.chosen.add(run.id);
    }
    this.hasChosen ||= this.runs.size > 0;
    this.giveColors();
    const runs = this.listed();
    list.replaceChildren(...runs.map((run) => this.runItem(run)));
    document.getElementById("count").textContent = `${this.chosenRuns().length} chosen of ${this.runs.size}`;
    if (focused) for (const item of list.children) if (item.dataset.id === focused) item.focus();
  }

  // A run keeps its colour while it is chosen; one that is chosen takes the colour that fewest have.
  giveColors() {
    for (const id of [...this.colors.keys()]) if (!this.chosen.has(id)) this.colors.delete(id);
    const uses = kColors.map((color) => [...this.colors.values()].filter((one) => one === color).length);
    for (const id of this.chosen) {
      if (this.colors.has(id)) continue;
      const at = uses.indexOf(Math.min(...uses));
      ++uses[at];
      this.colors.set(id, kColors[at]);
    }
  }

  runItem(run) {
    const isChosen = this.chosen.has(run.id);
    const item = el("li", {tabindex: 0, role: "option", "aria-selected": isChosen, "data-id": run.id, title: run.id,
                           onclick: (event) => this.choose(run.id, !event.ctrlKey && !event.metaKey && !event.shiftKey)},
      // A finger has no key to hold: the box chooses one more.
      el(`span.check.${run.state}`, {"aria-hidden": true, title: "one more, or one less", onclick: (event) => { event.stopPropagation(); this.choose(run.id, false); }}),
      el("span.name", {}, el("bdi", {}, this.nameOf(run.id))),
      el(`span.chip.${run.state}`, {}, run.gone ? "removed" : run.state),
      el("span.more", {},
        el("span", {}, `step ${formatNumber(run.last[0])}${run.steps ? " / " + formatNumber(+run.steps) : ""}`),
        run.series.length ? el("span", {}, `loss ${formatNumber(this.loss(run))}`) : null,
        run.alerts ? el("span.chip.warning", {}, `${run.alerts} alert${run.alerts > 1 ? "s" : ""}`) : null,
        run.bad_lines ? el("span.chip.error", {title: "lines of metrics.jsonl that are no records"}, `${run.bad_lines} bad lines`) : null,
        run.read < run.bytes && !run.gone ? el("span", {}, `reading ${Math.floor(100 * run.read / run.bytes)}%`) : null,
        ...this.tags(run).slice(0, 4).map((tag) => el("span.chip", {}, tag))));
    if (isChosen) item.style.setProperty("--c", this.colorOf(run.id));
    return item;
  }

  choose(id, isAlone) {
    const wasChosen = this.chosen.has(id);
    if (isAlone) { const only = wasChosen && this.chosen.size === 1; this.chosen.clear(); if (!only) this.chosen.add(id); }
    else wasChosen ? this.chosen.delete(id) : this.chosen.add(id);
    this.choiceChanged();
  }
  choiceChanged() { this.choseRuns = true; this.drawRuns(); this.view?.update?.(true); this.tellAddress(); }
  chosenRuns() { return [...this.chosen].map((id) => this.runs.get(id)).filter(Boolean); }

  runKey(event) {
    const item = event.target.closest("li");
    if (!item) return;
    if (event.key === "ArrowDown" || event.key === "j") item.nextElementSibling?.focus();
    else if (event.key === "ArrowUp" || event.key === "k") item.previousElementSibling?.focus();
    else if (event.key === "Enter") this.choose(item.dataset.id, true);
    else if (event.key === " ") this.choose(item.dataset.id, false);
    else return;
    event.preventDefault();
  }

  // --- Views

  drawTabs() {
    document.getElementById("tabs").replaceChildren(...kViews
      .filter(([key]) => (key !== "samples" || [...this.runs.values()].some((run) => run.samples)) && (key !== "study" || this.studies.length) && (key !== "islands" || this.ledgers.length))
      .map(([key, label]) => el("button", {role: "tab", "aria-selected": key === this.viewName, onclick: () => { location.hash = key; }}, label)));
  }

  // A link says which runs are chosen, too; the name of a view alone changes the view.
  readHash() {
    const link = readLink(location.hash);
    this.viewName = kViews.some(([key]) => key === link.view) ? link.view : "charts";
    if (link.runs) {
      if (link.runs.length) this.takeRuns(link.runs);
      this.charts().take(link);
      this.drawRuns();
    }
    this.drawTabs();
    this.show();
    this.tellAddress();
  }

  takeRuns(ids) {
    this.chosen = new Set(ids);
    this.hasChosen = this.choseRuns = true;
  }

  // The address says what is shown, as far as somebody has chosen it.
  tellAddress() {
    if (!this.viewName) return;
    const hash = "#" + writeLink({view: this.viewName, ...this.views.get("charts")?.shown(), runs: this.choseRuns ? [...this.chosen] : []});
    if (hash !== (location.hash || "#charts")) history.replaceState(null, "", hash);
  }

  charts() {
    if (!this.views.has("charts")) this.views.set("charts", new ChartsView(this));
    return this.views.get("charts");
  }

  show() {
    const main = document.getElementById("view");
    if (!this.views.has(this.viewName)) {
      const [, , View] = kViews.find(([key]) => key === this.viewName);
      this.views.set(this.viewName, new View(this));
    }
    const view = this.views.get(this.viewName);
    if (this.view !== view || !view.root.isConnected) main.replaceChildren(view.root);
    this.view = view;
    view.update?.(true);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const number = Number(event.key);
    if (event.key === "/") this.search.focus();
    else if (event.key === "r") document.querySelector("#runs li")?.focus();
    else if (event.key === "?") this.help();
    else if (number >= 1 && document.querySelectorAll("#tabs button")[number - 1]) document.querySelectorAll("#tabs button")[number - 1].click();
    else if (!this.view?.key?.(event)) return;
    event.preventDefault();
  }

  help() {
    const keys = [["/", "search"], ["r", "to the runs; up and down, space chooses one more, Enter one alone"], ["1 … 8", "views"],
      ["x", "next x axis"], ["l, g", "logarithmic y, x"], ["s", "more smoothing, then none"], ["0, Esc", "whole range"],
      ["+ - ← →", "on a chart: closer, further, along; the pointer draws a range"], ["?", "this"]];
    const dialog = el("dialog", {}, el("table", {}, keys.map(([key, text]) => el("tr", {}, el("td", {}, el("kbd", {}, key)), el("td", {}, text)))),
      el("form", {method: "dialog"}, el("button", {}, "close")));
    document.body.append(dialog);
    dialog.addEventListener("close", () => dialog.remove());
    dialog.showModal();
  }
}

// What is in the document is painted before any work is done.
const start = () => { globalThis.atollPage = new App(); };
if (document.hidden) start();
else requestAnimationFrame(() => setTimeout(start));
