// Runs the untranslated modules of exceptions_differential in V8 and prints what happened, one line per call.
// Usage: node v8.mjs DIRECTORY COUNT FUNCTIONS FUEL ARGUMENT...
// The directory holds 0.wasm, 1.wasm, ... See main.rs for the protocol.
import { readFileSync } from "node:fs";
import { join } from "node:path";

const [directory, ...numbers] = process.argv.slice(2);
const [count, functions, fuel, ...callArguments] = numbers.map(Number);

const imported = new WebAssembly.Tag({ parameters: ["i32"] });

function outcome(exports, call) {
  const tags = [
    ["imported", imported, 1],
    ["empty", exports.empty, 0],
    ["pair", exports.pair, 2],
  ];
  try {
    return `returned ${call()}`;
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) return "trapped";
    if (!(error instanceof WebAssembly.Exception)) return `failed: ${error}`;
    for (const [name, tag, arity] of tags) {
      if (!error.is(tag)) continue;
      const values = Array.from({ length: arity }, (_, index) => ` ${error.getArg(tag, index)}`);
      return `threw ${name}${values.join("")}`;
    }
    return "threw an unknown tag";
  }
}

const lines = [];
for (let module = 0; module < count; module++) {
  const bytes = readFileSync(join(directory, `${module}.wasm`));
  const instance = new WebAssembly.Instance(new WebAssembly.Module(bytes), { env: { imported } });
  const { exports } = instance;
  for (let f = 0; f < functions; f++) {
    for (const argument of callArguments) {
      exports.hash.value = 0;
      exports.fuel.value = fuel;
      const what = outcome(exports, () => exports[`f${f}`](argument));
      lines.push(`${module} f${f}(${argument}) ${what}; hash ${exports.hash.value}, fuel ${exports.fuel.value}`);
    }
  }
}
process.stdout.write(lines.join("\n") + "\n");
