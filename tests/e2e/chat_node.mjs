// Runs what the chat page computes, in Node: node tests/e2e/chat_node.mjs. Prints what is wrong; exits with 1 where something is.

import {readFileSync} from "node:fs";

const load = (name) => import(new URL(`../../src/atoll/serve/page/${name}`, import.meta.url));
for (const name of ["chat_markdown.js", "chat_functions.js", "chat_answers.js"]) {
  const check = (0, eval)(readFileSync(new URL(name, import.meta.url), "utf8"));
  for (const line of await check(load)) {
    console.log(`${name}: ${line}`);
    process.exitCode = 1;
  }
}
