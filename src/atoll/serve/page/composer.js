// The field for the next message, with the button that sends or stops.

import {byId} from "./dom.js";
import {ratesOf} from "./numbers.js";

export class Composer {
  #drafts = new Map();  // what was typed and not sent, by conversation
  #id = "";

  constructor(app) {
    this.app = app;
    this.field = byId("compose");
    this.button = byId("send");
    this.field.addEventListener("input", () => this.#grow());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    this.button.addEventListener("click", () => app.running() ? app.stop() : this.#send());
  }

  focus() { this.field.focus(); }

  // `answer`: the one that runs in this conversation, or null.
  update(conversation, answer) {
    if (this.#id !== conversation.id) {
      this.#drafts.set(this.#id, this.field.value);
      this.#id = conversation.id;
      this.field.value = this.#drafts.get(conversation.id) ?? "";
      this.#grow();
    }
    const isText = conversation.mode === "text";
    this.button.textContent = answer ? "stop" : isText ? "continue" : "send";
    this.field.placeholder = isText ? "Text that the model goes on with; nothing: on from where it ended" : "Message";
    const keys = this.app.isTouch ? "" : answer ? "Esc stops" : "Enter sends, Shift+Enter begins a line";
    byId("hint").textContent = [keys, answer ? ratesOf(answer.node) : ""].filter(Boolean).join(" · ");
  }

  #key(event) {
    if (this.app.sends(event)) { event.preventDefault(); this.#send(); }
    if (event.key === "ArrowUp" && !this.field.value) { event.preventDefault(); this.app.messages.lastOfUser()?.edit(); }
  }

  #send() {
    if (this.app.send(this.field.value)) { this.field.value = ""; this.#grow(); }
  }

  #grow() {
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
  }
}
