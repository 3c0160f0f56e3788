// Markdown within a paragraph, as a tree:
//   {kind: "text" | "code", text}, {kind: "strong" | "em" | "strike", children}, {kind: "link", href, children}, {kind: "break"}
// HTML has no meaning: it is text. So is "\(": models write formulas more often than they escape brackets.

const kEscapes = /[!"#$%&'*+,\-./:;<=>?@\\^_`{|}~]/;
const kSchemes = /^(https?|mailto):/i;
const kBareLink = /https?:\/\/[^\s<>"'`]+/y;
const kAutoLink = /<((?:https?:\/\/|mailto:)[^\s<>]+)>/iy;
// ](href "title")
const kTarget = /\]\(\s*(?:<([^<>\n]*)>|((?:[^\s()\\]|\\.|\([^\s()]*\))*))(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/y;

// The address where it may be followed, else null.
export function safeLink(href) {
  const bare = href.replace(/[\u0000-\u0020\u007f]/g, "");
  return bare === href && kSchemes.test(href) ? href : null;
}

export function parseInline(text) {
  return build(tokensOf(text));
}

// What has a meaning, in its order: finished nodes, runs of delimiters, and "[" that may begin a link.
function tokensOf(text) {
  const tokens = [], noCode = new Set();
  let plain = "", at = 0;
  const flush = () => { if (plain) tokens.push({node: {kind: "text", text: plain}}); plain = ""; };
  const add = (token, length) => { flush(); tokens.push(token); at += length; };
  const match = (pattern) => { pattern.lastIndex = at; return pattern.exec(text); };
  while (at < text.length) {
    const c = text[at];
    let found = null;
    if (c === "\\" && text[at + 1] === "\n") add({node: {kind: "break"}}, 2);
    else if (c === "\\" && kEscapes.test(text[at + 1] ?? "")) { plain += text[at + 1]; at += 2; }
    else if (c === "\n") { plain = plain.replace(/ +$/, ""); add({node: {kind: "break"}}, 1); }
    else if (c === "`") {
      const run = runLength(text, at), code = codeAt(text, at, run, noCode);
      if (code) add({node: {kind: "code", text: code.text}}, code.length);
      else { plain += text.slice(at, at + run); at += run; }
    } else if (c === "*" || c === "_" || c === "~") add(delimiter(text, at), runLength(text, at));
    else if (c === "!" && text[at + 1] === "[") add({open: "![", isLive: true}, 2);
    else if (c === "[") add({open: "[", isLive: true}, 1);
    else if (c === "]" && (found = match(kTarget))) add({close: unescape(found[1] ?? found[2]), source: found[0]}, found[0].length);
    else if (c === "]") add({close: null, source: "]"}, 1);
    else if (c === "<" && (found = match(kAutoLink))) add({node: bareLink(found[1])}, found[0].length);
    else if (c === "h" && !/\w/.test(text[at - 1] ?? "") && (found = match(kBareLink))) {
      const href = trimLink(found[0]);
      add({node: bareLink(href)}, href.length);
    } else { plain += c; ++at; }
  }
  flush();
  return tokens;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) ++end;
  return end - at;
}

// Code ends with a run of as many backticks. `none`: lengths of which no further run is there.
function codeAt(text, at, run, none) {
  if (none.has(run)) return null;
  for (let end = text.indexOf("`", at + run); end >= 0; end = text.indexOf("`", end)) {
    const length = runLength(text, end);
    if (length === run) {
      let inner = text.slice(at + run, end).replace(/\n/g, " ");
      if (inner.startsWith(" ") && inner.endsWith(" ") && inner.trim()) inner = inner.slice(1, -1);
      return {text: inner, length: end + run - at};
    }
    end += length;
  }
  none.add(run);
  return null;
}

// Which way a run of * _ or ~ may work, as CommonMark says; "_" does nothing within a word.
function delimiter(text, at) {
  const count = runLength(text, at), char = text[at];
  const before = text[at - 1] ?? " ", after = text[at + count] ?? " ";
  const isSpace = (c) => /\s/.test(c), isMark = (c) => /[\p{P}\p{S}]/u.test(c);
  const left = !isSpace(after) && (!isMark(after) || isSpace(before) || isMark(before));
  const right = !isSpace(before) && (!isMark(before) || isSpace(after) || isMark(after));
  if (char === "_") return {char, count, opens: left && (!right || isMark(before)), closes: right && (!left || isMark(after))};
  return {char, count, opens: left, closes: right};
}

const unescape = (href) => href.replace(/\\([!-/:-@[-`{-~])/g, "$1");

// A full stop, or a bracket that nothing opened, is not of the address.
function trimLink(href) {
  for (;;) {
    const last = href.at(-1);
    const isLoose = /[.,;:!?*_~\]]/.test(last) || (last === ")" && href.split(")").length > href.split("(").length);
    if (!isLoose) return href;
    href = href.slice(0, -1);
  }
}

// A link that may not be followed shows what it is made of.
const link = (href, children) => safeLink(href) ? {kind: "link", href, children} : {kind: "strip", children};
const bareLink = (href) => link(href, [{kind: "text", text: href.replace(/^mailto:/i, "")}]);

// Joins brackets to links, then what is between delimiters.
function build(tokens) {
  const out = [], opens = [];
  for (const token of tokens) {
    if (token.open) { opens.push(out.length); out.push(token); continue; }
    if (token.close === undefined) { out.push(token); continue; }
    const from = opens.pop();
    if (from === undefined || token.close === null || (out[from].open === "[" && !out[from].isLive)) {
      out.push({node: {kind: "text", text: token.source}});
      continue;
    }
    const isImage = out[from].open === "![";
    const inner = emphasise(out.splice(from).slice(1));
    // Nothing is loaded from elsewhere: an image is a link to it.
    out.push({node: link(token.close, inner.length ? withoutLinks(inner) : [{kind: "text", text: isImage ? "image" : token.close}])});
    // No link stands in a link.
    if (!isImage) for (const open of opens) out[open].isLive = false;
  }
  return emphasise(out);
}

function withoutLinks(nodes) {
  return nodes.flatMap((node) => {
    if (!node.children) return [node];
    const children = withoutLinks(node.children);
    return node.kind === "link" ? children : [{...node, children}];
  });
}

function emphasise(tokens) {
  const out = [], stack = [];  // out: nodes and runs; stack: places in `out` of runs that may open
  for (const token of tokens) {
    if (token.node) { out.push(token.node); continue; }
    if (token.open) { out.push({kind: "text", text: token.open}); continue; }
    const run = {...token};
    if (run.closes) closeWith(run, out, stack);
    if (run.count === 0) continue;
    if (run.opens && stack.length < 200) stack.push(out.length);  // a bound on the search; no text has so many open
    out.push(run);
  }
  return merge(out.map((one) => one.char ? {kind: "text", text: one.char.repeat(one.count)} : one));
}

function closeWith(run, out, stack) {
  for (let i = stack.length - 1; i >= 0 && run.count > 0; --i) {
    const opener = out[stack[i]];
    if (opener.char !== run.char) continue;
    while (run.count > 0 && opener.count > 0) {
      const size = run.char === "~" ? 2 : Math.min(2, run.count, opener.count);
      // As in CommonMark: of runs that could do both, lengths that sum to a multiple of three do not match.
      const isOdd = (run.opens || opener.closes) && (run.count + opener.count) % 3 === 0 && run.count % 3 !== 0;
      if (run.count < size || opener.count < size || isOdd) break;
      const from = stack[i] + 1;
      const inner = merge(out.splice(from).map((one) => one.char ? {kind: "text", text: one.char.repeat(one.count)} : one));
      stack.length = i + 1;
      out.push({kind: run.char === "~" ? "strike" : size === 2 ? "strong" : "em", children: inner});
      opener.count -= size;
      run.count -= size;
    }
    if (opener.count === 0) { out.splice(stack[i], 1); stack.length = Math.min(stack.length, i); }
  }
}

// Joins texts that follow each other.
function merge(nodes) {
  const out = [];
  for (const node of nodes.flatMap((one) => one.kind === "strip" ? one.children : [one])) {
    const last = out.at(-1);
    if (node.kind === "text" && last?.kind === "text") out[out.length - 1] = {kind: "text", text: last.text + node.text};
    else out.push(node);
  }
  return out;
}
