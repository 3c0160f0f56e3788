// Requests to the server that this page is from.

import {ApiError, Unreached, messageOf} from "./errors.js";
import {EventParser} from "./sse.js";

// `keyOf` gives the API key, or "".
export class Api {
  constructor(keyOf) { this.keyOf = keyOf; }

  // [{id, isChat, size}]; size: of the context in tokens, 0 where it is not told.
  async models() {
    const answer = await this.#ask("v1/models", {}), list = await answer.json().catch(() => null);
    if (!Array.isArray(list?.data)) throw new Error("The server does not say which models it has.");
    return list.data.map((model) => ({id: String(model.id), isChat: model.atoll?.chat !== false, size: Number(model.atoll?.max_tokens) || 0}));
  }

  // The JSON of each event of a streamed answer, until [DONE].
  async *stream(path, body, signal) {
    const answer = await this.#ask(path, {method: "POST", body: JSON.stringify(body), signal, headers: {"Content-Type": "application/json"}});
    const parser = new EventParser();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    try {
      for (;;) {
        const {value, done} = await reader.read().catch((error) => { throw signal.aborted ? error : new ApiError(0, "the connection was lost"); });
        if (done) return;
        for (const data of parser.push(value)) {
          if (data === "[DONE]") return;
          yield parse(data);
        }
      }
    } finally {
      reader.cancel().catch(() => {});  // where it has broken off, there is nothing to cancel
    }
  }

  async #ask(path, options) {
    const key = this.keyOf(), headers = {...options.headers};
    if (key) headers.Authorization = `Bearer ${key}`;
    const answer = await fetch(path, {...options, headers, cache: "no-store", credentials: "same-origin", redirect: "error"})
      .catch((error) => { throw options.signal?.aborted ? error : new Unreached(); });
    if (!answer.ok) throw new ApiError(answer.status, messageOf(await answer.text()), answer.headers.get("Retry-After"));
    return answer;
  }
}

function parse(data) {
  try { return JSON.parse(data); } catch { throw new ApiError(0, "the server sends what this page does not understand"); }
}
