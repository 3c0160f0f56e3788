// Elements without markup: every text of a model becomes a text node, never HTML.

// el("button.small", {onclick: f, "aria-label": "x"}, "text", child, ...); a null child or attribute is left out.
export function el(kind, attributes = {}, ...children) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...present(children));
  return node;
}

// Puts children in place of those that are there.
export const fill = (node, ...children) => node.replaceChildren(...present(children));

export const byId = (id) => document.getElementById(id);

const present = (children) => children.flat().filter((child) => child !== null && child !== undefined && child !== false);

// A button that copies what `textOf` gives, and says so for a moment.
export function copyButton(textOf, label = "copy") {
  const button = el("button.quiet", {type: "button"}, label);
  button.addEventListener("click", async () => {
    button.textContent = await copy(textOf()) ? "copied" : "not copied";
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  return button;
}

// navigator.clipboard is there on https and localhost alone; elsewhere a selection is copied.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea.offscreen", {readonly: true});
    area.value = text;
    // Outside an open dialog nothing can be selected.
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const isCopied = document.execCommand("copy");
    area.remove();
    return isCopied;
  }
}

// Gives the browser a file to save.
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], {type}));
  el("a", {download: name, href: url}).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
