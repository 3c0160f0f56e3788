// Conversations in this browser: IndexedDB, which has room for many and is not read as a whole. Where a browser gives none (some
// private windows), they are kept in memory, until the page is closed.

const kName = "atoll-chat";
// Heads are what the list shows, so that it needs no message.
const kStores = ["heads", "conversations"];

const done = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

const headOf = ({id, title, changed}) => ({id, title, changed});

const wordsFor = (error) => error?.name === "QuotaExceededError"
  ? "The browser has no room for more. Export and delete some conversations."
  : `The browser does not keep this conversation: ${error?.message ?? "no reason is given"}.`;

export class Store {
  #database = null;
  #memory = new Map();

  // Whether conversations outlive the page.
  get isKept() { return this.#database !== null; }

  async open() {
    try {
      const request = indexedDB.open(kName, 1);
      request.onupgradeneeded = () => { for (const name of kStores) request.result.createObjectStore(name, {keyPath: "id"}); };
      this.#database = await done(request);
      // Another page, of a later version, wants to change the database.
      this.#database.onversionchange = () => this.#database.close();
    } catch { this.#database = null; }
  }

  // {id, title, changed} of all, the last changed first.
  async heads() {
    const heads = this.#database ? await done(this.#read("heads").getAll()) : [...this.#memory.values()].map(headOf);
    return heads.sort((a, b) => b.changed - a.changed);
  }

  async get(id) {
    return this.#database ? await done(this.#read("conversations").get(id)) ?? null : structuredClone(this.#memory.get(id) ?? null);
  }

  async all() {
    return this.#database ? done(this.#read("conversations").getAll()) : structuredClone([...this.#memory.values()]);
  }

  // Both or neither is written. Throws an Error with words for the user.
  async put(conversation) {
    if (!this.#database) { this.#memory.set(conversation.id, structuredClone(conversation)); return; }
    await this.#write((heads, conversations) => { heads.put(headOf(conversation)); conversations.put(conversation); });
  }

  async remove(id) {
    this.#memory.delete(id);
    if (this.#database) await this.#write((heads, conversations) => { heads.delete(id); conversations.delete(id); });
  }

  // Ids of the conversations that `matches`, one after another: all of them need not fit in memory.
  async find(matches) {
    const found = new Set();
    if (!this.#database) {
      for (const one of this.#memory.values()) if (matches(one)) found.add(one.id);
      return found;
    }
    await new Promise((resolve, reject) => {
      const request = this.#read("conversations").openCursor();
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const cursor = request.result;
        if (!cursor) { resolve(); return; }
        if (matches(cursor.value)) found.add(cursor.value.id);
        cursor.continue();
      };
    });
    return found;
  }

  #read(name) { return this.#database.transaction(name).objectStore(name); }

  #write(change) {
    return new Promise((resolve, reject) => {
      const transaction = this.#database.transaction(kStores, "readwrite");
      transaction.oncomplete = () => resolve();
      transaction.onabort = transaction.onerror = () => reject(new Error(wordsFor(transaction.error)));
      change(...kStores.map((name) => transaction.objectStore(name)));
    });
  }
}
