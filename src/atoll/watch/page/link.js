// What a page shows as the part of its address behind "#", so that a link shows it to somebody else:
// charts?run=runs/a&run=runs/b&metric=loss&axis=tokens&smooth=0.9&log=y&from=100&to=200&mean=1&marks=0

const kAxisNames = ["step", "tokens", "wall", "active", "clock"];

const finite = (text) => text !== null && text.trim() !== "" && isFinite(text) ? Number(text) : null;

// {view}, and where the link has more, {runs, filter, axis, weight, logX, logY, range, mean, marks}; what makes no sense is left out.
export function readLink(hash) {
  const [view, query] = hash.replace(/^#/, "").split(/\?(.*)/s);
  if (!query) return {view};
  const has = new URLSearchParams(query), log = has.get("log") ?? "", axis = has.get("axis");
  const from = finite(has.get("from")), to = finite(has.get("to")), weight = finite(has.get("smooth")) ?? 0;
  return {view, runs: has.getAll("run"), filter: has.get("metric") ?? "", axis: kAxisNames.includes(axis) ? axis : "step",
    weight: weight >= 0 && weight < 1 ? weight : 0, logX: log.includes("x"), logY: log.includes("y"),
    range: from !== null && to !== null && from < to ? [from, to] : null, mean: has.get("mean") === "1", marks: has.get("marks") !== "0"};
}

// The other way round; what is as it is without a link is left out.
export function writeLink(shown) {
  const query = new URLSearchParams();
  for (const id of shown.runs ?? []) query.append("run", id);
  if (shown.filter) query.set("metric", shown.filter);
  if (shown.axis && shown.axis !== "step") query.set("axis", shown.axis);
  if (shown.weight) query.set("smooth", shown.weight);
  if (shown.logX || shown.logY) query.set("log", (shown.logX ? "x" : "") + (shown.logY ? "y" : ""));
  if (shown.range) { query.set("from", shown.range[0]); query.set("to", shown.range[1]); }
  if (shown.mean) query.set("mean", 1);
  if (shown.marks === false) query.set("marks", 0);
  const text = query.toString().replaceAll("%2F", "/");
  return text ? `${shown.view}?${text}` : shown.view;
}
