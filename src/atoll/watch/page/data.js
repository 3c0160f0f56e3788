// The parts of series that are shown, as the server gave them: asked for once, then only what is new.

import {ask} from "./dom.js";

const kMostPoints = 20000;  // that the server gives of a series

export const kAxes = {
  step: {label: "step", server: "step", place: 0},
  tokens: {label: "tokens", server: "tokens", place: 1},
  wall: {label: "wall time", server: "time", place: 2, relative: true},
  active: {label: "time training", server: "active", place: 3, relative: true},
  clock: {label: "clock", server: "time", place: 2},
};

// What is to be taken from a run's x values on an axis.
export const offsetOf = (run, axis) => kAxes[axis].relative ? run.first[kAxes[axis].place] : 0;

// Puts new points in place of those from record `begins` on.
function merge(old, fresh, begins) {
  const keep = (records) => { let n = records.length; while (n > 0 && records[n - 1] >= begins) --n; return n; };
  const n = keep(old.r);
  for (const key of ["r", "x0", "x1", "min", "max", "mean"]) { old[key].length = n; for (const v of fresh[key]) old[key].push(v); }
  old.bad = old.bad.filter(([record]) => record < begins).concat(fresh.bad);
}

// A part of a series as the server gives it, with places as the axis has them.
function unpack(raw, offset) {
  const part = raw.y ? {name: raw.name, r: raw.r, x0: raw.x, x1: raw.x.slice(), min: raw.y.slice(), max: raw.y.slice(), mean: raw.y, bad: raw.bad} : raw;
  if (!offset) return part;
  for (const list of [part.x0, part.x1]) for (let i = 0; i < list.length; ++i) list[i] -= offset;
  for (const bad of part.bad) bad[1] -= offset;
  return part;
}

const question = (run, names, view, offset) => ({run: run.id, name: names, axis: kAxes[view.axis].server, points: view.points,
  from: view.from === null ? undefined : view.from + offset, to: view.to === null ? undefined : view.to + offset});

// A series in a view, with as many records as the server gives at once: for who takes the numbers with them.
export async function whole(run, name, view) {
  const offset = offsetOf(run, view.axis), answer = await ask("api/series", question(run, [name], {...view, points: kMostPoints}, offset));
  const part = unpack(answer.series[0], offset);
  return {...part, bad: part.bad.map(([, x]) => x), size: answer.size};
}

export class Store {
  constructor() { this.parts = new Map(); this.bytes = 0; this.requests = 0; }

  // Makes sure that the named series of a run are there for a view {axis, from, to, points}; true if
  // anything is new.
  async load(run, names, view) {
    const key = JSON.stringify([view.axis, view.from, view.to, view.points]);
    let held = this.parts.get(run.id);
    if (!held || held.key !== key || held.generation !== run.generation) {
      held = {key, generation: run.generation, groups: []};
      this.parts.set(run.id, held);
    }
    const has = (name) => held.groups.some((group) => group.names.includes(name));
    const missing = names.filter((name) => !has(name));
    let isNew = false;
    if (missing.length) isNew = await this.fetch(run, held, {names: missing, series: new Map(), records: 0, size: 0}, view) || isNew;
    for (const group of held.groups) {
      // Those that nobody looks at wait.
      if (group.records >= run.records || !group.names.some((name) => names.includes(name))) continue;
      isNew = await this.fetch(run, held, group, view) || isNew;
    }
    return isNew;
  }

  async fetch(run, held, group, view) {
    if (group.busy) return false;
    group.busy = true;
    const isFirst = group.records === 0;
    if (isFirst) held.groups.push(group);
    try {
      const offset = offsetOf(run, view.axis);
      const answer = await ask("api/series", {...question(run, group.names, view, offset),
        since: isFirst ? undefined : group.records, size: isFirst ? undefined : group.size});
      this.requests++;
      if (answer.generation !== held.generation) { this.parts.delete(run.id); return true; }
      let longest = 0;
      for (const raw of answer.series) {
        const part = unpack(raw, offset);
        const old = group.series.get(part.name);
        old ? merge(old, part, answer.begins) : group.series.set(part.name, part);
        longest = Math.max(longest, group.series.get(part.name).r.length);
      }
      group.records = answer.records;
      group.size = answer.size;
      // Twice as many as were asked for: coarser buckets are due.
      if (longest > 2 * view.points) held.groups = held.groups.filter((one) => one !== group);
      return true;
    } finally { group.busy = false; }
  }

  part(run, name) {
    for (const group of this.parts.get(run.id)?.groups ?? []) {
      const part = group.series.get(name);
      if (part) return {...part, size: group.size};
    }
    return null;
  }

  forget(id) { this.parts.delete(id); }
}
