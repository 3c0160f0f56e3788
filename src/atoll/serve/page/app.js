// The chat page: which conversation is shown, what runs, and what keys do.

import {Answer} from "./answer.js";
import {Api} from "./api.js";
import {Composer} from "./composer.js";
import {byId, el, fill} from "./dom.js";
import {KeyView} from "./key_view.js";
import {readDefaults, readKey} from "./keys.js";
import {ListView} from "./list_view.js";
import {MessagesView} from "./messages_view.js";
import {ModelView} from "./model_view.js";
import {contextOf} from "./numbers.js";
import {cleanSettings} from "./settings.js";
import {SettingsView} from "./settings_view.js";
import {Store} from "./store.js";
import {Transfer} from "./transfer.js";
import {addNode, addVersion, newConversation, nodeOf, pathOf, removeNode, switchVersion} from "./tree.js";

const kSaveEvery = 2000;  // milliseconds, while an answer grows: a reload loses no more

class App {
  constructor() {
    this.conversation = null;
    this.answers = new Map();  // that run, by conversation
    this.isTouch = matchMedia("(pointer: coarse)").matches;
    this.store = new Store();
    this.api = new Api(readKey);
    this.key = new KeyView(() => this.keyGiven());
    this.models = new ModelView(this);
    this.list = new ListView(this);
    this.messages = new MessagesView(this);
    this.composer = new Composer(this);
    this.settings = new SettingsView(this);
    this.transfer = new Transfer(this);
    // Other tabs show the same conversations.
    this.others = new BroadcastChannel("atoll-chat");
    this.others.addEventListener("message", ({data}) => this.hear(data.id));
    byId("new").addEventListener("click", () => { this.begin(); this.composer.focus(); });
    byId("menu").addEventListener("click", () => { this.openDrawer(byId("shade").hidden); byId("new").focus(); });
    byId("shade").addEventListener("click", () => this.openDrawer(false));
    addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("hashchange", () => this.readHash());
    addEventListener("pagehide", () => { for (const {conversation} of this.answers.values()) this.save(conversation); });
    this.start();
  }

  async start() {
    await this.store.open();
    if (!this.store.isKept) this.say("This browser keeps nothing: conversations end with this page. Export what you need.");
    this.show(this.fresh());
    await Promise.all([this.readHash(), this.list.refresh(), this.models.load()]);
    if (!this.isTouch && !document.querySelector("dialog[open]")) this.composer.focus();
  }

  // --- Which conversation

  newId() { return [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join(""); }

  // A new conversation; it is kept with its first message.
  fresh() { return newConversation({id: this.newId(), now: Date.now(), ...readDefaults(cleanSettings)}); }

  begin() {
    this.show(this.fresh());
    history.replaceState(null, "", location.pathname + location.search);
  }

  async open(id) {
    const conversation = this.answers.get(id)?.conversation ?? await this.store.get(id);
    if (!conversation) return;
    this.show(conversation);
    history.replaceState(null, "", `#${id}`);
  }

  async readHash() {
    const id = location.hash.slice(1);
    if (/^[0-9a-f]+$/.test(id) && id !== this.conversation?.id) await this.open(id);
  }

  show(conversation) {
    this.conversation = conversation;
    this.models.adopt(conversation);
    this.openDrawer(false);
    this.list.draw();
    this.draw();
  }

  async rename(id, title) {
    const conversation = await this.find(id);
    if (!conversation) return;
    Object.assign(conversation, {title, isNamed: true});
    await this.save(conversation);
    this.draw();
  }

  async find(id) { return id === this.conversation.id ? this.conversation : this.answers.get(id)?.conversation ?? this.store.get(id); }

  async remove(id) {
    this.answers.get(id)?.stop();
    const conversation = await this.find(id);
    await this.store.remove(id);
    if (id === this.conversation.id) this.begin();
    this.told(id);
    const undo = {label: "undo", run: async () => { await this.save(conversation); this.open(id); }};
    if (conversation) this.say(`“${conversation.title || "untitled"}” was deleted.`, undo);
  }

  // --- Keeping

  async save(conversation) {
    if (!conversation.nodes.length) return;
    try { await this.store.put(conversation); } catch (error) { this.say(error.message); }
    this.told(conversation.id);
  }

  // The conversation that is shown has been changed by its user.
  changed() {
    this.conversation.changed = Date.now();
    this.save(this.conversation);
    this.draw();
  }

  told(id = "") {
    this.others.postMessage({id});
    this.list.refresh();
  }

  // Another tab has changed a conversation.
  async hear(id) {
    this.list.refresh();
    if (id !== this.conversation.id || this.answers.has(id)) return;
    const there = await this.store.get(id), {conversation} = this;
    if (!there || id !== conversation.id) return;
    if (there.changed !== conversation.changed || there.title !== conversation.title) this.show(there);
  }

  // --- Asking

  answerOf(conversation) { return this.answers.get(conversation.id) ?? null; }
  running() { return this.answerOf(this.conversation); }
  stop() { this.running()?.stop(); }

  // Whether it was sent. An empty text goes on with what is there.
  send(text) {
    const {conversation} = this, last = pathOf(conversation).at(-1);
    if (this.running()) return false;
    if (!conversation.model) { this.say("There is no model to ask.", {label: "look again", run: () => this.models.load()}); return false; }
    const isEmpty = !text.trim();
    if (isEmpty && (!last || (conversation.mode === "chat" && last.role === "assistant"))) return false;
    this.messages.follows = true;
    this.answer(isEmpty ? last : addNode(conversation, last?.id ?? 0, "user", text));
    if (location.hash.slice(1) !== conversation.id) history.replaceState(null, "", `#${conversation.id}`);
    return true;
  }

  resend(node, text) { this.answer(addVersion(this.conversation, node, text)); }
  answerAgain(node) { this.answer(nodeOf(this.conversation, node.parent)); }

  // A text that the user puts in place of an answer.
  rewrite(node, text) {
    addVersion(this.conversation, node, text, {finish: "edited", time: Date.now()});
    this.changed();
  }

  // Asks again in place of an answer that failed; one that has begun stays as an earlier version.
  retry(node) {
    const parent = nodeOf(this.conversation, node.parent);
    if (!node.text && !node.reasoning) removeNode(this.conversation, node);
    this.answer(parent);
  }

  async answer(parent) {
    const {conversation} = this;
    if (this.running() || !parent) return;
    const node = addNode(conversation, parent.id, "assistant", "", {model: conversation.model, time: Date.now()});
    let savedAt = Date.now();
    const answer = new Answer({api: this.api, conversation, node, changed: () => {
      if (conversation === this.conversation) this.drawSoon();
      if (Date.now() - savedAt > kSaveEvery) { savedAt = Date.now(); this.save(conversation); }
    }});
    this.answers.set(conversation.id, answer);
    this.say("");  // what could be undone cannot be any more
    this.changed();
    if (document.activeElement === document.body && !this.isTouch) this.composer.focus();  // the button that was pressed is gone
    await answer.run();
    this.answers.delete(conversation.id);
    conversation.changed = Date.now();
    if (conversation === this.conversation) this.draw();
    if (answer.status === 401) { this.refused = {conversation, node}; this.key.show(node.error); }
    await this.save(conversation);
  }

  async keyGiven() {
    const refused = this.refused;
    this.refused = null;
    await this.models.load();
    if (refused && refused.conversation === this.conversation && readKey()) this.retry(refused.node);
  }

  switchVersion(node, by) {
    const shown = switchVersion(this.conversation, node, by);
    this.changed();
    this.messages.focusVersions(shown, by);
  }

  removeMessage(node) {
    const {conversation} = this, before = structuredClone(conversation);
    removeNode(conversation, node);
    this.changed();
    this.say("The message was deleted.", {label: "undo", run: () => { this.show(before); this.changed(); }});
  }

  // --- Drawing

  drawSoon() {
    // A long answer takes longer to draw; it is drawn less often.
    this.timer ??= setTimeout(() => { this.timer = null; this.draw(); }, Math.max(30, 3 * (this.drewIn ?? 0)));
  }

  draw() {
    const {conversation} = this, answer = this.running(), begun = performance.now();
    const title = conversation.title || (conversation.mode === "text" ? "new text" : "new chat");
    document.title = `${title} · atoll`;
    byId("title").textContent = title;
    this.models.draw(conversation, !!answer);
    this.messages.update(conversation, answer);
    this.composer.update(conversation, answer);
    const context = contextOf(pathOf(conversation), this.models.of(conversation)?.size ?? 0);
    byId("context").textContent = context ? `context: ${context.text}` : "";
    byId("context").className = context?.part > .9 ? "wrong" : "";
    this.drewIn = performance.now() - begun;
  }

  // A line for the user, with a button where there is something to do; "" takes it away.
  say(text, action = null) {
    const close = () => fill(byId("notice"));
    const button = action && el("button", {type: "button", onclick: () => { close(); action.run(); }}, action.label);
    fill(byId("notice"), text ? [el("span", {}, text), button, el("button.quiet", {type: "button", "aria-label": "Close", onclick: close}, "✕")] : null);
  }

  // Beside the messages, where there is room for both, the list is always there.
  openDrawer(isWanted) {
    const isOpen = isWanted && matchMedia("(max-width: 760px)").matches;
    byId("drawer").classList.toggle("open", isOpen);
    byId("shade").hidden = !isOpen;
    byId("menu").setAttribute("aria-expanded", String(isOpen));
  }

  // --- Keys

  // Whether a key in a field sends it. A keyboard on a screen has no Shift+Enter, and a word that is being composed is not sent.
  sends(event) { return event.key === "Enter" && !event.shiftKey && !event.isComposing && (!this.isTouch || event.ctrlKey); }

  pressed(event) {
    if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.shiftKey && !event.altKey) {
      event.preventDefault();
      this.openDrawer(true);
      byId("search").focus();
      byId("search").select();
    }
    if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
    if (!byId("shade").hidden) { this.openDrawer(false); this.composer.focus(); } else this.stop();
  }
}

globalThis.atollChat = new App();
