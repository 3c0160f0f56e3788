// Several runs as one thing: islands with their ledger, and the trials of a study.

import {el, ask, fill, table, when} from "./dom.js";
import {formatNumber} from "./numbers.js";

const empty = (text) => el("p.empty", {}, text);

class DirectoryView {
  constructor(app, what, list) {
    this.app = app;
    this.what = what;
    this.list = list;
    this.select = el("select", {"aria-label": what, onchange: () => this.update(true)});
    this.body = el("div");
    this.root = el("div", {}, el("div.bar", {}, this.select), this.body);
  }
  async update(isAsked) {
    const dirs = this.app[this.list];
    if (this.select.options.length !== dirs.length) this.select.replaceChildren(...dirs.map((dir) => el("option", {value: dir}, this.app.nameOf(dir))));
    if (!dirs.length) return fill(this.body, empty(`There is no ${this.what} here.`));
    // A ledger or a study is read whole: no more than once in a few seconds.
    if (!isAsked && performance.now() - (this.askedAt ?? -1e9) < 3000) return;
    this.askedAt = performance.now();
    try { this.draw(await ask(`api/${this.what}`, {dir: this.select.value})); }
    catch (error) { fill(this.body, empty(error.message)); }
  }
}

export class IslandsView extends DirectoryView {
  constructor(app) { super(app, "ledger", "ledgers"); }

  // The run of an island, where it is on this machine.
  runOf(name) { return [...this.app.runs.values()].find((run) => run.id.split("/").pop() === name); }

  draw(ledger) {
    const steps = ledger.outer_steps ?? [], committed = steps.filter((step) => step.outcome === "committed");
    const names = new Map(ledger.islands.map((island) => [island.island, island.name]));
    fill(this.body, 
      el("div.card", {}, el("h2", {}, `Islands: ${ledger.islands.length}`), this.map(ledger, committed),
        el("p.small", {}, `${ledger.committed} outer steps committed, ${ledger.abandoned} abandoned, ${ledger.void} void; ${ledger.finished ? "finished" : "not finished"}; audit ${ledger.audit.proved ? "proved" : "found: " + ledger.audit.findings.join("; ")}`)),
      this.links(ledger, names),
      el("div.card", {}, el("h2", {}, "Outer steps"), table(["step", "fragment", "try", "when", "outcome", "tokens", "loss", "exchange", "round", "hash", "members"],
        steps.slice(-200).reverse().map((step) => {
          const tokens = step.members.reduce((sum, member) => sum + member.tokens, 0);
          const loss = tokens ? step.members.reduce((sum, member) => sum + member.tokens * member.loss, 0) / tokens : null;
          const slowest = step.members.length;
          return [step.outer_step, step.fragment, step.attempt, when(step.committed ?? step.begun), el(`span.chip.${step.outcome === "committed" ? "running" : "warning"}`, {}, step.outcome),
            formatNumber(tokens), formatNumber(loss), step.exchange_seconds !== undefined ? `${formatNumber(step.exchange_seconds)} s` : "", step.round_seconds !== undefined ? `${formatNumber(step.round_seconds)} s` : "",
            el("code", {}, (step.hash ?? "").slice(0, 8)), slowest > 12 ? `${slowest} islands` : step.members.map((member) => `${names.get(member.island) ?? member.island} ${(100 * member.weight).toFixed(0)}%`).join(", ")];
        }))));
  }

  // How its own run is; of an island that is elsewhere, as far as the ledger knows. What the ledger calls finished is.
  stateOf(ledger, island, last) {
    const run = this.runOf(island.name), state = run?.state ?? (last.has(island.island) ? "running" : "stopped");
    return ledger.finished && (!run || state === "stopped") ? "finished" : state;
  }

  // What an island computes in a round: inner steps by the time that each takes it.
  roundSeconds(member) {
    const batches = member.batches.reduce((sum, [from, to]) => sum + to - from, 0);
    return batches * (member.step_seconds ?? 0);
  }

  // Who waits for whom in the newest outer step: the others for the island whose round takes longest.
  waits(ledger, committed) {
    const members = (committed.at(-1)?.members ?? []).map((member) => ({island: member.island, seconds: this.roundSeconds(member)})).filter((member) => member.seconds > 0);
    if (members.length < 2 || (committed.at(-1)?.members ?? []).some((member) => member.exchange)) return null;  // pairs that gossip wait for each other alone
    const slowest = members.reduce((a, b) => b.seconds > a.seconds ? b : a);
    if (Math.min(...members.map((member) => member.seconds)) > .95 * slowest.seconds) return null;
    return {slowest, of: new Map(members.map((member) => [member.island, slowest.seconds - member.seconds]))};
  }

  waitText(waits, id) {
    if (!waits || !waits.of.has(id) || waits.slowest.seconds <= 0) return "";
    if (id === waits.slowest.island) return "; all wait for it";
    const wait = waits.of.get(id);
    return wait > .05 * waits.slowest.seconds ? `; waits ${formatNumber(wait)} s a round` : "";
  }

  // A line between each two islands that have measured their link: the thicker, the faster; the slowest stands out.
  drawLinks(svg, ledger, places) {
    const links = (ledger.links ?? []).filter((link) => link.bytes_per_second > 0 && places.has(link.from) && places.has(link.to));
    if (!links.length) return;
    const rates = links.map((link) => Math.log(link.bytes_per_second)), low = Math.min(...rates), high = Math.max(...rates);
    links.forEach((link, i) => {
      const [x1, y1] = places.get(link.from), [x2, y2] = places.get(link.to);
      const isSlowest = rates[i] === low && high > low + .2;
      // Both ways, side by side.
      const length = Math.hypot(x2 - x1, y2 - y1) || 1, dx = 3 * (y2 - y1) / length, dy = -3 * (x2 - x1) / length;
      svg.append(el("line", {x1: x1 + dx, y1: y1 + dy, x2: x2 + dx, y2: y2 + dy, stroke: isSlowest ? "var(--warn)" : "var(--accent)", "stroke-opacity": isSlowest ? .9 : .35,
        "stroke-width": high > low ? 1 + 3 * (rates[i] - low) / (high - low) : 1.5},
        el("title", {}, `${formatNumber(8 * link.bytes_per_second)}bit/s, round trip ${formatNumber(1000 * link.round_trip_seconds)} ms`)));
    });
  }

  links(ledger, names) {
    const links = (ledger.links ?? []).filter((link) => link.bytes_per_second > 0), name = (id) => names.get(id) ?? id;
    if (!links.length) return null;
    const rate = (link) => `${formatNumber(8 * link.bytes_per_second)}bit/s`, trip = (link) => `${formatNumber(1000 * link.round_trip_seconds)} ms`;
    const ids = [...new Set(links.flatMap((link) => [link.from, link.to]))].sort((a, b) => a - b);
    const title = el("h2", {}, ids.length > 64 ? "Slowest link of each island" : "Links: rate and round trip");
    if (ids.length > 12) {
      const slow = links.slice().sort((a, b) => a.bytes_per_second - b.bytes_per_second).slice(0, 50);
      return el("div.card", {}, title, table(["from", "to", "rate", "round trip"], slow.map((link) => [name(link.from), name(link.to), rate(link), trip(link)])));
    }
    const at = new Map(links.map((link) => [`${link.from} ${link.to}`, link])), least = Math.min(...links.map((link) => link.bytes_per_second));
    return el("div.card", {}, title, table(["to \\ from", ...ids.map(name)], ids.map((to) => [name(to), ...ids.map((from) => {
      const link = at.get(`${from} ${to}`);
      return link ? el(link.bytes_per_second === least ? "td.differs" : "td", {}, `${rate(link)}, ${trip(link)}`) : "";
    })])));
  }

  map(ledger, committed) {
    const waits = this.waits(ledger, committed);
    const islands = ledger.islands, last = new Set((committed.at(-1)?.members ?? []).map((member) => member.island));
    const isRing = islands.length <= 40, size = 320, columns = Math.ceil(Math.sqrt(islands.length * 2));
    const most = Math.max(1, ...islands.map((island) => island.tokens));
    const svg = el("svg", {viewBox: isRing ? `0 -24 ${size * 1.7} ${size + 54}` : `0 0 ${columns * 18 + 4} ${Math.ceil(islands.length / columns) * 18 + 4}`, width: "100%", role: "img", "aria-label": "map of islands"});
    svg.style.maxHeight = "360px";
    const place = (i) => { const angle = 2 * Math.PI * i / islands.length - Math.PI / 2; return [size * .85 + Math.cos(angle) * size * .36, size / 2 + Math.sin(angle) * size * .36]; };
    if (isRing) this.drawLinks(svg, ledger, new Map(islands.map((island, i) => [island.island, place(i)])));
    islands.forEach((island, i) => {
      const state = this.stateOf(ledger, island, last);
      const color = {running: "var(--good)", finished: "var(--accent)", lost: "var(--bad)", stopped: "var(--mark)"}[state];
      const title = el("title", {}, `${island.name}: ${state}; ${island.outer_steps} outer steps, ${formatNumber(island.tokens)} tokens${this.waitText(waits, island.island)}${island.address ? "; " + island.address : ""}`);
      if (!isRing) {
        svg.append(el("rect", {x: 4 + i % columns * 18, y: 4 + Math.floor(i / columns) * 18, width: 14, height: 14, rx: 3, fill: color, "fill-opacity": .35 + .65 * island.tokens / most}, title));
        return;
      }
      const angle = 2 * Math.PI * i / islands.length - Math.PI / 2, [x, y] = place(i);
      if (last.has(island.island)) svg.append(el("line", {x1: size * .85, y1: size / 2, x2: x, y2: y, stroke: "var(--line)", "stroke-width": 2}));
      svg.append(el("circle", {cx: x, cy: y, r: 7 + 13 * Math.sqrt(island.tokens / most), fill: color, "fill-opacity": .85}, title));
      if (islands.length <= 16) {
        const side = Math.cos(angle) > .3 ? "start" : Math.cos(angle) < -.3 ? "end" : "middle";
        const off = 26, ty = y + (side === "middle" ? (Math.sin(angle) > 0 ? 36 : -54) : 0);
        svg.append(el("text", {x: x + (side === "start" ? off : side === "end" ? -off : 0), y: ty, "text-anchor": side}, island.name),
          el("text.faint", {x: x + (side === "start" ? off : side === "end" ? -off : 0), y: ty + 13, "text-anchor": side}, `${state}, ${island.outer_steps} steps`),
          el("text.faint", {x: x + (side === "start" ? off : side === "end" ? -off : 0), y: ty + 26, "text-anchor": side}, this.waitText(waits, island.island).slice(2)));
      }
    });
    if (isRing) svg.append(el("circle", {cx: size * .85, cy: size / 2, r: 5, fill: "var(--ink)"}, el("title", {}, "coordinator")));
    return svg;
  }
}

export class StudyView extends DirectoryView {
  constructor(app) { super(app, "study", "studies"); }

  draw(study) {
    this.study = study;
    const objective = study.objectives[0], trials = study.trials;
    const sign = objective.maximise || objective.goal === "max" || objective.direction === "maximize" ? -1 : 1;
    const value = (trial) => { const m = trial.measured?.at(-1)?.values?.[0]; return m === null || m === undefined ? null : m; };
    const sorted = trials.slice().sort((a, b) => sign * ((value(a) ?? Infinity * sign) - (value(b) ?? Infinity * sign)) || 0);
    const keys = [...new Set(trials.flatMap((trial) => Object.keys(trial.settings)))];
    const best = new Set([study.best ?? []].flat());
    const importance = Object.entries(study.importance ?? {}).sort((a, b) => b[1] - a[1]).map(([key, v]) => `${key} ${(100 * v).toFixed(0)}%`).join(", ");
    fill(this.body, 
      el("div.card", {}, el("h2", {}, "Settings of trials"), this.parallel(sorted, keys, value), importance ? el("p.small", {}, `importance: ${importance}`) : null),
      trials.some((trial) => trial.parent !== undefined && trial.parent !== null && trial.parent >= 0) ? el("div.card", {}, el("h2", {}, "Who was forked from whom"), this.family(trials, value)) : null,
      el("div.card", {}, el("h2", {}, `Trials: ${trials.length}`), table(["trial", "state", "step", objective.name ?? "objective", ...keys, "note"],
        sorted.map((trial) => [el("td.num", {}, best.has(trial.trial ?? trial.number) ? "★ " : "", trial.trial ?? trial.number), trial.state ?? trial.end ?? "", trial.measured?.at(-1)?.step ?? 0,
          formatNumber(value(trial)), ...keys.map((key) => el("code", {}, trial.settings[key] ?? "")), trial.why ?? ""]))));
  }

  color(share) { return `color-mix(in oklab, var(--good) ${Math.round(100 * (1 - share))}%, var(--bad))`; }

  parallel(trials, keys, value) {
    const columns = [...keys, "objective"], width = 860, height = 240, top = 26, low = 18;
    const read = (trial, key) => key === "objective" ? value(trial) : trial.settings[key];
    const scales = columns.map((key) => {
      const values = trials.map((trial) => read(trial, key)).filter((v) => v !== undefined && v !== null);
      const numbers = values.map(Number);
      if (numbers.length && numbers.every(isFinite)) {
        const a = Math.min(...numbers), b = Math.max(...numbers), isLog = a > 0 && b / a > 20;
        const f = isLog ? Math.log : (v) => v;
        return {low: formatNumber(a), high: formatNumber(b), at: (v) => b > a ? (f(+v) - f(a)) / (f(b) - f(a)) : .5};
      }
      const words = [...new Set(values)].sort();
      return {low: words[0] ?? "", high: words.at(-1) ?? "", at: (v) => words.length > 1 ? words.indexOf(v) / (words.length - 1) : .5};
    });
    const x = (i) => 60 + i * (width - 120) / Math.max(1, columns.length - 1), y = (share) => height - low - share * (height - top - low);
    const svg = el("svg", {viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "parallel coordinates of trials"});
    const shown = trials.filter((trial) => value(trial) !== null);
    for (const trial of shown.slice(0, 1000).reverse()) {
      const points = columns.map((key, i) => { const v = read(trial, key); return v === undefined || v === null ? null : `${x(i)},${y(scales[i].at(v))}`; }).filter(Boolean);
      const line = el("polyline", {points: points.join(" "), fill: "none", "stroke-width": 1.5, "stroke-opacity": .6}, el("title", {}, `trial ${trial.trial ?? trial.number}`));
      line.style.stroke = this.color(scales.at(-1).at(value(trial)));
      svg.append(line);
    }
    columns.forEach((key, i) => svg.append(el("line", {x1: x(i), x2: x(i), y1: y(0), y2: y(1), stroke: "var(--mark)"}),
      el("text", {x: x(i), y: 10, "text-anchor": "middle"}, key.split(".").pop()), el("text.faint", {x: x(i), y: 22, "text-anchor": "middle"}, scales[i].high), el("text.faint", {x: x(i), y: height - 3, "text-anchor": "middle"}, scales[i].low)));
    return el("div.scroll", {}, svg);
  }

  family(trials, value) {
    const id = (trial) => trial.trial ?? trial.number, at = new Map();
    const end = (trial) => Math.max(trial.fork_step ?? 0, trial.measured?.at(-1)?.step ?? 0), last = Math.max(1, ...trials.map(end));
    const width = 860, x = (step) => 40 + step / last * (width - 80), height = trials.length * 16 + 20;
    const values = trials.map(value).filter((v) => v !== null), a = Math.min(...values), b = Math.max(...values);
    const svg = el("svg", {viewBox: `0 0 ${width} ${height}`, width: "100%", role: "img", "aria-label": "family of trials"});
    trials.forEach((trial, i) => {
      const y = 14 + i * 16, from = trial.fork_step ?? 0, v = value(trial);
      at.set(id(trial), y);
      if (trial.parent >= 0 && at.has(trial.parent)) svg.append(el("path", {d: `M${x(from)},${at.get(trial.parent)} V${y}`, stroke: "var(--mark)", fill: "none"}));
      const line = el("line", {x1: x(from), x2: Math.max(x(end(trial)), x(from) + 3), y1: y, y2: y, "stroke-width": 4, "stroke-linecap": "round"}, el("title", {}, `trial ${id(trial)}: ${formatNumber(v)}`));
      line.style.stroke = v === null ? "var(--mark)" : this.color(b > a ? (v - a) / (b - a) : 0);
      svg.append(line, el("text.faint", {x: 8, y: y + 4}, String(id(trial))));
    });
    return svg;
  }
}
