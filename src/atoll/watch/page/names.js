// Short names of runs: "first/trials/0007/run" is trial 0007.

const kSayNothing = /^run(-\d+)?$/;  // what every trial calls its run

// As many of the last parts of each id as tell it from the others, and no fewer than say something. Map of id to name.
export function shortNames(ids) {
  const parts = new Map(ids.map((id) => {
    const all = id.split("/").filter((part) => part && part !== ".");
    // A trial has one run, whose name is no news.
    return [id, all.length > 1 && all.at(-1) === "run" ? all.slice(0, -1) : all.length ? all : [id]];
  }));
  const name = (id, count) => parts.get(id).slice(-count).join("/");
  const counts = new Map(ids.map((id) => [id, kSayNothing.test(name(id, 1)) ? 2 : 1]));
  for (let isDone = false; !isDone;) {
    isDone = true;
    const uses = new Map();
    for (const id of ids) { const text = name(id, counts.get(id)); uses.set(text, [...uses.get(text) ?? [], id]); }
    for (const same of uses.values()) {
      if (same.length < 2) continue;
      for (const id of same) if (counts.get(id) < parts.get(id).length) { counts.set(id, counts.get(id) + 1); isDone = false; }
    }
  }
  return new Map(ids.map((id) => [id, name(id, counts.get(id))]));
}
