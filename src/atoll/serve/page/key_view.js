// The API key, for servers that want one.

import {byId, el, fill} from "./dom.js";
import {isKeyRemembered, readKey, writeKey} from "./keys.js";

export class KeyView {
  // `done`: is called when a key was given.
  constructor(done) {
    this.field = el("input", {type: "password", autocomplete: "off", spellcheck: "false", "aria-label": "API key"});
    this.remember = el("input", {type: "checkbox", id: "remember"});
    this.why = el("p.error", {role: "alert", hidden: true});
    const close = () => this.dialog.close();
    const keep = () => { writeKey(this.field.value.trim(), this.remember.checked); close(); done(); };
    this.field.addEventListener("keydown", (event) => { if (event.key === "Enter") keep(); });
    this.dialog = el("dialog", {"aria-label": "API key"}, el("h2", {}, "API key"), this.why,
      el("p.small", {}, "For servers that were started with keys. It goes to this server alone, and is forgotten with this tab unless it is remembered."),
      this.field, el("p", {}, this.remember, el("label", {for: "remember"}, " remember it in this browser")),
      el("div.bar", {}, el("button.main", {type: "button", onclick: keep}, "use this key"),
        el("button", {type: "button", onclick: () => { this.field.value = ""; keep(); }}, "forget it"), el("button", {type: "button", onclick: close}, "cancel")));
    document.body.append(this.dialog);
    byId("key").addEventListener("click", () => this.show());
  }

  show(why = "") {
    this.why.hidden = !why;
    fill(this.why, why);
    if (this.dialog.open) return;
    this.field.value = readKey();
    this.remember.checked = isKeyRemembered();
    this.dialog.showModal();
    this.field.focus();
  }
}
