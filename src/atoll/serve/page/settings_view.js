// System prompt and sampling settings of the conversation, in a dialog.

import {byId, el, fill} from "./dom.js";
import {writeDefaults} from "./keys.js";
import {kSettings, readSetting, readStops, writeStops} from "./settings.js";

export class SettingsView {
  constructor(app) {
    this.app = app;
    this.body = el("div");
    this.dialog = el("dialog.wide", {"aria-label": "Settings of this conversation"}, el("h2", {}, "Settings of this conversation"), this.body);
    this.before = "";
    this.dialog.addEventListener("close", () => { if (this.#text() !== this.before) app.changed(); });
    document.body.append(this.dialog);
    byId("settings").addEventListener("click", () => this.show());
  }

  show() {
    this.before = this.#text();
    this.#draw();
    if (!this.dialog.open) this.dialog.showModal();
  }

  #text() { return JSON.stringify([this.app.conversation.system, this.app.conversation.settings]); }

  #draw() {
    const {app} = this, {conversation} = app;
    const button = (label, run, kind = "button") => el(kind, {type: "button", onclick: run}, label);
    this.said = el("span.small", {role: "status"});
    const takeSystem = (text) => { conversation.system = text; };
    fill(this.body,
      conversation.mode === "chat" ? this.#area("system prompt", "what the model is told before the conversation", conversation.system, takeSystem) : null,
      el("div.fields", {}, kSettings.map((setting) => this.#number(conversation.settings, setting))),
      this.#area("stop strings", "the answer ends before one of these; one a line, \\n is a line end", writeStops(conversation.settings.stop ?? []), (text) => {
        const {value, error} = readStops(text);
        if (value?.length) conversation.settings.stop = value; else if (value) delete conversation.settings.stop;
        return error;
      }),
      el("p.small", {}, "What is left empty is the server's choice."),
      el("div.bar", {}, button("done", () => this.dialog.close(), "button.main"),
        button("empty all", () => { conversation.settings = {}; conversation.system = ""; this.#draw(); }),
        button("use for new conversations", () => { writeDefaults(conversation); fill(this.said, "kept"); }),
        button("export this conversation", () => app.transfer.exportOne(conversation)), this.said));
  }

  #number(settings, setting) {
    return this.#field("input", {inputmode: "decimal", autocomplete: "off"}, setting.label, setting.help, settings[setting.name] ?? "", (text) => {
      const {value, error} = readSetting(setting, text);
      if (!error && value === null) delete settings[setting.name];
      else if (!error) settings[setting.name] = value;
      return error;
    });
  }

  #area(...rest) { return this.#field("textarea", {rows: 3}, ...rest); }

  // A field with its label; `take` gives what is wrong with a text, or nothing.
  #field(kind, attributes, label, help, value, take) {
    const id = `field-${label.replace(/ /g, "-")}`;
    const said = el("span.small", {id: `${id}-said`}, help), input = el(kind, {...attributes, id, "aria-describedby": said.id});
    input.value = value;
    input.addEventListener("input", () => {
      const error = take(input.value);
      input.setAttribute("aria-invalid", String(!!error));
      said.className = error ? "small wrong" : "small";
      fill(said, error ?? help);
    });
    return el("div.field", {}, el("label", {for: id}, label), input, said);
  }
}
