// Runs that differ in their seed alone, as one line: the mean, and how far they are from each other.

import {breaksOf} from "./numbers.js";

// Lists of runs with the same settings but for the seed, each of two or more.
export function seedGroups(runs) {
  const groups = new Map();
  for (const run of runs) if (run.alike) groups.set(run.alike, [...groups.get(run.alike) ?? [], run]);
  return [...groups.values()].filter((group) => group.length > 1);
}

const middle = (line, i) => (line.x0[i] + line.x1[i]) / 2;

// The value of a line at x, between its points; null where it has none.
function valueAt(line, x) {
  const n = line.x0.length;
  if (!n || x < middle(line, 0) || x > middle(line, n - 1)) return null;
  let low = 0, high = n - 1;
  while (low < high) { const m = (low + high + 1) >> 1; middle(line, m) <= x ? low = m : high = m - 1; }
  const a = middle(line, low);
  if (a === x || low + 1 === n) return line.mean[low];
  if (line.breaks.has(low + 1)) return null;
  const b = middle(line, low + 1);
  return line.mean[low] + (line.mean[low + 1] - line.mean[low]) * (x - a) / (b - a);
}

// One line of several: at each x of one of them where two or more have a value. min and max are the mean less and more the
// standard deviation of the sample; `counts` says of how many values each is, `least` and `most` which are at the ends.
export function meanLine(lines) {
  for (const line of lines) line.breaks = breaksOf(line);
  const xs = [...new Set(lines.flatMap((line) => line.x0.map((_, i) => middle(line, i))))].sort((a, b) => a - b);
  const result = {x0: [], x1: [], mean: [], min: [], max: [], least: [], most: [], counts: [], bad: [], cuts: [], size: 1};
  let wasOut = false;
  for (const x of xs) {
    const values = lines.map((line) => valueAt(line, x)).filter((v) => v !== null);
    if (values.length < 2) { wasOut = result.x0.length > 0; continue; }
    const mean = values.reduce((sum, v) => sum + v, 0) / values.length;
    const spread = Math.sqrt(values.reduce((sum, v) => sum + (v - mean) ** 2, 0) / (values.length - 1));
    if (wasOut) result.cuts.push(x);
    wasOut = false;
    result.x0.push(x); result.x1.push(x);
    result.mean.push(mean); result.min.push(mean - spread); result.max.push(mean + spread);
    result.least.push(Math.min(...values)); result.most.push(Math.max(...values)); result.counts.push(values.length);
  }
  return result;
}
