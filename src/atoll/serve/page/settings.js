// Sampling settings of a conversation: what they are called, what values they take, and what the API is sent.
// A setting that is left empty is not sent: the server's own value counts. Nothing here touches the document.

export const kSettings = [
  {name: "temperature", label: "temperature", min: 0, max: 2, help: "0 takes the most likely token always; more makes answers more varied"},
  {name: "top_p", label: "top p", min: 0, max: 1, isAbove: true, help: "of the likeliest tokens, those that have this much of the probability together"},
  {name: "top_k", label: "top k", min: 0, max: 1e6, isWhole: true, help: "so many of the likeliest tokens; 0: all"},
  {name: "min_p", label: "min p", min: 0, max: 1, help: "no token that is less likely than this part of the likeliest one"},
  {name: "max_tokens", label: "max tokens", min: 1, max: 1e7, isWhole: true, help: "the answer ends after so many"},
  {name: "seed", label: "seed", min: 0, max: Number.MAX_SAFE_INTEGER, isWhole: true, help: "the same seed and text give the same answer"},
  {name: "repetition_penalty", label: "repetition penalty", min: 0, max: 10, isAbove: true, help: "above 1: what is there already becomes less likely"},
  {name: "presence_penalty", label: "presence penalty", min: -2, max: 2, help: "taken from each token that the answer has"},
  {name: "frequency_penalty", label: "frequency penalty", min: -2, max: 2, help: "taken as often as the answer has the token"},
];
export const kMaxStops = 16;

// The value of one setting from what was typed: {value} with a number or null for nothing, or {error}.
export function readSetting(setting, text) {
  const typed = String(text).trim().replace(",", ".");
  if (!typed) return {value: null};
  const value = Number(typed);
  const {label, min, max, isWhole, isAbove} = setting;
  if (!Number.isFinite(value)) return {error: `${label} is a number`};
  if (isWhole && !Number.isSafeInteger(value)) return {error: `${label} is a whole number`};
  if (value <= max && value >= min && !(isAbove && value === min)) return {value};
  const range = max >= 1e6 ? `${min} or more` : isAbove ? `above ${min}, and at most ${max}` : `from ${min} to ${max}`;
  return {error: `${label} is ${range}`};
}

// Stop strings, one a line; "\n", "\t" and "\\" stand for what they do in programs.
export function readStops(text) {
  const stops = text.split("\n").filter((line) => line).map((line) => line.replace(/\\(n|t|\\)/g, (_, c) => ({n: "\n", t: "\t", "\\": "\\"})[c]));
  return stops.length > kMaxStops ? {error: `there may be ${kMaxStops} stop strings, and these are ${stops.length}`} : {value: stops};
}

export const writeStops = (stops) => stops.map((stop) => stop.replace(/\\/g, "\\\\").replace(/\n/g, "\\n").replace(/\t/g, "\\t")).join("\n");

// The settings of an unknown value (a file, another version), without what makes no sense.
export function cleanSettings(value) {
  const clean = {};
  if (typeof value !== "object" || value === null) return clean;
  for (const setting of kSettings) {
    if (!Object.hasOwn(value, setting.name) || typeof value[setting.name] !== "number") continue;
    const read = readSetting(setting, value[setting.name]);
    if (!read.error && read.value !== null) clean[setting.name] = read.value;
  }
  const stop = Array.isArray(value.stop) ? value.stop.filter((one) => typeof one === "string" && one).slice(0, kMaxStops) : [];
  if (stop.length) clean.stop = stop;
  return clean;
}

// The body of a request. `input`: {messages} for a chat, {prompt} for a text that goes on.
export function requestOf(model, settings, input) {
  return {model, ...input, ...cleanSettings(settings), stream: true, stream_options: {include_usage: true}};
}
