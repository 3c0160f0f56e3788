// Elements without markup: every text of a run becomes a text node, never HTML.

const kSvg = "http://www.w3.org/2000/svg";
const kSvgTags = new Set(["svg", "g", "line", "circle", "rect", "path", "text", "title", "polyline"]);

// el("button.small", {onclick: f, "aria-label": "x"}, "text", child, ...)
export function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = kSvgTags.has(tag) ? document.createElementNS(kSvg, tag) : document.createElement(tag);
  if (classes.length) node.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name.startsWith("aria-")) node.setAttribute(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

// Puts children in place of those that are there; null stands for none.
export const fill = (node, ...children) => node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));

export const table = (head, rows) => el("div.scroll", {}, el("table", {},
  el("thead", {}, el("tr", {}, head.map((name) => el("th", {scope: "col"}, name)))),
  el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) =>
    cell instanceof Element && cell.tagName === "TD" ? cell : el(typeof cell === "number" ? "td.num" : "td", {}, cell instanceof Element ? cell : String(cell ?? ""))))))));

export async function ask(path, parameters = {}, options = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) query.append(name, one);
  }
  const answer = await fetch(query.size ? `${path}?${query}` : path, options);
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}

export const when = (seconds) => seconds ? new Date(seconds * 1000).toLocaleString() : "";
