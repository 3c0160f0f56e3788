// A chart on a canvas: lines with bands from the least to the greatest value, marks, and a part that
// can be chosen with the pointer. Knows nothing of runs.

const kLeft = 54, kBottom = 20, kTop = 6, kRight = 8;
let dateFormat = null;  // making one takes long

export function formatNumber(v) {
  if (v === null || v === undefined || !isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a >= 1e15 || (a > 0 && a < 1e-4)) return v.toExponential(2);
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e4]]) {
    if (a >= size) return trim((v / (unit === "k" ? 1e3 : size)).toPrecision(4)) + unit;
  }
  return trim(v.toPrecision(5));
}
const trim = (text) => text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;

export function formatX(v, axis) {
  if (axis === "clock") return (dateFormat ??= new Intl.DateTimeFormat(undefined, {hour: "2-digit", minute: "2-digit", second: "2-digit"})).format(new Date(v * 1000));
  if (axis !== "wall" && axis !== "active") return formatNumber(v);
  if (Math.abs(v) < 120) return trim(v.toFixed(1)) + " s";
  const h = Math.floor(v / 3600), m = Math.floor(v / 60) % 60, s = Math.round(v % 60);
  return h ? `${h}:${String(m).padStart(2, "0")} h` : `${m}:${String(s).padStart(2, "0")} min`;
}

// Round numbers between two ends.
export function ticks(low, high, count, isLog) {
  if (!(high > low)) return [low];
  const list = [];
  if (isLog) {
    const from = Math.floor(low), to = Math.ceil(high);
    const stride = Math.max(1, Math.ceil((to - from) / count));
    for (let e = from; e <= to; e += stride) if (e >= low - 1e-9 && e <= high + 1e-9) list.push(e);
    if (list.length >= 2) return list;
  }
  const raw = (high - low) / Math.max(count, 1), power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw) ?? raw;
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9; v += step) list.push(Math.abs(v) < step * 1e-9 ? 0 : v);
  return list;
}

// Exponential mean that begins anew behind each gap: nothing is carried over what is not there.
export function smooth(values, breaks, weight) {
  if (!weight) return values;
  const result = new Array(values.length);
  let mean = 0, share = 0;
  for (let i = 0; i < values.length; ++i) {
    if (breaks.has(i)) mean = share = 0;
    mean = weight * mean + (1 - weight) * values[i];
    share = weight * share + (1 - weight);
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

export class Chart {
  // `host`: an element with a size. `on`: functions zoom(from, to), reset(), cursor(x or null).
  constructor(host, on) {
    this.host = host;
    this.on = on;
    this.canvas = host.appendChild(document.createElement("canvas"));
    this.overlay = host.appendChild(document.createElement("canvas"));
    this.lines = [];
    this.marks = [];
    this.options = {axis: "step", logX: false, logY: false, weight: 0};
    this.range = null;  // of x, as it is asked for
    this.drag = null;
    this.overlay.tabIndex = 0;
    this.overlay.setAttribute("role", "img");
    const at = (event) => this.toX(event.clientX - this.overlay.getBoundingClientRect().left);
    this.overlay.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch" && !event.isPrimary) return;
      this.drag = {from: at(event), to: at(event)};
      this.overlay.setPointerCapture(event.pointerId);
    });
    this.overlay.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag.to = at(event);
      on.cursor(at(event));
    });
    this.overlay.addEventListener("pointerup", () => {
      const drag = this.drag;
      this.drag = null;
      if (!drag || !this.scale) return;
      const [from, to] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
      if (Math.abs(this.px(to) - this.px(from)) > 5) on.zoom(from, to);
      this.drawOverlay();
    });
    this.overlay.addEventListener("pointercancel", () => { this.drag = null; this.drawOverlay(); });
    this.overlay.addEventListener("pointerleave", () => on.cursor(null));
    this.overlay.addEventListener("dblclick", () => on.reset());
    this.overlay.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (!this.scale) return;
    const {x0, x1} = this.scale, width = x1 - x0;
    const go = (from, to) => { this.on.zoom(this.fromAxis(from), this.fromAxis(to)); event.preventDefault(); };
    if (event.key === "+" || event.key === "=") go(x0 + width / 4, x1 - width / 4);
    if (event.key === "-") go(x0 - width / 2, x1 + width / 2);
    if (event.key === "ArrowLeft") go(x0 - width / 4, x1 - width / 4);
    if (event.key === "ArrowRight") go(x0 + width / 4, x1 + width / 4);
    if (event.key === "0" || event.key === "Escape") this.on.reset();
  }

  // lines: {label, color, size, x0, x1, min, max, mean, bad: [x], cuts: [x]}; marks: {x, kind, color}.
  set(lines, marks, range, options) {
    this.lines = lines;
    this.marks = marks;
    this.range = range;
    this.options = options;
    for (const line of lines) {
      line.breaks = breaksOf(line);
      line.shown = smooth(line.mean, line.breaks, options.weight);
    }
    this.draw();
  }

  toAxis(x) { return this.options.logX ? Math.log10(Math.max(x, 1e-9)) : x; }
  fromAxis(x) { return this.options.logX ? 10 ** x : x; }
  px(x) { const s = this.scale; return kLeft + (this.toAxis(x) - s.x0) / (s.x1 - s.x0) * s.width; }
  toX(px) {
    const s = this.scale;
    return s ? this.fromAxis(s.x0 + (px - kLeft) / s.width * (s.x1 - s.x0)) : 0;
  }
  py(y) {
    const s = this.scale, v = this.options.logY ? Math.log10(y) : y;
    return kTop + (s.y1 - v) / (s.y1 - s.y0) * s.height;
  }

  fit(canvas) {
    const ratio = window.devicePixelRatio || 1, box = this.host.getBoundingClientRect();
    const w = Math.round(box.width * ratio), h = Math.round(box.height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, box.width, box.height);
    return {pen, width: box.width, height: box.height};
  }

  // What of the data is seen: the ends of both axes.
  measure(width, height) {
    const {logX, logY} = this.options;
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    if (this.range) [x0, x1] = this.range;
    for (const line of this.lines) {
      for (let i = 0; i < line.x0.length; ++i) {
        if (!this.range) {
          if (!logX || line.x0[i] > 0) x0 = Math.min(x0, line.x0[i]);
          x1 = Math.max(x1, line.x1[i]);
        } else if (line.x1[i] < x0 || line.x0[i] > x1) continue;
        if (!logY || line.min[i] > 0) y0 = Math.min(y0, line.min[i]);
        if (!logY || line.max[i] > 0) y1 = Math.max(y1, line.max[i]);
      }
      if (!this.range) for (const x of line.bad) { x0 = Math.min(x0, x); x1 = Math.max(x1, x); }
    }
    if (!(x1 >= x0)) return null;
    if (!(y1 >= y0)) { y0 = logY ? 0.1 : 0; y1 = 1; }
    if (logX) { x0 = Math.log10(Math.max(x0, 1e-9)); x1 = Math.log10(Math.max(x1, 1e-9)); }
    if (logY) { y0 = Math.log10(y0); y1 = Math.log10(y1); }
    if (x1 === x0) { x0 -= .5; x1 += .5; }
    const room = y1 > y0 ? (y1 - y0) * .06 : Math.abs(y0) * .05 || .5;
    return {x0, x1, y0: y0 - room, y1: y1 + room, width: width - kLeft - kRight, height: height - kTop - kBottom};
  }

  draw() {
    const {pen, width, height} = this.fit(this.canvas);
    this.scale = this.measure(width, height);
    const style = getComputedStyle(this.host), color = (name) => style.getPropertyValue(name).trim();
    this.colors = {ink: color("--ink"), faint: color("--faint"), line: color("--line"), mark: color("--mark"), bad: color("--bad"), accent: color("--accent")};
    pen.font = "11px " + style.fontFamily;
    if (!this.scale) {
      pen.fillStyle = this.colors.faint;
      pen.fillText("no points here", kLeft, height / 2);
      this.drawOverlay();
      return;
    }
    this.drawGrid(pen);
    pen.save();
    pen.beginPath();
    pen.rect(kLeft, 0, this.scale.width, kTop + this.scale.height);
    pen.clip();
    for (const mark of this.marks) this.drawMark(pen, mark);
    for (const line of this.lines) this.drawLine(pen, line);
    pen.restore();
    this.drawOverlay();
  }

  drawGrid(pen) {
    const s = this.scale, {logX, logY, axis} = this.options;
    pen.strokeStyle = this.colors.line;
    pen.fillStyle = this.colors.faint;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const v of ticks(s.y0, s.y1, Math.max(2, s.height / 40), logY)) {
      const y = Math.round(kTop + (s.y1 - v) / (s.y1 - s.y0) * s.height) + .5;
      pen.beginPath(); pen.moveTo(kLeft, y); pen.lineTo(kLeft + s.width, y); pen.stroke();
      pen.fillText(formatNumber(logY ? 10 ** v : v), kLeft - 5, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    for (const v of ticks(s.x0, s.x1, Math.max(2, s.width / 90), logX)) {
      const x = kLeft + (v - s.x0) / (s.x1 - s.x0) * s.width;
      const text = formatX(logX ? 10 ** v : v, axis), half = pen.measureText(text).width / 2;
      pen.fillText(text, Math.min(Math.max(x, kLeft + half - 8), kLeft + s.width - half + 6), kTop + s.height + 5);
    }
  }

  drawMark(pen, mark) {
    const x = Math.round(this.px(mark.x)) + .5;
    if (x < kLeft || x > kLeft + this.scale.width) return;
    pen.strokeStyle = mark.color ?? this.colors.mark;
    pen.globalAlpha = mark.kind === "commit" || mark.kind === "checkpoint" ? .35 : .8;
    pen.setLineDash(mark.kind === "checkpoint" ? [2, 3] : mark.kind === "commit" ? [1, 4] : [5, 3]);
    pen.beginPath(); pen.moveTo(x, kTop); pen.lineTo(x, kTop + this.scale.height); pen.stroke();
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  drawLine(pen, line) {
    const n = line.x0.length, mid = (i) => (this.px(line.x0[i]) + this.px(line.x1[i])) / 2;
    pen.lineJoin = "round";
    const isBand = line.size > 1;
    const trace = (values, width, alpha) => {
      pen.globalAlpha = alpha;
      pen.strokeStyle = line.color;
      pen.lineWidth = width;
      pen.beginPath();
      for (let i = 0, has = false; i < n; ++i) {
        if (line.breaks.has(i)) has = false;
        const y = this.py(values[i]);
        if (!isFinite(y)) { has = false; continue; }
        has ? pen.lineTo(mid(i), y) : pen.moveTo(mid(i), y);
        has = true;
      }
      pen.stroke();
      pen.globalAlpha = 1;
    };
    if (isBand) {
      // A column for each bucket, at least a pixel wide: no spike falls between two. Whole pixels, one by one: a path of
      // all columns takes a browser without a GPU a hundred times as long to fill.
      pen.globalAlpha = this.lines.length > 8 ? .12 : .25;
      pen.fillStyle = line.color;
      const bottom = kTop + this.scale.height;
      for (let i = 0; i < n; ++i) {
        const end = this.px(i + 1 < n && !line.breaks.has(i + 1) ? line.x0[i + 1] : line.x1[i]);
        const a = Math.round(this.px(line.x0[i])), b = Math.max(Math.round(end), a + 1);
        const top = this.py(line.max[i]), low = this.py(line.min[i]);
        if (!isFinite(top)) continue;
        const y = Math.floor(top);
        pen.fillRect(a, y, b - a, Math.max(Math.ceil(isFinite(low) ? low : bottom) - y, 1));
      }
      pen.globalAlpha = 1;
    } else if (this.options.weight) {
      trace(line.mean, 1, .25);
    }
    trace(line.shown, this.lines.length > 8 ? 1 : 1.6, 1);  // thin ones cost a fraction
    if (n < this.scale.width / 12 && this.lines.length < 8) {
      pen.fillStyle = line.color;
      for (let i = 0; i < n; ++i) {
        const y = this.py(line.shown[i]);
        if (isFinite(y)) { pen.beginPath(); pen.arc(mid(i), y, 2.2, 0, 7); pen.fill(); }
      }
    }
    // Where a value is no number: a cross at the top.
    pen.strokeStyle = this.colors.bad;
    pen.lineWidth = 1.5;
    pen.beginPath();
    for (const bad of line.bad) {
      const x = this.px(bad), y = kTop + 6;
      pen.moveTo(x - 4, y - 4); pen.lineTo(x + 4, y + 4); pen.moveTo(x - 4, y + 4); pen.lineTo(x + 4, y - 4);
    }
    pen.stroke();
  }

  // The value of each line at x: of the nearest point.
  at(x) {
    return this.lines.map((line) => {
      let low = 0, high = line.x0.length - 1;
      while (low < high) { const m = (low + high + 1) >> 1; line.x0[m] <= x ? low = m : high = m - 1; }
      if (low + 1 < line.x0.length && x > line.x1[low] && line.x0[low + 1] - x < x - line.x1[low]) ++low;
      return line.x0.length ? {line, i: low, x: line.x0[low], y: line.shown[low], min: line.min[low], max: line.max[low]} : null;
    });
  }

  setCursor(x) { this.cursor = x; this.drawOverlay(); }

  drawOverlay() {
    const {pen} = this.fit(this.overlay);
    if (!this.scale) return;
    const s = this.scale;
    if (this.drag) {
      pen.fillStyle = this.colors.accent;
      pen.globalAlpha = .2;
      const a = this.px(this.drag.from), b = this.px(this.drag.to);
      pen.fillRect(Math.min(a, b), kTop, Math.abs(b - a), s.height);
      pen.globalAlpha = 1;
    }
    if (this.cursor === null || this.cursor === undefined) return;
    const x = this.px(this.cursor);
    if (x < kLeft || x > kLeft + s.width) return;
    pen.strokeStyle = this.colors.mark;
    pen.beginPath(); pen.moveTo(x, kTop); pen.lineTo(x, kTop + s.height); pen.stroke();
    if (this.lines.length > 20) return;
    for (const hit of this.at(this.cursor)) {
      if (!hit) continue;
      const y = this.py(hit.y);
      if (!isFinite(y)) continue;
      pen.fillStyle = hit.line.color;
      pen.beginPath(); pen.arc((this.px(hit.line.x0[hit.i]) + this.px(hit.line.x1[hit.i])) / 2, y, 3, 0, 7); pen.fill();
    }
  }
}
