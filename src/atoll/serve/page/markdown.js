// Markdown, as far as models write it, as a tree of blocks. Nothing here touches the document, and nothing loads anything.
//   {kind: "paragraph" | "heading", level, children: [inline]}    {kind: "code", language, text}    {kind: "rule"}
//   {kind: "quote", children: [block]}    {kind: "list", start: number or null, items: [[block]], isTight}
//   {kind: "table", aligns, head: [[inline]], rows: [[[inline]]]}
// A block of the outermost level has its source, so that a view knows which blocks have changed. HTML is text.
// A line end within a paragraph is kept, as models mean it; four spaces make no code.

import {parseInline} from "./inline.js";

const kFence = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const kHeading = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const kRule = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const kQuote = /^ {0,3}> ?/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])(?:\s+|$)/;
const kTableLine = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const kMaxDepth = 20;  // of quotes and lists in each other; what is deeper is a paragraph

export function parseMarkdown(text) {
  const lines = text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n");
  return parseBlocks(lines, 0);
}

function parseBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) { ++at; continue; }
    const [block, end] = blockAt(lines, at, depth);
    if (depth === 0) block.source = lines.slice(at, end).join("\n");
    blocks.push(block);
    at = end;
  }
  return blocks;
}

// The block that begins at a line, and the line behind it.
function blockAt(lines, at, depth) {
  const line = lines[at];
  let found = null;
  if ((found = kFence.exec(line))) return fence(lines, at, found);
  if ((found = kHeading.exec(line))) return [{kind: "heading", level: found[1].length, children: parseInline(found[2] ?? "")}, at + 1];
  if (kRule.test(line)) return [{kind: "rule"}, at + 1];
  if (depth < kMaxDepth && kQuote.test(line)) return quote(lines, at, depth);
  if (depth < kMaxDepth && kItem.test(line)) return list(lines, at, depth);
  if (isTable(lines, at)) return table(lines, at);
  return paragraph(lines, at, depth);
}

// A block of code without its end goes to the end of the text: the answer is still being written.
function fence(lines, at, [, indent, mark, info]) {
  const isEnd = (line) => { const t = line.trim(); return t.length >= mark.length && t[0] === mark[0] && t === mark[0].repeat(t.length); };
  let end = at + 1;
  while (end < lines.length && !isEnd(lines[end])) ++end;
  const strip = new RegExp(`^ {0,${indent.length}}`);
  const text = lines.slice(at + 1, end).map((line) => line.replace(strip, "")).join("\n");
  return [{kind: "code", language: info.trim().split(/\s+/)[0] ?? "", text}, Math.min(end + 1, lines.length)];
}

function quote(lines, at, depth) {
  let end = at;
  // A line without its mark goes on with a paragraph.
  while (end < lines.length && lines[end].trim() && (kQuote.test(lines[end]) || !beginsBlock(lines, end, depth))) ++end;
  return [{kind: "quote", children: parseBlocks(lines.slice(at, end).map((line) => line.replace(kQuote, "")), depth + 1)}, end];
}

const beginsBlock = (lines, at, depth) => {
  const line = lines[at];
  const nests = depth < kMaxDepth && (kQuote.test(line) || beginsItem(line));
  return nests || kFence.test(line) || kHeading.test(line) || kRule.test(line) || isTable(lines, at);
};

// Within a paragraph "1986. A good year" is text: a list there begins at one.
function beginsItem(line) {
  const found = kItem.exec(line);
  return !!found && found[0].length < line.length && (/[-*+]/.test(found[2]) || Number.parseInt(found[2]) === 1);
}

const indentOf = (line) => line.length - line.trimStart().length;

function list(lines, at, depth) {
  const first = kItem.exec(lines[at]), kind = first[2].at(-1), base = first[1].length;
  const items = [];
  let isTight = true, end = at;
  while (end < lines.length) {
    const found = kItem.exec(lines[end]);
    if (!found || found[2].at(-1) !== kind || found[1].length > base + 1 || found[1].length < base || kRule.test(lines[end])) break;
    const [blocks, next, hasGap] = item(lines, end, found, depth);
    items.push(blocks);
    let after = next;
    while (after < lines.length && !lines[after].trim()) ++after;
    const goesOn = after < lines.length && kItem.exec(lines[after])?.[2].at(-1) === kind;
    if (hasGap || (after > next && goesOn)) isTight = false;
    end = after > next && !goesOn ? next : after;
  }
  return [{kind: "list", start: /\d/.test(first[2]) ? Number.parseInt(first[2]) : null, items, isTight}, end];
}

// What belongs to an item is indented; models indent by two, three or four whatever the mark is, so more than the mark's
// own indentation is enough for what is nested.
function item(lines, at, [whole, indent, mark], depth) {
  const own = [lines[at].slice(whole.length)], least = indent.length + Math.min(2, mark.length + 1);
  let end = at + 1, hasGap = false;
  while (end < lines.length) {
    if (!lines[end].trim()) {
      let next = end;
      while (next < lines.length && !lines[next].trim()) ++next;
      if (next === lines.length || indentOf(lines[next]) < least) break;
      if (!kItem.test(lines[next])) hasGap = true;
      while (end < next) { own.push(""); ++end; }
      continue;
    }
    if (indentOf(lines[end]) < least && (kItem.test(lines[end]) || beginsBlock(lines, end, depth))) break;
    own.push(lines[end++]);
  }
  const inside = Math.min(...own.slice(1).filter((line) => line.trim() && indentOf(line) >= least).map(indentOf), whole.length);
  const strip = new RegExp(`^ {0,${inside}}`);
  return [parseBlocks(own.map((line, i) => i ? line.replace(strip, "") : line), depth + 1), end, hasGap];
}

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
  kTableLine.test(lines[at + 1]) && cells(lines[at]).length === cells(lines[at + 1]).length;

function table(lines, at) {
  const head = cells(lines[at]), marks = cells(lines[at + 1]);
  const aligns = marks.map((mark) => mark.endsWith(":") ? mark.startsWith(":") ? "center" : "right" : "");
  let end = at + 2;
  const rows = [];
  for (; end < lines.length && lines[end].includes("|"); ++end) {
    const row = cells(lines[end]);
    rows.push(head.map((_, i) => parseInline(row[i] ?? "")));
  }
  return [{kind: "table", aligns, head: head.map(parseInline), rows}, end];
}

// A bar in code or behind a backslash divides nothing.
function cells(line) {
  const out = [];
  let cell = "", isCode = false;
  const text = line.trim().replace(/^\|/, "").replace(/(^|[^\\])\|$/, "$1");
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") { cell += "|"; ++i; continue; }
    if (text[i] === "`") isCode = !isCode;
    if (text[i] === "|" && !isCode) { out.push(cell.trim()); cell = ""; } else cell += text[i];
  }
  return [...out, cell.trim()];
}

function paragraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !beginsBlock(lines, end, depth)) ++end;
  const text = lines.slice(at, end).map((line) => line.trimStart()).join("\n").trimEnd();
  return [{kind: "paragraph", children: parseInline(text)}, end];
}
