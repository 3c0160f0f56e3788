// Numbers of charts as people read them, and the places of ticks. Nothing here touches the document.

const kUnits = [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]];
const trim = (text) => text.replace(/(\.\d*?)0+(?=e|$)/, "$1").replace(/\.(?=e|$)/, "");

// With so many significant digits; from 10,000 on in thousands, and so on.
export function formatNumber(v, digits = 5) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a >= 1e15 || (a > 0 && a < 1e-4)) return trim(v.toExponential(Math.min(digits, 3) - 1));
  if (a >= 1e4) {
    const shown = Math.min(digits, 4), rounded = Number(a.toPrecision(shown));
    const [unit, size] = kUnits.find(([, size]) => rounded >= size);
    return plain(v / size, shown) + unit;
  }
  return plain(v, digits);
}

const plain = (v, digits) => String(Number(v.toPrecision(digits)));

let dateFormat = null, dayFormat = null;  // making one takes long
function formatClock(v) {
  dateFormat ??= new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"});
  return dateFormat.format(new Date(v * 1000));
}

function formatSeconds(v) {
  if (Math.abs(v) < 120) return trim(v.toFixed(1)) + " s";
  const all = Math.round(v), h = Math.floor(all / 3600), m = Math.floor(all / 60) % 60, s = all % 60;
  return h ? `${h}:${String(m).padStart(2, "0")} h` : `${m}:${String(s).padStart(2, "0")} min`;
}

const isTime = (axis) => axis === "wall" || axis === "active";

// A place on the x axis, shortly.
export function formatX(v, axis) {
  if (axis === "clock") return formatClock(v);
  return isTime(axis) ? formatSeconds(v) : formatNumber(v);
}

// The same as it is: a step is a whole number, and no digit of it is left out.
export function formatExactX(v, axis) {
  if (axis === "clock") {
    dayFormat ??= new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});
    return dayFormat.format(new Date(v * 1000));
  }
  return isTime(axis) ? formatSeconds(v) : v.toLocaleString("en", {maximumFractionDigits: 3});
}

const kSeconds = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400];

function niceStep(raw, axis) {
  if (axis === "step" || axis === "tokens") raw = Math.max(raw, 1);  // there is nothing between two steps
  if ((isTime(axis) || axis === "clock") && raw > .5 && raw <= kSeconds.at(-1)) return kSeconds.find((s) => s >= raw);
  const power = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * (1 - 1e-9)) ?? raw;
}

function linearTicks(low, high, count, axis) {
  const step = niceStep((high - low) / Math.max(count, 1), axis), list = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; ++k) list.push(k * step);
  return list;
}

// 1, 2 and 5 of each decade, or 1 alone; of less than that, round numbers.
function logTicks(low, high, count, axis) {
  const within = (mantissas) => {
    const list = [];
    for (let e = Math.floor(low); e <= Math.ceil(high); ++e) {
      for (const m of mantissas) {
        const v = e + Math.log10(m);
        if (v >= low - 1e-9 && v <= high + 1e-9) list.push(Number(`${m}e${e}`));
      }
    }
    return list;
  };
  const fine = within([1, 2, 5]), coarse = within([1]);
  if (fine.length >= 3 && fine.length <= Math.max(count + 1, 3)) return fine;
  if (coarse.length >= 2) {
    const stride = Math.ceil(coarse.length / Math.max(count, 2));
    return coarse.filter((_, i) => i % stride === 0);
  }
  if (fine.length >= 3) return fine.filter((_, i) => i % Math.ceil(fine.length / Math.max(count, 2)) === 0);
  for (const more of [1, 2, 4]) {
    const round = linearTicks(10 ** low, 10 ** high, more * count, axis).filter((v) => v > 0);
    if (round.length >= 2) return round;
  }
  return fine.length ? fine : [10 ** low];
}

// Round numbers between two ends, about `count`, as {v: value, text}. Where `isLog`, the ends are powers of ten.
export function ticks(low, high, count, isLog, axis = "") {
  const list = !(high > low) ? [isLog ? 10 ** low : low] : isLog ? logTicks(low, high, count, axis) : linearTicks(low, high, count, axis);
  if (axis === "clock" || isTime(axis)) return list.map((v) => ({v, text: formatX(v, axis)}));
  // As many digits as tell them from each other, and no more.
  let gap = Infinity;
  for (let i = 1; i < list.length; ++i) gap = Math.min(gap, list[i] - list[i - 1]);
  const error = gap < Infinity ? gap * 1e-3 : Math.abs(list[0]) * 1e-3;
  let digits = 1;
  while (digits < 12 && list.some((v) => Math.abs(Number(v.toPrecision(digits)) - v) > error)) ++digits;
  // Beyond what formatNumber() shows in thousands, the digits as they are.
  const text = (v) => Math.abs(v) >= 1e4 && digits > 4 ? v.toLocaleString("en", {maximumSignificantDigits: digits}) : v !== 0 && Math.abs(v) < 1e-4 ? trim(v.toExponential(digits - 1)) : formatNumber(v, digits);
  return list.map((v) => ({v, text: text(v)}));
}

// A curve is as smooth with any number of points: `weight` is what the last point counts for beside a new one in a
// curve of this many. One of twenty points, of which a mean over a hundred would be a straight line, keeps its form.
export const kSmoothedPoints = 200;

// Exponential mean with the bias of its beginning taken out, as TensorBoard has it; it begins anew behind each gap, so
// that nothing is carried over what is not there.
export function smooth(values, breaks, weight) {
  if (!weight || !values.length) return values;
  const kept = weight ** (kSmoothedPoints / values.length);
  const result = new Array(values.length);
  let mean = 0, share = 0;
  for (let i = 0; i < values.length; ++i) {
    if (breaks.has(i)) mean = share = 0;
    mean = kept * mean + (1 - kept) * values[i];
    share = kept * share + (1 - kept);
    result[i] = mean / share;
  }
  return result;
}

// The indices of points before which the line is broken: by a value that is no number, or a restart.
export function breaksOf(line) {
  const breaks = new Set(), cuts = line.cuts;
  for (let i = 1, k = 0; i < line.x0.length; ++i) {
    while (k < cuts.length && cuts[k] <= line.x1[i - 1]) ++k;
    if (k < cuts.length && cuts[k] <= line.x0[i]) breaks.add(i);
  }
  return breaks;
}

// The point of a line at x, {i} or {bad: x}, or null: where the line has none, before its first, behind its last and in a gap.
// A point reaches half the way to the next one, and where there is no next one, as far as on its other side.
export function pointAt(line, x) {
  const {x0, x1, breaks} = line, n = x0.length;
  let low = 0, high = n - 1;
  while (low < high) { const m = (low + high + 1) >> 1; x0[m] <= x ? low = m : high = m - 1; }
  const joined = (i) => i > 0 && i < n && !breaks.has(i);  // point i with the one before it
  const distance = (i) => x < x0[i] ? x0[i] - x : x > x1[i] ? x - x1[i] : 0;
  const reach = (i) => {
    const before = joined(i) ? (x0[i] - x1[i - 1]) / 2 : null, behind = joined(i + 1) ? (x0[i + 1] - x1[i]) / 2 : null;
    return (x < x0[i] ? before ?? behind : behind ?? before) ?? 0;
  };
  let best = null, least = Infinity;
  for (const i of [low, low + 1]) {
    if (i < n && distance(i) < least && distance(i) <= reach(i) * (1 + 1e-9)) { best = {i}; least = distance(i); }
  }
  const width = n > 1 ? (x1[n - 1] - x0[0]) / (n - 1) / 2 : 0;  // half of what is between two points
  for (const bad of line.bad) if (Math.abs(bad - x) < least && Math.abs(bad - x) <= width) { best = {bad}; least = Math.abs(bad - x); }
  return best;
}
