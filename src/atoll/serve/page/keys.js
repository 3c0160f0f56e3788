// Small things that the browser keeps: the API key, defaults of new conversations, the model that was chosen last.
// A browser may refuse to keep anything; then they last as long as the page.

const kKey = "atoll-chat-key", kDefaults = "atoll-chat-defaults", kModel = "atoll-chat-model";
const memory = new Map();

function read(storage, name) {
  try { return globalThis[storage].getItem(name); } catch { return memory.get(storage + name) ?? null; }
}

function write(storage, name, value) {
  try {
    if (value === null) globalThis[storage].removeItem(name);
    else globalThis[storage].setItem(name, value);
  } catch { memory.set(storage + name, value); }
}

// For this tab and until it is closed, unless the user has said "remember".
export const readKey = () => read("sessionStorage", kKey) ?? read("localStorage", kKey) ?? "";
export const isKeyRemembered = () => read("localStorage", kKey) !== null;
export function writeKey(key, isRemembered) {
  write("sessionStorage", kKey, key || null);
  write("localStorage", kKey, key && isRemembered ? key : null);
}

export const readModel = () => read("localStorage", kModel) ?? "";
export const writeModel = (id) => write("localStorage", kModel, id);

// {system, settings} of new conversations; `clean` makes settings of what was read.
export function readDefaults(clean) {
  try {
    const value = JSON.parse(read("localStorage", kDefaults) ?? "{}");
    return {system: typeof value.system === "string" ? value.system : "", settings: clean(value.settings)};
  } catch { return {system: "", settings: {}}; }
}
export const writeDefaults = ({system, settings}) => write("localStorage", kDefaults, JSON.stringify({system, settings}));
