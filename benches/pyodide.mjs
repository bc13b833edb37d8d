// Runs a Python file in Pyodide, for comparison: node pyodide.mjs PYODIDE_DIRECTORY FILE
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [directory, file] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${directory}/pyodide.mjs`));
const pyodide = await loadPyodide({ indexURL: directory });
pyodide.runPython(readFileSync(file, "utf8"), { filename: file });
