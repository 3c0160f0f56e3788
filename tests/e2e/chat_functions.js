// What the chat page computes, without a page: given `load`, which gives a module of src/atoll/serve/page, this function gives what is
// wrong, as a list of lines. chat_page.py calls it in a browser, and chat_node.mjs in Node.
(async (load) => {
  const wrong = [];
  const same = (seen, wanted, what) => { const [a, b] = [JSON.stringify(seen), JSON.stringify(wanted)]; if (a !== b) wrong.push(`${what}: ${a}, not ${b}`); };
  const refuses = (run, words, what) => { try { run(); wrong.push(`${what}: is taken`); } catch (error) { if (!error.message.includes(words)) wrong.push(`${what}: ${error.message}`); } };

  // --- Events
  const {EventParser} = await load("sse.js");
  const stream = ": hello\n\ndata: a\n\ndata:b\ndata:  c\nid: 7\n\nevent: x\n\r\ndata: d\r\ndata: e\r\n\r\ndata\n\ndata: {\"ü\":\"🏝\"}\r\rdata: never ended";
  const wanted = ["a", "b\n c", "d\ne", "", '{"ü":"🏝"}'];
  for (let size = 1; size <= stream.length; ++size) {
    const parser = new EventParser(), seen = [];
    for (let at = 0; at < stream.length; at += size) seen.push(...parser.push(stream.slice(at, at + size)));
    same(seen, wanted, `events in pieces of ${size}`);
  }
  refuses(() => { const parser = new EventParser(); for (let i = 0; i < 20; ++i) parser.push("x".repeat(1 << 20)); }, "without an end", "an endless line");

  // --- Settings
  const {kSettings, cleanSettings, readSetting, readStops, requestOf, writeStops} = await load("settings.js");
  const setting = (name) => kSettings.find((one) => one.name === name), read = (name, text) => readSetting(setting(name), text);
  same([read("temperature", " 0,7 "), read("temperature", ""), read("top_p", "1"), read("seed", "12"), read("presence_penalty", "-2")], [{value: .7}, {value: null}, {value: 1}, {value: 12}, {value: -2}], "settings");
  for (const [name, text] of [["temperature", "x"], ["temperature", "2.1"], ["temperature", "-1"], ["temperature", "Infinity"], ["top_p", "0"], ["top_k", "1.5"], ["max_tokens", "0"], ["seed", "1e99"], ["repetition_penalty", "0"], ["frequency_penalty", "-3"]]) {
    if (!read(name, text).error) wrong.push(`${name} takes ${text}`);
  }
  same(read("top_p", "0").error, "top p is above 0, and at most 1", "a message");
  same(readStops("a\n\\n\\n\n b\\\\n"), {value: ["a", "\n\n", " b\\n"]}, "stop strings");
  same(readStops(writeStops(["x\ny", "\\n", "\t"])).value, ["x\ny", "\\n", "\t"], "stop strings there and back");
  if (!readStops("a\n".repeat(17)).error) wrong.push("too many stop strings are taken");
  same(cleanSettings({temperature: 9, top_p: .5, seed: "1", evil: 1, stop: ["a", 1, ""], __proto__: {top_k: 1}}), {top_p: .5, stop: ["a"]}, "settings of a stranger");
  same([cleanSettings(null), cleanSettings("x"), cleanSettings([])], [{}, {}, {}], "no settings");
  same(requestOf("m", {seed: 0}, {prompt: "p"}), {model: "m", prompt: "p", seed: 0, stream: true, stream_options: {include_usage: true}}, "a request");

  // --- Thoughts
  const {splitThinking} = await load("thinking.js");
  const split = (...one) => { const {thinking, answer, isThinking} = splitThinking(...one); return [thinking, answer, isThinking]; };
  same(split("<think>\na\n</think>\n\nb"), ["a", "b", false], "thoughts and an answer");
  same(split("<think>a</thi"), ["a", "", true], "half of a mark");
  same([split("<thi"), split(" <think>")], [["", "", true], ["", "", true]], "the beginning of a mark");
  same(split("a\n</think>\n\nb"), ["a", "b", false], "a mark that the template began");
  same(split("The mark </think> ends it"), ["", "The mark </think> ends it", false], "a mark within a line");
  same([split("", "r"), split("\n\nb", "r")], [["r", "", true], ["r", "b", false]], "thoughts that the server tells apart");
  same(split("a < b"), ["", "a < b", false], "no thoughts");

  // --- The tree
  const tree = await load("tree.js"), {addNode, addVersion, messagesTo, pathOf, promptTo, removeNode, switchVersion, versionsOf} = tree;
  const begin = (more = {}) => tree.newConversation({id: "c", now: 5, ...more});
  const shown = (one) => pathOf(one).map((node) => node.text).join(" ");
  const talk = begin({system: "be brief"});
  const q1 = addNode(talk, 0, "user", "q1"), a1 = addNode(talk, q1.id, "assistant", "<think>t</think>a1"), q2 = addNode(talk, a1.id, "user", "q2");
  addNode(talk, q2.id, "assistant", "a2");
  same(messagesTo(talk, q2), [{role: "system", content: "be brief"}, {role: "user", content: "q1"}, {role: "assistant", content: "a1"}, {role: "user", content: "q2"}], "messages");
  const q2b = addVersion(talk, q2, "q2b");
  addNode(talk, q2b.id, "assistant", "a2b");
  same(shown(talk), "q1 <think>t</think>a1 q2b a2b", "an edited message");
  same(versionsOf(talk, q2).map((node) => node.text), ["q2", "q2b"], "versions");
  switchVersion(talk, q2b, -1);
  same(shown(talk), "q1 <think>t</think>a1 q2 a2", "the earlier version, with what followed it");
  same(switchVersion(talk, q2, -1), q2, "there is none before the first");
  const q1b = addVersion(talk, q1, "q1b");
  same([shown(talk), messagesTo(talk, q1b).length], ["q1b", 2], "another beginning");
  removeNode(talk, q1b);
  same(shown(talk), "q1 <think>t</think>a1 q2 a2", "what is removed gives way to another version");
  removeNode(talk, q1);
  same([talk.nodes.length, talk.chosen, shown(talk)], [0, 0, ""], "with what followed it");
  same(addNode(talk, 0, "user", "again").id > q2b.id, true, "no number is used twice");
  const story = begin({mode: "text", system: "unused"});
  addNode(story, 0, "user", "Once ");
  same(promptTo(story, addNode(story, 1, "assistant", "upon\n")), "Once upon\n", "a text is sent as it stands");
  same([tree.titleOf("  a\tb\nc"), [...tree.titleOf("🏝".repeat(80))].length, tree.titleOf("")], ["a b", 60, ""], "titles");
  same([tree.hasWords(story, ["once", "upon"]), tree.hasWords(story, ["never"])], [true, false], "search");

  // --- Files
  const {exportText, importText, cleanConversation} = await load("files.js");
  const kept = begin({settings: {seed: 3}, model: "m"});
  const k1 = addNode(kept, 0, "user", "x");
  addNode(kept, k1.id, "assistant", "y", {model: "m", finish: "stop", tokens: 3, first_ms: 1, ms: 5});
  addVersion(kept, k1, "z");
  switchVersion(kept, kept.nodes[2], -1);
  same(importText(exportText([kept])), [kept], "a file leads back");
  refuses(() => importText("{"), "no JSON", "no JSON"), refuses(() => importText("[]"), "not exported", "another file");
  refuses(() => importText('{"format":"atoll-chat","version":2,"conversations":[]}'), "newer", "a later version");
  const damaged = (change, words) => refuses(() => { const copy = structuredClone(kept); change(copy); importText(exportText([copy])); }, words, words);
  damaged((one) => { one.nodes[1].parent = 2; }, "follows one that is not there");
  damaged((one) => { one.nodes[0].parent = 3; }, "follows one that is not there");
  damaged((one) => { one.nodes[1].id = 1; }, "two messages have the number 1");
  damaged((one) => { one.nodes[1].role = "system"; }, "of nobody");
  damaged((one) => { one.nodes[1].text = 5; }, "has no text");
  damaged((one) => { one.nodes = null; }, "has no messages");
  const odd = cleanConversation({...kept, chosen: 2, evil: 1, settings: {temperature: 50}, nodes: kept.nodes.map((node) => ({...node, evil: 1, tokens: "many"}))});
  same([odd.chosen, odd.evil, odd.settings, odd.nodes.some((node) => "evil" in node || typeof node.tokens === "string")], [3, undefined, {}, false], "what makes no sense is left out");

  // --- Errors
  const {ApiError, Unreached, messageOf, plainWords, waitOf} = await load("errors.js");
  same([messageOf('{"error":{"message":"m"}}'), messageOf('{"error":"e"}'), messageOf("line\n"), messageOf("<!doctype html>x"), messageOf("{}"), messageOf("null")], ["m", "e", "line", "", "", ""], "the server's words");
  same([plainWords(new ApiError(401, "no")), plainWords(new ApiError(418, "")), plainWords(new Unreached()).includes("not reached")], ["The server asks for an API key: no", "The server answered with 418.", true], "plain words");
  same([waitOf(new ApiError(429, "", "3"), 1), waitOf(new ApiError(429, "", null), 3), waitOf(new ApiError(503, "", "2"), 1), waitOf(new ApiError(503, ""), 1), waitOf(new ApiError(500, "", "1"), 1), waitOf(new ApiError(429, "", "3600"), 1), waitOf(new ApiError(429, "", "1"), 9)], [3, 8, 2, null, null, null, null], "how long is waited");
  same(waitOf(new ApiError(429, "", "Wed, 21 Oct 2015 07:28:10 GMT"), 1, Date.parse("Wed, 21 Oct 2015 07:28:00 GMT")), 10, "a date");

  // --- Numbers
  const {contextOf, formatSeconds, speedOf, statsOf} = await load("numbers.js");
  same([formatSeconds(12.4), formatSeconds(59900), formatSeconds(61000)], ["12 ms", "59.9 s", "1:01 min"], "times");
  same([speedOf({tokens: 11, first_ms: 500, ms: 1500}), speedOf({tokens: 1, first_ms: 5, ms: 9}), speedOf({})], [10, null, null], "tokens a second");
  same(statsOf({model: "m", tokens: 1200, first_ms: 250, ms: 12250}), "m · 1,200 tokens · 100 tokens/s · first after 250 ms", "numbers of an answer");
  const node = {role: "assistant", prompt_tokens: 30, tokens: 10};
  same([contextOf([node], 80).text, contextOf([node], 0).text, contextOf([], 80), contextOf([node, {role: "user"}], 80).part], ["40 of 80 tokens", "40 tokens", null, .5], "the context");
  return wrong;
})
