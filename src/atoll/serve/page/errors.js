// What went wrong, in plain words, and whether to ask again. Nothing here touches the document.

export class ApiError extends Error {
  constructor(status, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;  // the server's Retry-After, as it came
  }
}

// There was no answer at all.
export class Unreached extends Error {}

// A server that is full says 429 or 503. So many seconds, at most, are waited by ourselves, and so often.
export const kMaxWait = 120, kMaxTries = 8;

// Seconds until the next try, number `tries` (from 1); null: no other try is made.
export function waitOf(error, tries, now = Date.now()) {
  if (!(error instanceof ApiError) || tries > kMaxTries) return null;
  if (error.status !== 429 && !(error.status === 503 && error.retryAfter !== null)) return null;
  const told = secondsOf(error.retryAfter, now);
  if (told !== null) return told <= kMaxWait ? told : null;
  return Math.min(2 ** tries, 30);
}

// Retry-After is a number of seconds or a date.
function secondsOf(field, now) {
  if (field === null || !field.trim()) return null;
  if (/^\s*\d+(\.\d+)?\s*$/.test(field)) return Math.max(Number(field), .1);
  const date = Date.parse(field);
  return Number.isNaN(date) ? null : Math.max((date - now) / 1000, .1);
}

// The server's own message from an answer that is no success: {"error": {"message": ...}}, or a line of text.
export function messageOf(body) {
  let text = body;
  try {
    const error = JSON.parse(body)?.error;
    text = typeof error === "string" ? error : error?.message ?? "";
  } catch { /* a line of text */ }
  text = String(text).trim();
  return /^<(!doctype|html)/i.test(text) ? "" : text.length > 500 ? text.slice(0, 500) + "…" : text;
}

const kWords = {
  400: "The server does not take this request", 401: "The server asks for an API key", 403: "The server does not allow this",
  404: "The server has no such model or address", 408: "The server waited too long for the request", 413: "The conversation is too long for the server",
  422: "The server does not take this request", 429: "The server is busy", 500: "The server failed", 502: "The server is not reached through its proxy",
  503: "The server cannot answer now", 504: "The server took too long",
};

export function plainWords(error) {
  if (error instanceof ApiError) {
    const words = kWords[error.status] ?? (error.status ? `The server answered with ${error.status}` : "The answer broke off");
    return error.message ? `${words}: ${error.message}` : words + ".";
  }
  if (error instanceof Unreached) return "The server is not reached. Is it running, and is this machine connected?";
  return error.message || "Something failed.";
}
