// What a model thought before its answer, told from the answer. Nothing here touches the document.

const kOpen = "<think>", kClose = "</think>";

// `text`: what the model wrote, which may still grow. `reasoning`: what the server has told apart already.
// Gives {thinking, answer, isThinking}; isThinking: the answer has not begun.
export function splitThinking(text, reasoning = "") {
  if (reasoning) return {thinking: reasoning.trim(), answer: text.trimStart(), isThinking: !text.trim()};
  const begin = text.trimStart();
  if (begin.startsWith(kOpen)) {
    const end = begin.indexOf(kClose);
    if (end < 0) return {thinking: withoutPart(begin.slice(kOpen.length), kClose).trim(), answer: "", isThinking: true};
    return {thinking: begin.slice(kOpen.length, end).trim(), answer: begin.slice(end + kClose.length).trimStart(), isThinking: false};
  }
  // Some chat templates write the opening mark themselves; the model then writes the closing one alone, on a line of its own.
  const alone = /^<\/think>[ \t]*$/m.exec(text);
  if (alone && !text.slice(0, alone.index).includes(kOpen)) {
    return {thinking: text.slice(0, alone.index).trim(), answer: text.slice(alone.index + kClose.length).trimStart(), isThinking: false};
  }
  // "<thi" may become the mark.
  if (begin && kOpen.startsWith(begin)) return {thinking: "", answer: "", isThinking: true};
  return {thinking: "", answer: text, isThinking: false};
}

// Without the beginning of a mark at the end, so that no half of it is seen for a moment.
function withoutPart(text, mark) {
  for (let length = Math.min(mark.length - 1, text.length); length > 0; --length) {
    if (text.endsWith(mark.slice(0, length))) return text.slice(0, -length);
  }
  return text;
}
