// What is said of runs beside their curves: settings, events, ranks.

import {el, ask, fill, table, when} from "./dom.js";
import {formatNumber} from "./numbers.js";

async function details(app, most) {
  const runs = app.chosenRuns().slice(0, most);
  return Promise.all(runs.map((run) => ask("api/run", {run: run.id})));
}

const empty = (text) => el("p.empty", {}, text);

// Views whose content is asked for anew when the choice or a chosen run changes.
class AskedView {
  constructor(app) { this.app = app; this.root = el("div"); }
  async update() {
    if (this.isBusy) { this.again = true; return; }
    this.isBusy = true;
    try { do { this.again = false; await this.load(); } while (this.again); }
    catch (error) { fill(this.root, empty(error.message)); }
    finally { this.isBusy = false; }
  }
}

export class CompareView extends AskedView {
  constructor(app) {
    super(app);
    this.all = el("input", {type: "checkbox", id: "all-settings", onchange: () => this.update()});
    this.filter = el("input", {type: "search", placeholder: "filter settings", "aria-label": "Filter settings", oninput: () => this.update()});
    this.body = el("div");
    this.root.append(el("div.bar", {}, el("label", {for: "all-settings"}, this.all, " all settings"), this.filter), this.body);
  }
  async load() {
    const runs = await details(this.app, 12);
    if (!runs.length) return fill(this.body, empty("Choose a run, or several to see in which settings they differ."));
    const maps = runs.map((run) => new Map(run.settings));
    const keys = [...new Set(maps.flatMap((map) => [...map.keys()]))];
    const differs = (key) => maps.some((map) => map.get(key) !== maps[0].get(key));
    const showsAll = this.all.checked || runs.length === 1, word = this.filter.value.toLowerCase();
    const rows = keys.filter((key) => (showsAll || differs(key)) && key.toLowerCase().includes(word)).map((key) =>
      [el("code", {}, key), ...maps.map((map) => el(differs(key) ? "td.differs" : "td", {}, el("code", {}, map.get(key) ?? "–")))]);
    fill(this.body, 
      runs.length > 1 ? el("p.small", {}, `${keys.filter(differs).length} of ${keys.length} settings differ between these ${runs.length} runs.`) : null,
      rows.length ? table(["setting", ...runs.map((run) => this.app.shortName(run.id))], rows) : empty("No setting differs."));
  }
}

export class EventsView extends AskedView {
  constructor(app) { super(app); this.form = el("div"); this.body = el("div"); this.root.append(this.form, this.body); }
  async load() {
    const runs = await details(this.app, 6);
    if (!runs.length) { fill(this.form, ); return fill(this.body, empty("Choose a run.")); }
    if (this.formOf !== runs[0].id || this.couldWrite !== this.app.canWrite) this.drawForm(runs[0]);
    const events = runs.flatMap((run) => this.events(run, runs.length > 1 ? this.app.shortName(run.id) + ": " : ""));
    events.sort((a, b) => b.time - a.time);
    const texts = runs.flatMap((run) => run.texts.filter((text) => text.name !== "nonfinite_samples").map((text) => ({...text, run: run.id}))).reverse();
    fill(this.body, 
      el("div.card", {}, el("h2", {}, "Events"), events.length ? events.slice(0, 500).map((event) => el("div.event", {},
        el("span.when", {}, when(event.time)), el("div", {}, el(`span.chip.${event.severity}`, {}, event.kind), " ", event.text,
          event.command ? el("pre", {}, event.command) : null))) : empty("Nothing has happened beside steps.")),
      texts.length ? el("div.card", {}, el("h2", {}, "Texts"), texts.slice(0, 100).map((text) => el("div.event", {},
        el("span.when", {}, `step ${formatNumber(text.at[0])} ${text.name}`), el("pre", {}, text.text)))) : null);
  }
  drawForm(run) {
    this.formOf = run.id;
    this.couldWrite = this.app.canWrite;
    if (!this.app.canWrite) return fill(this.form, el("p.small", {}, "Notes can be written by who opened the address with its token."));
    const field = el("textarea", {placeholder: `a note on ${run.id}; #words become tags`, "aria-label": "Note", maxlength: 5000});
    const said = el("span.small");
    const send = async () => {
      if (!field.value.trim()) return;
      try {
        await ask("api/note", {run: run.id}, {method: "POST", body: JSON.stringify({text: field.value.trim()}), headers: {"Content-Type": "application/json"}});
        field.value = "";
        said.textContent = "kept";
        setTimeout(() => this.update(), 600);
      } catch (error) { said.textContent = error.message; }
    };
    fill(this.form, el("div.card", {}, field, el("div.bar", {}, el("button", {onclick: send}, "keep the note"), said)));
  }
  events(run, before) {
    const list = run.marks.map((mark) => ({time: mark.at[2], kind: mark.kind, text: before + mark.text, severity: mark.kind === "nonfinite" ? "error" : mark.kind === "members" ? "warning" : "info"}));
    for (const [step, time] of run.checkpoints) list.push({time, kind: "checkpoint", text: `${before}checkpoint of step ${step}`, severity: "info"});
    for (const alert of run.alert_list) list.push({time: +alert.time || 0, kind: String(alert.kind), text: `${before}step ${alert.step}: ${alert.message}`, severity: ["warning", "error"].includes(alert.severity) ? alert.severity : "info", command: alert.command ? String(alert.command) : ""});
    for (const note of run.notes) list.push({time: +note.time || 0, kind: "note", text: before + note.text, severity: "info"});
    if (run.state === "lost") list.push({time: run.last[2], kind: "lost", text: `${before}its process is gone, and the steps after its last checkpoint with it; the same command goes on from there`, severity: "error"});
    for (const text of run.texts) if (text.name === "nonfinite_samples") list.push({time: text.at[2], kind: "samples", text: `${before}not finite: ${text.text.slice(0, 2000)}`, severity: "error"});
    return list;
  }
}

// What the model wrote at evaluations (eval.samples), as it writes them: the newest step first, or one prompt over the steps.
export class SamplesView extends AskedView {
  constructor(app) {
    super(app);
    this.by = el("select", {"aria-label": "Order of samples", onchange: () => this.update()}, el("option", {value: "step"}, "by step"), el("option", {value: "prompt"}, "by prompt"));
    this.filter = el("input", {type: "search", placeholder: "filter samples", "aria-label": "Filter samples", oninput: () => this.update()});
    this.body = el("div");
    this.root.append(el("div.bar", {}, this.by, this.filter), this.body);
  }
  async load() {
    const runs = await details(this.app, 6), word = this.filter.value.toLowerCase(), isByPrompt = this.by.value === "prompt";
    const samples = runs.flatMap((run) => run.samples.map((sample) => ({step: +sample.step || 0, number: +sample.number || 0, prompt: String(sample.prompt ?? ""), text: String(sample.text ?? ""), run: run.id})));
    if (!samples.length) return fill(this.body, empty("The chosen runs have written no samples. Train with --eval.samples=1 to have some at every evaluation."));
    const shown = samples.filter((sample) => (sample.prompt + sample.text).toLowerCase().includes(word));
    const groups = new Map(), key = (sample) => isByPrompt ? sample.prompt : `step ${formatNumber(sample.step)}`;
    shown.sort((a, b) => b.step - a.step || a.run.localeCompare(b.run) || a.number - b.number);
    for (const sample of shown.slice(0, 500)) groups.set(key(sample), [...groups.get(key(sample)) ?? [], sample]);
    fill(this.body, ...[...groups].map(([name, list]) => el("div.card", {}, el("h2", {}, name || "without a prompt"), list.map((sample) => el("div.event", {},
      el("span.when", {}, [runs.length > 1 ? this.app.shortName(sample.run) : "", isByPrompt ? `step ${formatNumber(sample.step)}` : `sample ${sample.number + 1}`].filter(Boolean).join(", ")),
      el("pre", {}, el("b", {}, sample.prompt), sample.text))))),
      shown.length ? null : empty("No sample has that."));
  }
}

const percent = (v) => `${(100 * v).toFixed(1)}%`;

// ranks.json as {compute: ms of a micro-batch, waits: part of a step}, by rank; null where there is none of these ranks.
function rankTimes(json, count) {
  const lists = [json?.step_ms, json?.compute_ms, json?.waited_ms];
  if (!lists.every((list) => Array.isArray(list) && list.length === count && list.every(isFinite))) return null;
  const [step, compute, waited] = lists;
  return {compute, waits: waited.map((ms, rank) => Math.min(1, Math.max(0, ms / Math.max(1e-9, step[rank]))))};
}

// All wait for the rank that waits least: its part of the step comes last.
function waitsText({compute, waits}) {
  const least = waits.indexOf(Math.min(...waits)), most = waits.indexOf(Math.max(...waits));
  const mean = (waits.reduce((sum, v) => sum + v, 0) - waits[least]) / Math.max(1, waits.length - 1);
  if (waits[most] < .02) return "nobody, for more than 2% of a step";
  return `the others wait ${percent(mean)} of a step, most of all rank ${most} (${percent(waits[most])}), for rank ${least}, which waits ${percent(waits[least])} and computes ${formatNumber(compute[least])} ms for a micro-batch`;
}

export class RanksView extends AskedView {
  async load() {
    const runs = this.app.chosenRuns().slice(0, 12);
    if (!runs.length) return fill(this.root, empty("Choose a run."));
    const full = await details(this.app, 12);
    fill(this.root, ...runs.map((run, i) => this.card(run, full[i])));
  }
  card(run, full) {
    const last = (name) => run.series.find((one) => one.name === name)?.last;
    const now = last("regroup_ranks") ?? last("ranks") ?? 1, most = Math.max(now, run.series.find((one) => one.name === "ranks")?.max ?? 1);
    const slowest = last("slowest_rank"), excess = last("slowest_rank_excess");
    const isSlow = (rank) => rank === slowest && excess > .15;
    const times = rankTimes(full.ranks, now);
    const boxes = Array.from({length: Math.min(most, 1024)}, (_, rank) => {
      const isLost = run.state === "lost" || rank >= now;
      const box = el("span" + (isLost ? ".lost" : isSlow(rank) ? ".slow" : ""),
        {title: [rank >= now ? `rank ${rank} was lost` : isSlow(rank) ? `rank ${rank} is slowest, ${Math.round(excess * 100)}% over the fastest` : `rank ${rank}`,
          times && !isLost ? `computes ${formatNumber(times.compute[rank])} ms for a micro-batch, waits ${percent(times.waits[rank])} of a step` : ""].filter(Boolean).join("; ")}, rank);
      // From the top as much as the rank waits for others.
      if (times && !isLost) box.style.setProperty("--waits", `${Math.round(100 * times.waits[rank])}%`);
      return box;
    });
    const rows = [["state", `${run.state}${run.holder ? ", held by " + run.holder : ""}`], ["ranks", most > now ? `${now} of ${most}: ${most - now} lost` : now]];
    if (times) rows.push(["who waits for whom", waitsText(times)]);
    if (slowest !== undefined) rows.push(["slowest", `rank ${slowest}, ${Math.round(excess * 1000) / 10}% over the fastest`]);
    for (const [name, label, text] of [["exposed_comm_fraction", "waits for others", (v) => `${(100 * v).toFixed(1)}% of a step`], ["bytes_sent", "sends a step", (v) => formatNumber(v) + "B"],
      ["data_fraction", "waits for data", (v) => `${(100 * v).toFixed(1)}%`], ["tokens_per_s", "tokens a second", formatNumber], ["mfu", "MFU", (v) => `${(100 * v).toFixed(1)}%`],
      ["outer_members", "islands in the last outer step", formatNumber], ["outer_utilisation", "of its time it trains", (v) => `${(100 * v).toFixed(1)}%`]]) {
      const value = last(name);
      if (value !== undefined && value !== null) rows.push([label, text(value)]);
    }
    const members = full.marks.filter((mark) => mark.kind === "members").slice(-5);
    return el("div.card", {}, el("h2", {}, run.id), el("div.ranks", {role: "img", "aria-label": `${now} ranks`}, boxes), el("p"),
      table(["", ""], rows), members.length ? table(["when", "members"], members.map((mark) => [when(mark.at[2]), mark.text])) : null);
  }
}
