// A conversation: a tree of messages. A message that is edited, or an answer that is asked for again, stands beside the earlier
// one as another version, with what follows it. Nothing here touches the document.
//   {id, title, isNamed, created, changed, mode: "chat" | "text", model, system, settings, next, chosen, nodes}
//   node: {id, parent, chosen, role: "user" | "assistant", text, ...}; `parent` and `chosen` are ids of nodes, or 0.
// `chosen` is the version that is shown of what follows. A parent's id is less than its children's, so there are no circles.

import {splitThinking} from "./thinking.js";

const kTitleLength = 60;

export function newConversation({id, now, mode = "chat", model = "", system = "", settings = {}}) {
  return {id, title: "", isNamed: false, created: now, changed: now, mode, model, system, settings: {...settings}, next: 1, chosen: 0, nodes: []};
}

export const nodeOf = (conversation, id) => conversation.nodes.find((node) => node.id === id) ?? null;

// Adds a message below `parent` (0: as the first) and shows it.
export function addNode(conversation, parent, role, text, more = {}) {
  const node = {id: conversation.next++, parent, chosen: 0, role, text, ...more};
  conversation.nodes.push(node);
  choose(conversation, node);
  if (role === "user" && parent === 0 && !conversation.isNamed) conversation.title = titleOf(text);
  return node;
}

// Another version of a message, below the same parent.
export const addVersion = (conversation, node, text, more = {}) => addNode(conversation, node.parent, node.role, text, more);

function choose(conversation, node) {
  (nodeOf(conversation, node.parent) ?? conversation).chosen = node.id;
}

// All versions of a message, in the order in which they came.
export const versionsOf = (conversation, node) => conversation.nodes.filter((other) => other.parent === node.parent);

// All versions of all messages, by what they follow.
export function byParent({nodes}) {
  const map = new Map();
  for (const node of nodes) map.has(node.parent) ? map.get(node.parent).push(node) : map.set(node.parent, [node]);
  return map;
}

// Shows the version that is `by` further on; what followed it comes with it.
export function switchVersion(conversation, node, by) {
  const versions = versionsOf(conversation, node), to = versions[versions.indexOf(node) + by];
  if (to) choose(conversation, to);
  return to ?? node;
}

// The messages that are shown, first to last.
export function pathOf(conversation) {
  const byNumber = new Map(conversation.nodes.map((node) => [node.id, node])), path = [];
  for (let node = byNumber.get(conversation.chosen); node; node = byNumber.get(node.chosen)) path.push(node);
  return path;
}

// The messages from the first to `node`, whatever is shown.
export function pathTo(conversation, node) {
  const path = [];
  for (let one = node; one; one = nodeOf(conversation, one.parent)) path.unshift(one);
  return path;
}

// Takes a version away with all that follows it; another version is shown, where there is one.
export function removeNode(conversation, node) {
  const versions = versionsOf(conversation, node), at = versions.indexOf(node), gone = new Set([node.id]);
  for (const one of conversation.nodes) if (gone.has(one.parent)) gone.add(one.id);
  (nodeOf(conversation, node.parent) ?? conversation).chosen = (versions[at + 1] ?? versions[at - 1])?.id ?? 0;
  conversation.nodes = conversation.nodes.filter((one) => !gone.has(one.id));
}

// What /v1/chat/completions is sent to answer `last`. Thoughts stay here: models are trained without earlier ones.
export function messagesTo(conversation, last) {
  const messages = pathTo(conversation, last).map(({role, text, reasoning}) =>
    ({role, content: role === "assistant" ? splitThinking(text, reasoning).answer : text})).filter((message) => message.content);
  return conversation.system.trim() ? [{role: "system", content: conversation.system}, ...messages] : messages;
}

// What /v1/completions is sent: the text as it stands.
export const promptTo = (conversation, last) => pathTo(conversation, last).map((node) => node.text).join("");

export function titleOf(text) {
  const line = text.trim().split("\n")[0].replace(/\s+/g, " ");
  const letters = [...line];
  return letters.length <= kTitleLength ? line : letters.slice(0, kTitleLength - 1).join("").trimEnd() + "…";
}

// Whether all words are in the title or in a message.
export function hasWords(conversation, words) {
  const text = [conversation.title, ...conversation.nodes.map((node) => node.text)].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}
