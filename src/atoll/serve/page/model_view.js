// Which model answers, and whether it chats or goes on with a text.

import {byId, el, fill} from "./dom.js";
import {plainWords} from "./errors.js";
import {readModel, writeModel} from "./keys.js";

export class ModelView {
  constructor(app) {
    this.app = app;
    this.models = [];
    this.select = byId("model");
    this.mode = byId("mode");
    this.select.addEventListener("change", () => this.#choose());
    this.mode.addEventListener("change", () => { app.conversation.mode = this.mode.value; app.changed(); });
  }

  // Asks for the models; the API key is asked for where it lacks.
  async load() {
    try {
      this.models = await this.app.api.models();
      this.app.say(this.models.length ? "" : "The server has no models.");
    } catch (error) {
      this.app.say(plainWords(error), {label: "retry", run: () => this.load()});
      if (error.status === 401) this.app.key.show(plainWords(error));
    }
    if (this.app.conversation) this.adopt(this.app.conversation);
    this.app.draw();
  }

  of(conversation) { return this.models.find((model) => model.id === conversation.model) ?? null; }

  // Gives a conversation without a model the one that was chosen last, or the first. One that has begun keeps its mode.
  adopt(conversation) {
    if (!this.models.length || (conversation.nodes.length && conversation.model)) return;
    const model = this.of(conversation) ?? this.models.find(({id}) => id === readModel()) ?? this.models[0];
    if (!conversation.nodes.length && (conversation.model !== model.id || !model.isChat)) conversation.mode = model.isChat ? "chat" : "text";
    conversation.model = model.id;
  }

  #choose() {
    const {conversation} = this.app;
    conversation.model = this.select.value;
    writeModel(conversation.model);
    const model = this.of(conversation);
    if (model && !conversation.nodes.length) conversation.mode = model.isChat ? "chat" : "text";
    this.app.changed();
  }

  draw(conversation, isRunning) {
    const ids = this.models.map(({id}) => id), isGone = conversation.model && !ids.includes(conversation.model);
    const options = isGone ? [...ids, conversation.model] : ids, text = options.join("\n") + isGone;
    if (this.drawn !== text) {
      this.drawn = text;
      fill(this.select, options.map((id) => el("option", {value: id}, isGone && id === conversation.model ? `${id} (not served now)` : id)));
    }
    this.select.value = conversation.model;
    this.select.disabled = isRunning || !options.length;
    this.mode.value = conversation.mode;
    // What has begun as one cannot go on as the other. A base model has no chat.
    this.mode.disabled = isRunning || conversation.nodes.length > 0;
    this.mode.options[0].disabled = this.of(conversation)?.isChat === false;
  }
}
