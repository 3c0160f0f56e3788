// A chart as a picture, and its numbers as CSV.

import {el} from "./dom.js";

const quoted = (text) => /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;

// `parts`: {run, x0, x1, min, max, mean, bad: [x], size}. A row for each record; where records are put together because there
// are too many, for each bucket, with its end, its least and its greatest value.
export function csvOf(name, axis, parts) {
  const hasBuckets = parts.some((part) => part.size > 1);
  const head = hasBuckets ? ["run", axis, `${axis} to`, `${name} mean`, `${name} min`, `${name} max`] : ["run", axis, name];
  const lines = [head];
  for (const part of parts) {
    const rows = part.x0.map((x, i) => hasBuckets ? [x, part.x1[i], part.mean[i], part.min[i], part.max[i]] : [x, part.mean[i]]);
    for (const x of part.bad) rows.push(hasBuckets ? [x, x, NaN, NaN, NaN] : [x, NaN]);
    rows.sort((a, b) => a[0] - b[0]);
    for (const row of rows) lines.push([part.run, ...row]);
  }
  return lines.map((line) => line.map((cell) => quoted(String(cell))).join(",") + "\n").join("");
}

const fileName = (name, kind) => `${name.replace(/[^\w.-]+/g, "-").slice(0, 80)}.${kind}`;

export function download(name, kind, blob) {
  const link = el("a", {download: fileName(name, kind), href: URL.createObjectURL(blob)});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

const kMargin = 16, kRow = 20, kMostNames = 24;

// A canvas with the drawing of a chart, its name over it and the names of its lines below. `colors`: {card, ink, faint}.
export function pictureOf(chart, name, axis, colors) {
  const {canvas, width, height, ratio} = chart.render(900, 420, 2);
  const pen = document.createElement("canvas").getContext("2d"), font = "13px " + getComputedStyle(chart.host).fontFamily;
  pen.font = font;
  // Names in rows as wide as the chart.
  const rows = [[]];
  let x = 0;
  for (const line of chart.lines.slice(0, kMostNames)) {
    const wide = pen.measureText(line.label).width + 34;
    if (x + wide > width && rows.at(-1).length) { rows.push([]); x = 0; }
    rows.at(-1).push({x, line});
    x += wide;
  }
  const more = chart.lines.length - kMostNames;
  const whole = pen.canvas;
  whole.width = (width + 2 * kMargin) * ratio;
  whole.height = (height + kMargin * 2 + kRow * (2 + rows.length)) * ratio;
  pen.scale(ratio, ratio);
  pen.fillStyle = colors.card;
  pen.fillRect(0, 0, width + 2 * kMargin, height + kMargin * 2 + kRow * (2 + rows.length));
  pen.textBaseline = "middle";
  pen.font = "600 " + font;
  pen.fillStyle = colors.ink;
  pen.fillText(name, kMargin, kMargin + 4);
  pen.drawImage(canvas, kMargin, kMargin + kRow, width, height);
  pen.font = font;
  pen.fillStyle = colors.faint;
  pen.textAlign = "center";
  pen.fillText(axis, kMargin + width / 2, kMargin + kRow * 1.5 + height);
  pen.textAlign = "left";
  rows.forEach((row, i) => {
    const y = kMargin + kRow * (2.5 + i) + height;
    for (const {x, line} of row) {
      pen.fillStyle = line.color;
      pen.fillRect(kMargin + x, y - 2, 18, 4);
      pen.fillStyle = colors.ink;
      pen.fillText(line.label, kMargin + x + 24, y);
    }
  });
  if (more > 0) pen.fillText(`and ${more} more`, width - 60, kMargin + 4);
  return whole;
}
