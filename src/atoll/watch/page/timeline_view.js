// The time of some steps on all ranks, from the trace that a run wrote (log.trace).

import {el, ask} from "./dom.js";
import {formatNumber} from "./numbers.js";

const kColors = {forward: "#3b82c4", backward: "#7b5bc4", step: "#8b98a1", collective: "#d1803a", optimizer: "#3f9d6b", evaluation: "#b5488f", checkpoint: "#b59b2a", data: "#c14953", wait: "#5c6870"};
const kLane = 15, kMostLeft = 170, kTop = 20;

const kindOf = (event, lane) => event.cat === "idle" ? "wait" : Object.keys(kColors).find((key) => event.name.startsWith(key) || event.cat === key) ?? (lane.tid ? "collective" : "forward");

// Which bars of a lane have room for their text, as {bar, text, x}. `bars`: {a, b, name} in the order in which they are drawn, later
// ones over earlier ones; `widthOf`: of a text. No text is cut, lies over another one or below a bar that is drawn later.
export function labelsOf(bars, widthOf) {
  const labels = [], covered = [];
  for (const bar of bars.slice().reverse()) {
    const texts = bar.name ? [bar.name, bar.name.replace(/^\S+ /, "")] : [];  // the colour says the first word, too
    const isFree = (from, to) => covered.every(([a, b]) => b <= from || a >= to);
    for (const text of bar.b - bar.a > 14 ? texts : []) {
      const width = widthOf(text);
      if (width + 6 > bar.b - bar.a || !isFree(bar.a + 3, bar.a + 3 + width)) continue;
      labels.push({bar, text, x: bar.a + 3});
      break;
    }
    covered.push([bar.a, bar.b]);
  }
  return labels;
}

export class TimelineView {
  constructor(app) {
    this.app = app;
    this.select = el("select", {"aria-label": "run", onchange: () => this.load()});
    this.steps = el("select", {"aria-label": "steps", onchange: () => this.chooseStep()});
    this.save = el("button", {onclick: () => this.download(), hidden: true}, "save the trace");
    this.said = el("div.small");
    this.canvas = el("canvas", {role: "img", "aria-label": "timeline of ranks", tabindex: 0});
    this.legend = el("div.key");
    this.holder = el("div.card", {}, this.said, this.legend, this.canvas);
    this.root = el("div", {}, el("div.bar", {}, this.select, this.steps, this.save, el("span.small", {}, "draw a range to look closer; double click shows all")), this.holder);
    this.canvas.style.width = "100%";
    let from = null;
    const at = (event) => this.fromPx(event.offsetX);
    this.canvas.addEventListener("pointerdown", (event) => { from = at(event); this.canvas.setPointerCapture(event.pointerId); });
    this.canvas.addEventListener("pointerup", (event) => { const to = at(event); if (from !== null && Math.abs(to - from) > (this.t1 - this.t0) / 100) { [this.t0, this.t1] = [Math.min(from, to), Math.max(from, to)]; this.draw(); } from = null; });
    this.canvas.addEventListener("dblclick", () => { this.steps.value = "all"; this.chooseStep(); });
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    new ResizeObserver(() => this.draw()).observe(this.holder);
  }

  async update() {
    const traced = (runs) => runs.filter((run) => run.trace).map((run) => run.id), chosen = traced(this.app.chosenRuns());
    const ids = chosen.length ? chosen : traced([...this.app.runs.values()]);
    if ([...this.select.options].map((option) => option.value).join("\n") === ids.join("\n") && this.loaded) return;
    this.select.replaceChildren(...ids.map((id) => el("option", {value: id}, this.app.shortName(id))));
    if (ids.length) await this.load();
    else this.say("No run has a trace. Train with --log.trace=FILE to have one.");
    this.select.hidden = this.steps.hidden = !ids.length;
  }

  say(text) { this.lanes = null; this.canvas.hidden = true; this.legend.replaceChildren(); this.said.textContent = text; }

  async load() {
    this.loaded = this.select.value;
    this.save.hidden = true;
    try {
      const trace = await ask("api/trace", {run: this.select.value});
      if (trace) this.take(trace);
      else this.say("This run has no trace any more.");
    } catch (error) { this.say(error.message); }
  }

  take(trace) {
    this.trace = trace;
    this.save.hidden = false;
    const lanes = new Map(), names = new Map();
    for (const event of trace.traceEvents ?? trace) {
      if (event.ph === "M" && event.name === "process_name") names.set(event.pid, String(event.args?.name ?? event.pid));
      if (event.ph !== "X" || !isFinite(event.ts) || !isFinite(event.dur)) continue;
      const key = `${event.pid}/${event.tid}`;
      if (!lanes.has(key)) lanes.set(key, {pid: event.pid, tid: event.tid, events: []});
      lanes.get(key).events.push(event);
    }
    this.lanes = [...lanes.values()].sort((a, b) => a.pid - b.pid || a.tid - b.tid);
    // Long ones first, so that what is in them is drawn over them.
    for (const lane of this.lanes) { lane.name = names.get(lane.pid) ?? `rank ${lane.pid}`; lane.events.sort((a, b) => b.dur - a.dur); }
    const steps = new Map();
    for (const lane of this.lanes) for (const event of lane.events) if (/^step \d+$/.test(event.name)) { const s = steps.get(event.name) ?? {t0: Infinity, t1: -Infinity}; steps.set(event.name, {t0: Math.min(s.t0, event.ts), t1: Math.max(s.t1, event.ts + event.dur)}); }
    this.stepTimes = steps;
    this.steps.replaceChildren(el("option", {value: "all"}, "all steps"), ...[...steps.keys()].map((name) => el("option", {value: name}, name)));
    if (steps.size) this.steps.value = [...steps.keys()][Math.min(1, steps.size - 1)];
    this.canvas.hidden = false;
    this.chooseStep();
  }

  chooseStep() {
    if (!this.lanes) return;
    const step = this.stepTimes.get(this.steps.value);
    const events = this.lanes.flatMap((lane) => lane.events.length ? [lane] : []);
    this.t0 = step?.t0 ?? events.reduce((t, lane) => lane.events.reduce((u, e) => Math.min(u, e.ts), t), Infinity);
    this.t1 = step?.t1 ?? events.reduce((t, lane) => lane.events.reduce((u, e) => Math.max(u, e.ts + e.dur), t), -Infinity);
    this.draw();
  }

  // The rank that computes longest in what is shown, where it is well above the middle one.
  straggler() {
    const busy = new Map();
    for (const lane of this.lanes) for (const event of lane.events) if (/^(forward|backward|F|B|W|input|weight)/i.test(event.cat ?? "") || /^(forward|backward)/.test(event.name)) {
      const time = Math.min(event.ts + event.dur, this.t1) - Math.max(event.ts, this.t0);
      if (time > 0) busy.set(event.pid, (busy.get(event.pid) ?? 0) + time);
    }
    const list = [...busy].sort((a, b) => a[1] - b[1]);
    if (list.length < 2) return null;
    const middle = list[Math.floor((list.length - 1) / 2)][1], [pid, most] = list.at(-1);
    return most > 1.15 * middle ? {pid, excess: most / middle - 1} : null;
  }

  px(t) { return this.left + (t - this.t0) / (this.t1 - this.t0) * (this.width - this.left - 6); }
  fromPx(x) { return this.t0 + (x - this.left) / (this.width - this.left - 6) * (this.t1 - this.t0); }

  draw() {
    if (!this.lanes || !(this.t1 > this.t0)) return;
    const begun = performance.now(), ratio = devicePixelRatio || 1, height = kTop + this.lanes.length * kLane + 6;
    this.width = this.holder.clientWidth - 24;
    this.canvas.style.height = `${height}px`;
    this.canvas.width = this.width * ratio;
    this.canvas.height = height * ratio;
    const pen = this.canvas.getContext("2d"), style = getComputedStyle(this.root), ink = (name) => style.getPropertyValue(name).trim();
    pen.scale(ratio, ratio);
    pen.font = "11px " + style.fontFamily;
    pen.textBaseline = "middle";
    this.left = Math.min(kMostLeft, this.width / 3, 12 + Math.max(...this.lanes.map((lane) => pen.measureText(lane.name).width)));
    const kinds = new Set();
    this.lanes.forEach((lane, i) => {
      const y = kTop + i * kLane;
      pen.fillStyle = ink("--faint");
      if (!i || this.lanes[i - 1].pid !== lane.pid) pen.fillText(lane.name, 0, y + kLane / 2, this.left - 8);
      let last = -1, drawn = "";
      const bars = [];
      for (const event of lane.events) {
        const a = Math.max(this.px(event.ts), this.left), b = Math.min(this.px(event.ts + event.dur), this.width - 6);
        if (b < this.left || a > this.width) continue;
        // Of many within one pixel one is seen.
        if (b - a < .5 && Math.round(a) === last && drawn === event.cat) continue;
        last = Math.round(a);
        drawn = event.cat;
        const kind = kindOf(event, lane), isStep = event.cat === "step" && event.name.startsWith("step ");
        if (!isStep) kinds.add(kind);
        pen.fillStyle = kColors[kind];
        pen.globalAlpha = isStep ? .25 : .9;
        pen.fillRect(a, y + 1, Math.max(b - a, .6), kLane - 2);
        pen.globalAlpha = 1;
        bars.push({a, b, name: isStep ? "" : event.name});
      }
      pen.fillStyle = "#fff";
      for (const {text, x} of labelsOf(bars, (text) => pen.measureText(text).width)) pen.fillText(text, x, y + kLane / 2 + .5);
    });
    this.drawLegend(kinds);
    const slow = this.straggler();
    if (slow) {
      const rows = this.lanes.map((lane, i) => lane.pid === slow.pid ? i : -1).filter((i) => i >= 0);
      pen.strokeStyle = ink("--bad");
      pen.lineWidth = 2;
      pen.strokeRect(this.left - 2, kTop + rows[0] * kLane - 1, this.width - this.left, rows.length * kLane + 2);
    }
    pen.fillStyle = ink("--faint");
    const parts = Math.max(1, Math.min(8, Math.floor((this.width - this.left) / 100)));
    for (let i = 0; i <= parts; ++i) { pen.textAlign = i === parts ? "right" : i ? "center" : "left"; pen.fillText(`${formatNumber((this.t1 - this.t0) * i / parts / 1000, 4)} ms`, this.left + (this.width - this.left - 6) * i / parts, 8); }
    pen.textAlign = "left";
    this.drewIn = performance.now() - begun;
    this.said.textContent = slow ? `rank ${slow.pid} computes ${Math.round(100 * slow.excess)}% longer than the middle one` : "";
  }

  // What the colours stand for.
  drawLegend(kinds) {
    const text = [...kinds].join();
    if (this.legend.dataset.text === text) return;
    this.legend.dataset.text = text;
    this.legend.replaceChildren(...Object.keys(kColors).filter((kind) => kinds.has(kind)).map((kind) => { const chip = el("span.chip", {}, kind); chip.style.color = "#fff"; chip.style.background = kColors[kind]; return chip; }));
  }

  point(event) {
    if (!this.lanes) return;
    const lane = this.lanes[Math.floor((event.offsetY - kTop) / kLane)], t = this.fromPx(event.offsetX);
    const hit = lane?.events.filter((one) => one.ts <= t && t <= one.ts + one.dur).at(-1);
    this.canvas.title = hit ? `${hit.name}: ${formatNumber(hit.dur / 1000)} ms` : "";
  }

  download() {
    const link = el("a", {download: "trace.json", href: URL.createObjectURL(new Blob([JSON.stringify(this.trace)], {type: "application/json"}))});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }
}
