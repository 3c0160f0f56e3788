// A chart on a canvas: lines with bands from the least to the greatest value, marks, and a part that
// can be chosen with the pointer. Knows nothing of runs.

import {breaksOf, pointAt, smooth, ticks} from "./numbers.js";

const kLeft = 54, kBottom = 20, kTop = 6, kRight = 14;

export class Chart {
  // `host`: an element with a size. `on`: functions zoom(from, to), reset(), cursor({x, y} in pixels, or null).
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
    const box = () => this.overlay.getBoundingClientRect();
    const at = (event) => this.toX(event.clientX - box().left);
    const point = (event) => { const {left, top} = box(); on.cursor({x: event.clientX - left, y: event.clientY - top}); };
    this.overlay.addEventListener("pointerdown", (event) => {
      if (event.button !== 0 || event.pointerType === "touch" && !event.isPrimary) return;
      this.drag = {from: at(event), to: at(event)};
      this.overlay.setPointerCapture(event.pointerId);
      point(event);
    });
    this.overlay.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag.to = at(event);
      point(event);
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

  // lines: {label, color, size, x0, x1, min, max, mean, bad: [x], cuts: [x]}, and `hasSpread` where min and max are a band around
  // points; marks: {x, kind, color}.
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
  px(x) { const s = this.scale; return s.left + (this.toAxis(x) - s.x0) / (s.x1 - s.x0) * s.width; }
  toX(px) {
    const s = this.scale;
    return s ? this.fromAxis(s.x0 + (px - s.left) / s.width * (s.x1 - s.x0)) : 0;
  }
  py(y) {
    const s = this.scale, v = this.options.logY ? Math.log10(y) : y;
    return kTop + (s.y1 - v) / (s.y1 - s.y0) * s.height;
  }

  fit(canvas) {
    const ratio = window.devicePixelRatio || 1, {width, height} = this.host.getBoundingClientRect();
    return {pen: this.prepare(canvas, width, height, ratio), width, height};
  }

  prepare(canvas, width, height, ratio) {
    const w = Math.round(width * ratio), h = Math.round(height * ratio);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    return pen;
  }

  // The same drawing of another size, on a canvas of its own.
  render(width, height, ratio) {
    const canvas = document.createElement("canvas");
    this.paint(this.prepare(canvas, width, height, ratio), width, height);
    this.draw();  // as it was, for those who look
    return {canvas, width, height, ratio};
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
    return {x0, x1, y0: y0 - room, y1: y1 + room, left: kLeft, width: width - kLeft - kRight, height: height - kTop - kBottom};
  }

  // The numbers beside the y axis have the room that they take.
  makeRoom(pen, width) {
    const s = this.scale;
    this.ticksY = ticks(s.y0, s.y1, Math.max(2, s.height / 40), this.options.logY);
    const widest = Math.max(0, ...this.ticksY.map(({text}) => pen.measureText(text).width));
    s.left = Math.max(kLeft, Math.ceil(widest) + 10);
    s.width = width - s.left - kRight;
  }

  draw() {
    const {pen, width, height} = this.fit(this.canvas);
    this.paint(pen, width, height);
    this.drawOverlay();
  }

  paint(pen, width, height) {
    this.scale = this.measure(width, height);
    const style = getComputedStyle(this.host), color = (name) => style.getPropertyValue(name).trim();
    this.colors = {ink: color("--ink"), faint: color("--faint"), line: color("--line"), mark: color("--mark"), bad: color("--bad"), accent: color("--accent")};
    pen.font = "11px " + style.fontFamily;
    if (!this.scale) {
      pen.fillStyle = this.colors.faint;
      pen.textAlign = "left";
      pen.fillText("no points here", kLeft, height / 2);
      return;
    }
    this.makeRoom(pen, width);
    this.drawGrid(pen, width);
    pen.save();
    pen.beginPath();
    pen.rect(this.scale.left, 0, this.scale.width, kTop + this.scale.height);
    pen.clip();
    for (const mark of this.marks) this.drawMark(pen, mark);
    for (const line of this.lines) this.drawLine(pen, line);
    pen.restore();
  }

  drawGrid(pen, width) {
    const s = this.scale, {logX, axis} = this.options;
    pen.strokeStyle = this.colors.line;
    pen.fillStyle = this.colors.faint;
    pen.lineWidth = 1;
    pen.textBaseline = "middle";
    pen.textAlign = "right";
    for (const {v, text} of this.ticksY) {
      const y = Math.round(this.py(v)) + .5;
      pen.beginPath(); pen.moveTo(s.left, y); pen.lineTo(s.left + s.width, y); pen.stroke();
      pen.fillText(text, s.left - 6, y);
    }
    pen.textAlign = "center";
    pen.textBaseline = "top";
    let end = -Infinity;
    for (const {v, text} of ticks(s.x0, s.x1, Math.max(2, s.width / 75), logX, axis)) {
      const half = pen.measureText(text).width / 2, at = this.px(v), x = Math.min(at, width - half);
      if (x - half < end + 8) continue;  // no number over another
      end = x + half;
      pen.beginPath(); pen.moveTo(Math.round(at) + .5, kTop + s.height); pen.lineTo(Math.round(at) + .5, kTop + s.height + 3); pen.stroke();
      pen.fillText(text, x, kTop + s.height + 6);
    }
  }

  drawMark(pen, mark) {
    const x = Math.round(this.px(mark.x)) + .5;
    if (x < this.scale.left || x > this.scale.left + this.scale.width) return;
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
    if (line.hasSpread) {
      this.drawSpread(pen, line, mid);
    } else if (isBand) {
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

  // From the least to the greatest value of each point, as one shape from gap to gap.
  drawSpread(pen, line, mid) {
    const n = line.x0.length, bottom = kTop + this.scale.height, y = (v) => { const y = this.py(v); return isFinite(y) ? y : bottom; };
    pen.globalAlpha = .22;
    pen.fillStyle = line.color;
    for (let from = 0; from < n;) {
      let to = from + 1;
      while (to < n && !line.breaks.has(to)) ++to;
      pen.beginPath();
      for (let i = from; i < to; ++i) pen.lineTo(mid(i), y(line.max[i]));
      for (let i = to - 1; i >= from; --i) pen.lineTo(mid(i), y(line.min[i]));
      pen.fill();
      from = to;
    }
    pen.globalAlpha = 1;
  }

  // What each line has at x, {line, x0, x1, x, y, i} or {line, x, isBad}; a line that has nothing there is left out.
  at(x) {
    const hits = [];
    for (const line of this.lines) {
      const point = pointAt(line, x);
      if (!point) continue;
      if (point.i === undefined) { hits.push({line, x: point.bad, x0: point.bad, x1: point.bad, isBad: true}); continue; }
      const {i} = point, x0 = line.x0[i], x1 = line.x1[i];
      hits.push({line, i, x0, x1, x: (x0 + x1) / 2, y: line.shown[i], min: line.min[i], max: line.max[i]});
    }
    return hits;
  }

  // The place of the point that is nearest to a pointer, {x0, x1, x}; null where no line has one.
  nearest(px) {
    if (!this.scale || px < this.scale.left - 8 || px > this.scale.left + this.scale.width + 8) return null;
    const x = this.toX(px), far = (hit) => Math.abs(this.px(hit.x) - px);
    return this.at(x).reduce((best, hit) => !best || far(hit) < far(best) ? hit : best, null);
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
    if (x < s.left || x > s.left + s.width) return;
    pen.strokeStyle = this.colors.mark;
    pen.beginPath(); pen.moveTo(x, kTop); pen.lineTo(x, kTop + s.height); pen.stroke();
    if (this.lines.length > 20) return;
    for (const hit of this.at(this.cursor)) {
      const y = hit.isBad ? NaN : this.py(hit.y);
      if (!isFinite(y)) continue;
      pen.fillStyle = hit.line.color;
      pen.beginPath(); pen.arc(this.px(hit.x), y, 3, 0, 7); pen.fill();
    }
  }
}
