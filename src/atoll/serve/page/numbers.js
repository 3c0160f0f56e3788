// How fast an answer came and how full the context is, as people read them. Nothing here touches the document.

export const formatCount = (n) => n.toLocaleString("en");

export function formatSeconds(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s.toFixed(1)} s`;
  return `${Math.floor(Math.round(s) / 60)}:${String(Math.round(s) % 60).padStart(2, "0")} min`;
}

// Tokens a second, without the first one: its time is that of reading the prompt. null where it says nothing.
export function speedOf({tokens, first_ms, ms}) {
  return tokens > 1 && ms > first_ms ? (tokens - 1) / ((ms - first_ms) / 1000) : null;
}

const formatSpeed = (v) => `${v < 10 ? v.toFixed(1) : formatCount(Math.round(v))} tokens/s`;

// The line below an answer; what is not known is left out.
export const statsOf = (node) => [node.model, ratesOf(node)].filter(Boolean).join(" · ");

// The same without the model.
export function ratesOf(node) {
  const parts = [], speed = speedOf(node);
  if (node.tokens !== undefined) parts.push(`${formatCount(node.tokens)} ${node.tokens === 1 ? "token" : "tokens"}`);
  if (speed !== null) parts.push(formatSpeed(speed));
  if (node.first_ms !== undefined) parts.push(`first after ${formatSeconds(node.first_ms)}`);
  return parts.join(" · ");
}

// The context as the last answer of a path left it: {used, size, part, text}, or null where nothing is known.
export function contextOf(path, size) {
  const last = path.findLast((node) => node.role === "assistant" && node.prompt_tokens !== undefined);
  if (!last) return null;
  const used = last.prompt_tokens + (last.tokens ?? 0);
  return size > 0 ? {used, size, part: Math.min(used / size, 1), text: `${formatCount(used)} of ${formatCount(size)} tokens`}
                  : {used, size: 0, part: 0, text: `${formatCount(used)} tokens`};
}
