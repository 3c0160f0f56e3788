// How an answer of the chat page comes, breaks off and waits, without a network and without time; called as chat_functions.js is.
(async (load) => {
  const wrong = [];
  const same = (seen, wanted, what) => { const [a, b] = [JSON.stringify(seen), JSON.stringify(wanted)]; if (a !== b) wrong.push(`${what}: ${a}, not ${b}`); };
  const {Answer} = await load("answer.js");
  const {ApiError, Unreached} = await load("errors.js");
  const {addNode, newConversation} = await load("tree.js");

  const delta = (content, finish_reason = null) => ({choices: [{delta: {content}, finish_reason}]});
  // `tries`: for each request a list of events; one that is an Error is thrown. A tick of the clock is a millisecond.
  const ask = async (tries, {mode = "chat", onChange = () => {}} = {}) => {
    const conversation = newConversation({id: "c", now: 0, mode, model: "m", settings: {seed: 1}});
    const question = addNode(conversation, 0, "user", "q"), node = addNode(conversation, question.id, "assistant", "");
    const seen = {requests: [], slept: 0, waits: []};
    let clock = 0;
    const api = {async *stream(path, body, signal) {
      seen.requests.push([path, body]);
      for (const event of tries.shift()) {
        if (signal.aborted) throw new DOMException("aborted", "AbortError");
        if (event instanceof Error) throw event;
        clock += 100;
        yield event;
      }
    }};
    const answer = new Answer({api, conversation, node, now: () => clock, sleep: async (ms) => { clock += ms; seen.slept += ms; },
      changed: () => { if (answer.waitsFor) seen.waits.push(answer.waitsFor); onChange(answer); }});
    await answer.run();
    return {node, answer, ...seen};
  };

  let one = await ask([[delta(""), delta("a"), delta("b"), delta("", "stop"), {choices: [], usage: {prompt_tokens: 7, completion_tokens: 2}}]]);
  same([one.node.text, one.node.finish, one.node.tokens, one.node.prompt_tokens, one.node.first_ms, one.node.ms, one.node.error], ["ab", "stop", 2, 7, 200, 300, undefined], "an answer");
  same(one.requests, [["v1/chat/completions", {model: "m", messages: [{role: "user", content: "q"}], seed: 1, stream: true, stream_options: {include_usage: true}}]], "its request");
  one = await ask([[{choices: [{text: " x"}]}, {choices: [{text: "", finish_reason: "length"}]}]], {mode: "text"});
  same([one.node.text, one.node.finish, one.requests[0][0], one.requests[0][1].prompt], [" x", "length", "v1/completions", "q"], "a text that goes on");
  one = await ask([[{choices: [{delta: {reasoning_content: "r"}}]}, delta("a", "stop")]]);
  same([one.node.reasoning, one.node.text, one.node.tokens], ["r", "a", 2], "thoughts");

  one = await ask([[new ApiError(429, "full", "2.5")], [new ApiError(503, "full", "1")], [delta("a", "stop")]]);
  same([one.node.text, one.slept, one.waits, one.requests.length, one.answer.waitsFor], ["a", 3500, [3, 2, 1, 1], 3, 0], "a busy server is waited for");
  one = await ask(Array.from({length: 9}, () => [new ApiError(429, "full", "1")]));
  same([one.requests.length, one.node.error], [9, "The server is busy: full"], "not for ever");
  one = await ask([[new ApiError(429, "full", "60")]], {onChange: (answer) => { if (answer.waitsFor === 57) answer.stop(); }});
  same([one.node.finish, one.node.error, one.requests.length, one.slept], ["stopped", undefined, 1, 4000], "a stop while it is waited");
  one = await ask([[delta("a"), new ApiError(429, "full", "1")]]);
  same([one.node.text, one.node.error, one.requests.length], ["a", "The server is busy: full", 1], "what has begun is not asked for again");

  one = await ask([[delta("a"), delta("b"), delta("c")]], {onChange: (answer) => { if (answer.node.text === "ab") answer.stop(); }});
  same([one.node.text, one.node.finish, one.node.error], ["ab", "stopped", undefined], "a stop");
  one = await ask([[delta("a")]]);
  same([one.node.text, one.node.error], ["a", "The answer broke off: the connection ended before the answer did"], "an end before the end");
  one = await ask([[delta("a"), {error: {message: "m"}}]]);
  same([one.node.text, one.node.error], ["a", "The answer broke off: m"], "an error within");
  one = await ask([[new ApiError(401, "no key")]]);
  same([one.answer.status, one.node.error], [401, "The server asks for an API key: no key"], "a refusal");
  one = await ask([[new Unreached()]]);
  same([one.node.error.startsWith("The server is not reached"), one.answer.isRunning], [true, false], "no server");
  return wrong;
})
