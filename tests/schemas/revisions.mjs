// Prints the schemas of each revision as JSON Schema: {revision: {type name: schema}}.
//
// The client package contains the schemas of both eras in one bundle, and does not export the
// functions that make them. So a copy of the bundle, beside it, exports them.
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";

const require = createRequire(join(process.argv[2], "package.json"));
const folder = dirname(require.resolve("@modelcontextprotocol/client"));
const requireThere = createRequire(join(folder, "index.mjs"));
const z = require(requireThere.resolve("zod/v4"));

const builders = { "2025-11-25": "buildSchemas2025", "2026-07-28": "buildSchemas2026" };
const bundle = readdirSync(folder)
  .filter((name) => name.endsWith(".mjs"))
  .map((name) => readFileSync(join(folder, name), "utf8"))
  .find((text) => text.includes(`function ${builders["2026-07-28"]}()`));
const copy = join(folder, `schemas-${process.pid}.mjs`);
writeFileSync(copy, `${bundle}\nexport { ${Object.values(builders).join(", ")} };\n`);
let functions;
try {
  functions = await import(pathToFileURL(copy));
} finally {
  rmSync(copy);
}

const found = {};
for (const [revision, name] of Object.entries(builders)) {
  const registry = z.registry();
  for (const [key, schema] of Object.entries(functions[name]())) {
    if (key.endsWith("Schema") && schema?._zod && !registry.has(schema)) {
      registry.add(schema, { id: key.slice(0, -"Schema".length) });
    }
  }
  found[revision] = z.toJSONSchema(registry, { unrepresentable: "any", uri: (id) => id }).schemas;
}
process.stdout.write(JSON.stringify(found));
