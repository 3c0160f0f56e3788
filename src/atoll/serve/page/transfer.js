// Export to a file and import from one.

import {byId, download} from "./dom.js";
import {exportText, importText} from "./files.js";

const kMostBytes = 256 << 20;

export class Transfer {
  constructor(app) {
    this.app = app;
    this.file = byId("file");
    byId("import").addEventListener("click", () => this.file.click());
    byId("export").addEventListener("click", () => this.exportAll());
    this.file.addEventListener("change", async () => {
      if (this.file.files[0]) await this.importFile(this.file.files[0]);
      this.file.value = "";
    });
  }

  async exportAll() { this.#save("conversations", await this.app.store.all()); }
  exportOne(conversation) { this.#save("conversation", [conversation]); }

  #save(name, conversations) {
    download(`atoll-${name}-${new Date().toISOString().slice(0, 10)}.json`, exportText(conversations), "application/json");
  }

  async importFile(file) {
    try {
      if (file.size > kMostBytes) throw new Error("This file is larger than this page takes.");
      const list = importText(await file.text());
      for (const one of list) {
        // What is here already is not written over: a copy comes beside it.
        const known = await this.app.store.get(one.id);
        if (known && known.changed !== one.changed) one.id = this.app.newId();
        await this.app.store.put(one);
      }
      this.app.say(list.length === 1 ? "One conversation was imported." : `${list.length} conversations were imported.`);
    } catch (error) { this.app.say(error.message); }
    this.app.told();
  }
}
