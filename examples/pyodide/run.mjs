// Run a Python program in Pyodide, with packages from wheels: see docs/pyodide.md.
//
//     npm ci
//     pip download --only-binary=:all: --no-deps --dest wheels attrs h11
//     pip wheel --no-deps --wheel-dir wheels path/to/sansmcp
//     node run.mjs wheels ../without_io.py
//     node run.mjs wheels fetch.py http://127.0.0.1:8000/mcp

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { loadPyodide } from "pyodide";

const [folder, program, url = ""] = process.argv.slice(2);
const pyodide = await loadPyodide({ env: { MCP_URL: url } });
for (const name of readdirSync(folder)) {
  pyodide.unpackArchive(new Uint8Array(readFileSync(join(folder, name))), "wheel");
}
await pyodide.runPythonAsync(readFileSync(program, "utf8"), { filename: program });
