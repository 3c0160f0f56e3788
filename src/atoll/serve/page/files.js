// Conversations as a file, and what a file may bring. Nothing here touches the document.

import {cleanSettings} from "./settings.js";
import {titleOf} from "./tree.js";

const kFormat = "atoll-chat";
const kTexts = ["reasoning", "model", "finish", "error"];
const kNumbers = ["time", "prompt_tokens", "tokens", "first_ms", "ms"];

export const exportText = (conversations) => JSON.stringify({format: kFormat, version: 1, conversations}, null, 1) + "\n";

// The conversations of a file, each checked; throws an Error with words for the user.
export function importText(text) {
  let file = null;
  try { file = JSON.parse(text); } catch { throw new Error("This file is no JSON."); }
  if (file?.format !== kFormat || !Array.isArray(file.conversations)) throw new Error("This file was not exported by this page.");
  if (file.version !== 1) throw new Error("This file is of a newer version of this page.");
  return file.conversations.map((one, i) => {
    try { return cleanConversation(one); } catch (error) { throw new Error(`Conversation ${i + 1} of the file is damaged: ${error.message}.`); }
  });
}

const text = (value, otherwise = "") => typeof value === "string" ? value : otherwise;
const number = (value, otherwise) => typeof value === "number" && Number.isFinite(value) ? value : otherwise;
const isId = (value) => Number.isSafeInteger(value) && value > 0;

// A new object that has what a conversation has and nothing else; throws an Error.
export function cleanConversation(value) {
  if (typeof value !== "object" || value === null || !Array.isArray(value.nodes)) throw new Error("it has no messages");
  if (typeof value.id !== "string" || !value.id) throw new Error("it has no id");
  const nodes = value.nodes.map(cleanNode).sort((a, b) => a.id - b.id), byNumber = new Map([[0, null]]);
  // What a message follows has a lower number, so there are no circles.
  for (const node of nodes) {
    if (byNumber.has(node.id)) throw new Error(`two messages have the number ${node.id}`);
    if (!byNumber.has(node.parent)) throw new Error(`message ${node.id} follows one that is not there`);
    byNumber.set(node.id, node);
  }
  // A version that is not there is not shown; the last one is.
  const last = new Map(nodes.map((node) => [node.parent, node.id]));
  const follows = (id, parent) => id && byNumber.get(id)?.parent === parent ? id : last.get(parent) ?? 0;
  for (const node of nodes) node.chosen = follows(node.chosen, node.id);
  const created = number(value.created, 0);
  return {
    id: value.id, title: titleOf(text(value.title)), isNamed: value.isNamed === true, created, changed: number(value.changed, created),
    mode: value.mode === "text" ? "text" : "chat", model: text(value.model), system: text(value.system), settings: cleanSettings(value.settings),
    next: (nodes.at(-1)?.id ?? 0) + 1, chosen: follows(number(value.chosen, 0), 0), nodes,
  };
}

function cleanNode(value) {
  if (typeof value !== "object" || value === null || !isId(value.id)) throw new Error("a message has no number");
  if (value.role !== "user" && value.role !== "assistant") throw new Error(`message ${value.id} is of nobody`);
  if (typeof value.text !== "string") throw new Error(`message ${value.id} has no text`);
  const parent = value.parent === 0 || isId(value.parent) ? value.parent : -1;
  const node = {id: value.id, parent, chosen: isId(value.chosen) ? value.chosen : 0, role: value.role, text: value.text};
  for (const name of kTexts) if (typeof value[name] === "string") node[name] = value[name];
  for (const name of kNumbers) if (number(value[name], null) !== null) node[name] = value[name];
  return node;
}
