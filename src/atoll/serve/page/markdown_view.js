// Markdown as elements. Blocks that have not changed keep theirs while an answer grows, so what is selected stays selected.

import {copyButton, el} from "./dom.js";
import {parseMarkdown} from "./markdown.js";

export class MarkdownView {
  #sources = [];

  constructor(kind = "div.markdown") { this.root = el(kind); }

  update(text) {
    const blocks = parseMarkdown(text);
    let same = 0;
    while (same < blocks.length && blocks[same].source === this.#sources[same]) ++same;
    while (this.root.childElementCount > same) this.root.lastElementChild.remove();
    this.root.append(...blocks.slice(same).map(blockNode));
    this.#sources = blocks.map((block) => block.source);
  }

  // Blocks that are finished while the answer grows, as a reader hears them, from number `from` on: all but the last.
  finished(from, isWhole) {
    const blocks = [...this.root.children];
    return blocks.slice(from, isWhole ? undefined : -1).map((block) => block.querySelector("pre")?.textContent ?? block.innerText);
  }
}

function blockNode(block) {
  switch (block.kind) {
    // The page has h1 and h2 of its own.
    case "heading": return el(`h${Math.min(block.level + 2, 6)}`, {}, inlineNodes(block.children));
    case "code": return codeNode(block);
    case "rule": return el("hr");
    case "quote": return el("blockquote", {}, block.children.map(blockNode));
    case "list": return listNode(block);
    case "table": return tableNode(block);
    default: return el("p", {}, inlineNodes(block.children));
  }
}

function codeNode({language, text}) {
  return el("div.code", {},
    el("div.head", {}, el("span", {}, language || "text"), copyButton(() => text)),
    el("pre", {tabindex: 0, role: "region", "aria-label": `code${language ? `, ${language}` : ""}`}, el("code", {}, text)));
}

function listNode({start, items, isTight}) {
  const content = (blocks) => blocks.flatMap((block) => isTight && block.kind === "paragraph" ? inlineNodes(block.children) : [blockNode(block)]);
  const list = items.map((blocks) => el("li", {}, content(blocks)));
  return start === null ? el("ul", {}, list) : el("ol", {start: start === 1 ? null : start}, list);
}

function tableNode({aligns, head, rows}) {
  const kind = (tag, i) => aligns[i] ? `${tag}.${aligns[i]}` : tag;
  return el("div.scroll", {tabindex: 0, role: "region", "aria-label": "table"}, el("table", {},
    el("thead", {}, el("tr", {}, head.map((cell, i) => el(kind("th", i), {scope: "col"}, inlineNodes(cell))))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, i) => el(kind("td", i), {}, inlineNodes(cell))))))));
}

const kTags = {strong: "strong", em: "em", strike: "s"};

function inlineNodes(children) {
  return children.map((one) => {
    if (one.kind === "text") return document.createTextNode(one.text);
    if (one.kind === "code") return el("code", {}, one.text);
    if (one.kind === "break") return el("br");
    // parseInline() makes links of safe addresses alone.
    if (one.kind === "link") return el("a", {href: one.href, target: "_blank", rel: "noopener noreferrer nofollow"}, inlineNodes(one.children));
    return el(kTags[one.kind], {}, inlineNodes(one.children));
  });
}
