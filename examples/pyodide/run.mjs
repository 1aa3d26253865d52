// Run a Python program in Pyodide, with packages from wheels: see docs/pyodide.md.
//
//     npm ci
//     pip download --only-binary=:all: --no-deps --dest wheels attrs h11
//     pip wheel --no-deps --wheel-dir wheels path/to/sansmcp
//     node run.mjs wheels ../without_io.py

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { loadPyodide } from "pyodide";

const [folder, program] = process.argv.slice(2);
const pyodide = await loadPyodide();
for (const name of readdirSync(folder)) {
  pyodide.unpackArchive(new Uint8Array(readFileSync(join(folder, name))), "wheel");
}
pyodide.runPython(readFileSync(program, "utf8"), { filename: program });
