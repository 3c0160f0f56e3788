// One message: what was asked, or an answer with its thoughts, its numbers and what went wrong.

import {copyButton, el, fill} from "./dom.js";
import {MarkdownView} from "./markdown_view.js";
import {formatCount, statsOf} from "./numbers.js";
import {splitThinking} from "./thinking.js";

const kEnds = {
  length: "Cut off: the answer has reached max tokens, or the context is full.",
  stopped: "Stopped.",
  content_filter: "The server has cut this answer.",
};

export class MessageView {
  #drawn = "";
  #text = null;  // that is shown, with the thoughts that the server told apart

  constructor(app, conversation, node) {
    Object.assign(this, {app, conversation, node});
    this.isUser = node.role === "user";
    this.isPlain = conversation.mode === "text";
    this.isEditing = false;
    this.markdown = new MarkdownView();
    this.body = this.isUser || this.isPlain ? el("div.plain", {dir: "auto"}) : this.markdown.root;
    this.thought = el("div.plain");
    this.thinking = el("details.thinking", {hidden: true}, el("summary"), this.thought);
    this.state = el("div.state");
    this.foot = el("div.foot");
    this.root = el(`article.message.${node.role}`, {"aria-label": this.isUser ? "You" : "Answer"}, this.thinking, this.body, this.state, this.foot);
    // Its buttons come up where it is pointed at or has the focus.
    if (this.isPlain) { this.root.classList.add("continued"); this.root.tabIndex = 0; }
  }

  // `answer`: the one that runs in this conversation, or null. `versions`: of this message, this one among them.
  update(answer, versions) {
    if (this.isEditing) return;
    const {node} = this, mine = answer?.node === node ? answer : null, text = node.text + "\0" + (node.reasoning ?? "") + !!mine;
    if (this.#text !== text) this.#drawText(mine);
    this.#text = text;
    this.root.setAttribute("aria-busy", String(!!mine));
    this.#drawRest(mine, !!answer, versions);
  }

  #drawText(mine) {
    const {node} = this;
    const split = this.isUser || this.isPlain ? {thinking: "", answer: node.text, isThinking: false} : splitThinking(node.text, node.reasoning);
    this.answerText = split.answer;
    this.#drawThinking(split, mine);
    if (this.isUser || this.isPlain) this.body.textContent = split.answer;
    else this.markdown.update(split.answer);
  }

  #drawThinking({thinking, isThinking}, mine) {
    this.thinking.hidden = !thinking;
    if (!thinking) return;
    this.thinking.firstChild.textContent = isThinking && mine ? "thinking…" : `thoughts, ${formatCount(thinking.split(/\s+/).length)} words`;
    if (this.thought.textContent !== thinking) this.thought.textContent = thinking;
  }

  // State and buttons are made again only where they differ: a focused button stays.
  #drawRest(mine, isBusy, versions) {
    const {node} = this;
    const wait = mine?.waitsFor ? `The server is busy. It is asked again in ${mine.waitsFor} s.` : mine && !node.text && !node.reasoning ? "…" : "";
    const stats = mine || this.isUser ? "" : statsOf(node);
    const key = JSON.stringify([wait, !!mine, isBusy, node.error, node.finish, versions.indexOf(node), versions.length, stats, node.chosen]);
    if (key === this.#drawn) return;
    this.#drawn = key;
    fill(this.state, wait, mine ? null : this.#ending());
    fill(this.foot, mine ? null : [this.#versions(versions, isBusy), this.#actions(isBusy), stats && el("span.stats", {}, stats)].flat());
  }

  #ending() {
    const {node} = this;
    if (this.isUser) return null;
    const retry = () => el("button", {type: "button", onclick: () => this.app.retry(node)}, "retry");
    if (node.error) return el("div.error", {role: "alert"}, el("span", {}, node.error), retry());
    if (kEnds[node.finish]) return el("span", {}, kEnds[node.finish]);
    return node.finish ? null : el("span", {}, "This answer was not finished.");
  }

  #versions(versions, isBusy) {
    if (versions.length < 2) return null;
    const at = versions.indexOf(this.node);
    const step = (by, text, label) => el("button.quiet",
      {type: "button", "aria-label": label, disabled: isBusy || !versions[at + by], onclick: () => this.app.switchVersion(this.node, by)}, text);
    const count = el("span", {role: "img", "aria-label": `version ${at + 1} of ${versions.length}`}, `${at + 1}/${versions.length}`);
    return el("span.versions", {}, step(-1, "‹", "Earlier version"), count, step(1, "›", "Later version"));
  }

  #actions(isBusy) {
    const button = (label, action, title) => el("button.quiet", {type: "button", disabled: isBusy, title, onclick: action}, label);
    const {app, node} = this;
    return [
      copyButton(() => this.answerText),
      button("edit", () => this.edit(), this.isUser ? "another version, which is answered anew" : "another version of this text"),
      this.isUser && !node.chosen ? button("answer", () => app.answer(node)) : null,
      this.isUser ? null : button("again", () => app.answerAgain(node), "another answer beside this one"),
      button("delete", () => app.removeMessage(node), "this version and what follows it"),
    ];
  }

  // The text becomes a field; what is sent becomes another version.
  edit() {
    if (this.isEditing || this.app.answerOf(this.conversation)) return;
    this.isEditing = true;
    const field = el("textarea", {"aria-label": "Edit the message"});
    field.value = this.node.text;
    const grow = () => { field.style.height = "auto"; field.style.height = `${field.scrollHeight + 2}px`; };
    const end = () => {
      this.isEditing = this.foot.hidden = this.state.hidden = false;
      editor.replaceWith(this.body);
      this.#drawn = "";
      this.app.draw();
      this.app.composer.focus();
    };
    const send = () => {
      const text = field.value;
      if (!text.trim() || this.app.running()) return;
      end();
      if (this.isUser) this.app.resend(this.node, text);
      else this.app.rewrite(this.node, text);
    };
    field.addEventListener("input", grow);
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { event.stopPropagation(); end(); }
      if (this.app.sends(event)) { event.preventDefault(); send(); }
    });
    const editor = el("div.editor", {}, field, el("div.bar", {},
      el("button.main", {type: "button", onclick: send}, this.isUser ? "send" : "keep"), el("button", {type: "button", onclick: end}, "cancel")));
    this.body.replaceWith(editor);
    this.foot.hidden = this.state.hidden = true;
    grow();
    field.focus();
  }
}
