// Tests of the console's modules that need no page, for node's test runner. They are run in a copy of the modules' folder.

import assert from "node:assert/strict";
import test from "node:test";

import { plainText } from "./ansi.js";
import { ago, bytes, duration, plural } from "./format.js";
import { shownResult } from "./results.js";
import { isNumbers, parseTable, sortedRows } from "./table.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const UNITS = { ms: 1, s: 1000, min: MINUTE, h: HOUR, d: DAY };
const NEXT = { ms: 1000, s: 60, min: 60, h: 24, d: Infinity };

/** Returns the parts of a duration as numbers and units. */
function parts(shown) {
  return [...shown.matchAll(/([\d.]+) ([a-z]+)/g)].map(([, value, unit]) => [Number(value), unit]);
}

test("durations have no part that fills the next unit", () => {
  for (const whole of [1000, 10_000, MINUTE, 2 * MINUTE, HOUR, 7 * HOUR, DAY, 3 * DAY]) {
    for (let off = -1500; off <= 1500; off += 0.5) {
      const [time, shown] = [whole + off, duration(whole + off)];
      if (time < 1) continue;
      for (const [value, unit] of parts(shown)) assert.ok(value < NEXT[unit], `${time} ms: ${shown}`);
    }
  }
});

test("durations are as long as they are shown", () => {
  for (let time = 1; time < 40 * DAY; time = time * 1.001 + 0.25) {
    const shown = duration(time);
    const sum = parts(shown).reduce((total, [value, unit]) => total + value * UNITS[unit], 0);
    const unit = parts(shown).at(-1)[1];
    const exact = unit === "s" && shown.includes(".") ? 100 : UNITS[unit];
    // Days are not rounded up.
    assert.ok(Math.abs(sum - time) <= (unit === "d" ? DAY : exact / 2) + 1e-6, `${time} ms: ${shown}`);
  }
});

test("durations are short", () => {
  const shown = [[0, "<1 ms"], [1, "1 ms"], [999.6, "1.0 s"], [9960, "10 s"], [59_600, "1 min 0 s"], [119_700, "2 min 0 s"],
    [90_000, "1 min 30 s"], [3_599_700, "1 h 0 min"], [5_400_000, "1 h 30 min"], [DAY - 1000, "1 d"], [2.9 * DAY, "2 d"]];
  for (const [time, text] of shown) assert.equal(duration(time), text);
  for (const none of [null, undefined, NaN, Infinity]) assert.equal(duration(none), "");
});

test("times since are in the greatest unit that they fill", (context) => {
  const now = Date.now();
  context.mock.method(Date, "now", () => now);
  const shown = [[-5000, "now"], [4000, "now"], [5000, "5s"], [59_400, "59s"], [59_600, "1m"], [59.4 * MINUTE, "59m"],
    [59.6 * MINUTE, "1h"], [23.4 * HOUR, "23h"], [23.6 * HOUR, "1d"], [3 * DAY, "3d"]];
  for (const [time, text] of shown) assert.equal(ago(now - time), text, `${time} ms`);
  assert.equal(ago(null), "");
});

test("sizes have no number that fills the next unit", () => {
  const shown = [[0, "0 B"], [1023, "1023 B"], [1024, "1.0 KB"], [10_188, "9.9 KB"], [10_200, "10 KB"], [(1 << 20) - 1, "1.0 MB"],
    [52 << 20, "52 MB"], [2 ** 30 - 1, "1.0 GB"], [2 ** 40 - 1, "1.0 TB"], [2 ** 50, "1024 TB"]];
  for (const [count, text] of shown) assert.equal(bytes(count), text);
  for (const none of [null, undefined]) assert.equal(bytes(none), "");
});

test("nouns are plural except for one", () => {
  assert.deepEqual([0, 1, 2].map((count) => plural(count, "cell")), ["0 cells", "1 cell", "2 cells"]);
});

/** Returns a column of rows in an order. */
function column(values, direction) {
  return sortedRows(values.map((value) => [value]), 0, direction).map(([value]) => value);
}

test("numbers are sorted by value, and blank cells are last in both directions", () => {
  const values = ["10", "nan", "9.5", "", "1,000", "−3", "2e2", "…", "50%"];
  assert.deepEqual(column(values, 1), ["−3", "9.5", "10", "50%", "2e2", "1,000", "nan", "", "…"]);
  assert.deepEqual(column(values, -1), ["1,000", "2e2", "50%", "10", "9.5", "−3", "nan", "", "…"]);
  assert.deepEqual(column(values, 0), values);
});

test("text is sorted with the numbers in it, and rows that are equal keep their order", () => {
  const values = ["b10", "a", "b9", "None", "B1"];
  assert.deepEqual(column(values, 1), ["a", "B1", "b9", "b10", "None"]);
  assert.deepEqual(column(values, -1), ["b10", "b9", "B1", "a", "None"]);
  const rows = [["x", "1"], ["y", "0"], ["x", "2"], ["y", "3"]];
  for (const direction of [1, -1]) {
    const sorted = sortedRows(rows, 0, direction);
    assert.deepEqual(sorted.map(([name, at]) => name + at).sort(), ["x1", "x2", "y0", "y3"]);
    for (const name of ["x", "y"]) assert.deepEqual(sorted.filter((row) => row[0] === name), rows.filter((row) => row[0] === name));
  }
  assert.deepEqual(rows[0], ["x", "1"], "the rows themselves are not moved");
});

test("a column has numbers if each of its cells is one or blank", () => {
  const { rows } = parseTable("<table><tr><td>1<td>a<td>NaN<tr><td>-2.5e3<td>2<td></table>");
  assert.deepEqual([0, 1, 2].map((at) => isNumbers(rows, at)), [true, false, true]);
});

test("text has no escapes, and what a carriage return overwrites is left out", () => {
  assert.equal(plainText("\x1b[31mred\x1b[0m \x1b]8;;http://example\x07link\x1b]8;;\x07"), "red link");
  assert.equal(plainText("10 %\r100 %\r\nend\x00\x07"), "100 %\nend");
});

test("results of all shapes become one list of outputs", () => {
  const outputs = [{ type: "stream", name: "stderr", text: "x" }, null, { type: "result", image: 0, data: { "text/plain": "y" } }];
  const content = [{ type: "image", data: "iVBORw0KGgo=", mimeType: "image/png" }];
  const shown = shownResult({ _meta: { "io.github.belljar/panel": { state: "unknown", outputs } }, content });
  assert.equal(shown.state, "error");
  assert.deepEqual(shown.outputs, [{ type: "stream", name: "stderr", text: "x" }, { type: "result", data: { "text/plain": "y", "image/png": "iVBORw0KGgo=" } }]);
  const text = shownResult({ content: [{ type: "text", text: "{\"output\": [\"a\"], \"error\": \"wrong\", \"success\": false}" }] });
  assert.deepEqual([text.state, text.error.message, text.outputs[0].text], ["error", "wrong", "a"]);
  assert.deepEqual(shownResult({ content: [{ type: "text", text: "{not JSON" }] }).outputs.map((output) => output.text), ["{not JSON"]);
  assert.deepEqual(shownResult({}).outputs, []);
});
