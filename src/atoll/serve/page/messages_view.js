// The messages of the conversation that is shown, and what a screen reader is told of an answer that grows.

import {byId, el, fill} from "./dom.js";
import {MessageView} from "./message_view.js";
import {byParent, pathOf} from "./tree.js";

const kNear = 60;  // pixels from the end within which the view follows what is added

export class MessagesView {
  #views = new Map();
  #conversation = null;
  #told = {node: null, count: 0};

  constructor(app) {
    this.app = app;
    this.root = byId("messages");
    this.end = byId("end");
    this.follows = true;
    this.root.addEventListener("scroll", () => this.#look());
    this.end.addEventListener("click", () => this.toEnd());
    new ResizeObserver(() => { if (this.follows) this.toEnd(); }).observe(this.root);
  }

  update(conversation, answer) {
    if (this.#conversation !== conversation) {
      this.#conversation = conversation;
      this.#views.clear();
      this.follows = true;
    }
    const path = pathOf(conversation), versions = byParent(conversation);
    const views = path.map((node) => {
      const known = this.#views.get(node.id);
      if (known) return known;
      const view = new MessageView(this.app, conversation, node);
      this.#views.set(node.id, view);
      return view;
    });
    for (const view of views) view.update(answer, versions.get(view.node.parent));
    const roots = views.length ? views.map((view) => view.root) : [this.#welcome(conversation)];
    this.#put(roots);
    this.root.classList.toggle("text", conversation.mode === "text");
    this.#tell(answer);
    if (this.follows) this.toEnd();
  }

  // What is there already stays: thousands of messages take long to lay out again.
  #put(roots) {
    const shown = [...this.root.children];
    let same = 0;
    while (same < roots.length && shown[same] === roots[same]) ++same;
    for (const node of shown.slice(same)) node.remove();
    this.root.append(...roots.slice(same));
  }

  #welcome({mode}) {
    return el("div.welcome", {}, el("p", {}, mode === "text" ? "Begin a text; the model goes on with it." : "Ask something."),
      el("p.small", {}, "Conversations stay in this browser. A model may be wrong."));
  }

  // Finished blocks of the answer are read out, each once: not each token.
  #tell(answer) {
    const node = answer?.node ?? this.#told.node, view = node && this.#views.get(node.id);
    if (!view || view.node !== node) { this.#told = {node: null, count: 0}; return; }
    if (this.#told.node !== node) { this.#told = {node, count: 0}; fill(byId("said")); }
    const blocks = view.isPlain ? (answer ? [] : [view.answerText]) : view.markdown.finished(this.#told.count, !answer);
    byId("said").append(...blocks.map((text) => el("p", {}, text)));
    this.#told = answer ? {node, count: this.#told.count + blocks.length} : {node: null, count: 0};
  }

  // The last message of the user that is shown.
  lastOfUser() {
    const node = pathOf(this.#conversation).findLast((one) => one.role === "user");
    return node ? this.#views.get(node.id) : null;
  }

  // The button that led to this version, or the one back where there is no further one.
  focusVersions(node, by) {
    const [earlier, later] = this.#views.get(node.id)?.root.querySelectorAll(".versions button") ?? [];
    [by < 0 ? earlier : later, earlier, later].find((button) => button && !button.disabled)?.focus();
  }

  toEnd() {
    this.root.scrollTop = this.root.scrollHeight;
    this.#look();
  }

  #look() {
    this.follows = this.root.scrollHeight - this.root.scrollTop - this.root.clientHeight < kNear;
    this.end.hidden = this.follows;
  }
}
