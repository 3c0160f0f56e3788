// The list of conversations: search, open, rename, delete.

import {byId, el, fill} from "./dom.js";
import {hasWords, titleOf} from "./tree.js";

export class ListView {
  #heads = [];
  #found = null;  // ids that the search has found; null: nothing is searched
  #number = 0;    // of the last search: earlier ones that end later say nothing

  constructor(app) {
    this.app = app;
    this.search = byId("search");
    this.root = byId("conversations");
    this.search.addEventListener("input", () => { clearTimeout(this.timer); this.timer = setTimeout(() => this.#find(), 150); });
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.search.value) { event.stopPropagation(); this.search.value = ""; this.#find(); }
      if (event.key === "ArrowDown") this.root.querySelector("button")?.focus();
    });
    this.root.addEventListener("keydown", (event) => this.#key(event));
  }

  // Reads the list again.
  async refresh() {
    this.#heads = await this.app.store.heads();
    await this.#find();
  }

  async #find() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean), number = ++this.#number;
    const found = words.length ? await this.app.store.find((one) => hasWords(one, words)) : null;
    if (number !== this.#number) return;
    this.#found = found;
    this.draw();
  }

  draw() {
    const heads = this.#heads.filter((head) => !this.#found || this.#found.has(head.id));
    if (this.root.querySelector("input")) return;  // a name is being typed
    // The focus stays on the same button of the same conversation.
    const focused = this.root.contains(document.activeElement) ? document.activeElement : null, id = focused?.closest("li").dataset.id;
    fill(this.root, heads.length ? heads.map((head) => this.#item(head)) : el("li.empty", {}, this.#found ? "nothing is found" : "no conversations yet"));
    const again = focused && [...this.root.children].find((item) => item.dataset.id === id);
    if (again) [...again.querySelectorAll("button")].find((button) => button.className === focused.className)?.focus();
  }

  #item(head) {
    const title = head.title || "untitled", isShown = head.id === this.app.conversation?.id;
    const dot = this.app.answers.has(head.id) ? el("span.dot", {role: "img", "aria-label": "an answer is written"}) : null;
    const item = el(isShown ? "li.shown" : "li", {"data-id": head.id},
      el("button.name", {type: "button", title, "aria-current": isShown ? "true" : null, onclick: () => this.app.open(head.id)}, el("bdi", {}, title), dot),
      el("button.quiet.rename", {type: "button", "aria-label": `Rename ${title}`, title: "rename", onclick: () => this.#rename(item, head)}, "✎"),
      el("button.quiet.delete", {type: "button", "aria-label": `Delete ${title}`, title: "delete", onclick: () => this.app.remove(head.id)}, "✕"));
    return item;
  }

  #rename(item, head) {
    const field = el("input", {"aria-label": "Name of the conversation", maxlength: 60});
    field.value = head.title;
    let isDone = false;
    const end = async (isKept) => {
      if (isDone) return;
      isDone = true;
      const title = titleOf(field.value);
      field.remove();
      if (isKept && title) await this.app.rename(head.id, title);
      this.draw();
    };
    field.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") end(true);
      if (event.key === "Escape") end(false);
    });
    field.addEventListener("blur", () => end(true));
    fill(item, field);
    field.select();
  }

  #key(event) {
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key], item = event.target.closest("li");
    if (!by || !item || event.target.tagName === "INPUT") return;
    event.preventDefault();
    const next = by > 0 ? item.nextElementSibling : item.previousElementSibling;
    (next?.querySelector("button") ?? this.search).focus();
  }
}
