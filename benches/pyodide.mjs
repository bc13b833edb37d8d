// Runs a Python file in Pyodide, for comparison: node pyodide.mjs PYODIDE_DIRECTORY FILE [WHEEL|PACKAGE]
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [directory, file, wheelOrPackage] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${directory}/pyodide.mjs`));
const pyodide = await loadPyodide({ indexURL: directory });
if (wheelOrPackage?.endsWith(".whl")) {
  pyodide.unpackArchive(new Uint8Array(readFileSync(wheelOrPackage)).buffer, "whl");
} else if (wheelOrPackage) {
  await pyodide.loadPackage(wheelOrPackage);
}
pyodide.runPython(readFileSync(file, "utf8"), { filename: file });
