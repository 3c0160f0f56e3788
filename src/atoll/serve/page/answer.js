// One answer that is being written: asks, takes what comes into its message, waits where the server is busy. Nothing here touches
// the document; time and the network are given, so that tests have their own.

import {ApiError, plainWords, waitOf} from "./errors.js";
import {requestOf} from "./settings.js";
import {messagesTo, nodeOf, promptTo} from "./tree.js";

export class Answer {
  #abort = new AbortController();

  // `node`: the message that is written, already in the conversation. `changed`: is called after each change.
  constructor({api, conversation, node, changed, now = () => performance.now(), sleep = sleepFor}) {
    Object.assign(this, {api, conversation, node, changed, now, sleep});
    this.waitsFor = 0;  // seconds, while the server is busy
    this.isRunning = true;
    this.status = 0;    // of the server's refusal
  }

  stop() { this.#abort.abort(); }

  // Ends when the answer does; what fails is in the message's `error`.
  async run() {
    for (let tries = 1; this.isRunning; ++tries) {
      try {
        await this.#take();
        this.isRunning = false;
      } catch (error) {
        // What has begun to come is not asked for again: it would be another answer.
        const wait = this.node.text || this.node.reasoning ? null : waitOf(error, tries);
        if (this.#abort.signal.aborted || wait === null) this.#fail(error);
        else await this.#wait(wait);
      }
      this.changed();
    }
  }

  async #take() {
    const {node, conversation} = this, begun = this.now();
    const parent = nodeOf(conversation, node.parent);
    const isChat = conversation.mode === "chat";
    const path = isChat ? "v1/chat/completions" : "v1/completions";
    const input = isChat ? {messages: messagesTo(conversation, parent)} : {prompt: promptTo(conversation, parent)};
    const request = requestOf(conversation.model, conversation.settings, input);
    let isDone = false;
    for await (const event of this.api.stream(path, request, this.#abort.signal)) {
      if (event.error) throw new ApiError(0, String(event.error.message ?? event.error));
      const choice = event.choices?.[0];
      const text = isChat ? choice?.delta?.content : choice?.text, reasoning = choice?.delta?.reasoning_content;
      if (text || reasoning) {
        node.first_ms ??= this.now() - begun;
        node.ms = this.now() - begun;
        node.text += text ?? "";
        if (reasoning) node.reasoning = (node.reasoning ?? "") + reasoning;
        // Until the server says how many tokens there are, each event counts as one.
        node.tokens = (node.tokens ?? 0) + 1;
      }
      if (choice?.finish_reason) { node.finish = choice.finish_reason; isDone = true; }
      if (event.usage) { node.tokens = event.usage.completion_tokens; node.prompt_tokens = event.usage.prompt_tokens; }
      this.changed();
    }
    if (!isDone) throw new ApiError(0, "the connection ended before the answer did");
  }

  #fail(error) {
    this.isRunning = false;
    if (this.#abort.signal.aborted) { this.node.finish = "stopped"; return; }
    this.status = error instanceof ApiError ? error.status : 0;
    this.node.error = plainWords(error);
  }

  // Counts down, and ends early where the user stops.
  async #wait(seconds) {
    const end = this.now() + seconds * 1000;
    for (let left = seconds; left > 0 && !this.#abort.signal.aborted; left = (end - this.now()) / 1000) {
      this.waitsFor = Math.ceil(left);
      this.changed();
      await this.sleep(Math.min(left, 1) * 1000, this.#abort.signal);
    }
    this.waitsFor = 0;
    if (this.#abort.signal.aborted) this.#fail(null);
  }
}

const sleepFor = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, {once: true});
});
