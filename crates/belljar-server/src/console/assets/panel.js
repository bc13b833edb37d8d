// The panel of a result in a client with MCP Apps: the code, its output, its files and its calls.

import { ansi, plainText, visible } from "./ansi.js";
import { callTree } from "./calls.js";
import { fill, h } from "./dom.js";
import { embedded } from "./embedded.js";
import { highlighted } from "./highlight.js";
import { Host } from "./host.js";
import { outputs } from "./outputs.js";
import { questionList } from "./questions.js";
import { shownResult } from "./results.js";
import { fileTable } from "./saved-files.js";

const NAMES = { running: "running", ok: "done", error: "error", "timed-out": "timed out", died: "interpreter ended", waiting: "waits", cancelled: "cancelled" };
// Variables of the host's style that the panel uses, and those of its own style sheet.
const STYLES = {
  "--color-background-primary": "--ground", "--color-background-secondary": "--sunken", "--color-text-primary": "--text",
  "--color-text-secondary": "--soft", "--color-border-primary": "--line", "--font-mono": "--mono",
};
const app = document.getElementById("app");
const host = new Host(receive);
let code = "";
let shown = { state: "running" };

function receive(method, params) {
  if (method === "ui/notifications/tool-input" || method === "ui/notifications/tool-input-partial") {
    const given = params.arguments ?? {};
    code = String(given.code ?? given.python_code ?? "");
  } else if (method === "ui/notifications/tool-result") shown = shownResult(params);
  else if (method === "ui/notifications/tool-cancelled") shown = { state: "cancelled" };
  else if (method === "ui/notifications/host-context-changed") return adopt(params);
  else return;
  render();
}

/** Takes the host's theme and its colours. */
function adopt(context) {
  const root = document.documentElement;
  if (context.theme === "light" || context.theme === "dark") root.dataset.theme = context.theme;
  for (const [name, own] of Object.entries(STYLES)) {
    const value = context.styles?.variables?.[name];
    if (typeof value === "string" && !/url|image/i.test(value)) root.style.setProperty(own, value);
  }
}

function render() {
  const { state, error } = shown;
  fill(app, h("article", { class: "result-panel", "data-state": state, "aria-label": "Result of the code" },
    h("header", { class: "cell-head" },
      code ? h("details", { class: "source" }, h("summary", {}, h("span", { class: "first mono" }, visible(firstLine(code)))), h("pre", { class: "code", tabindex: "0", "aria-label": "Code" }, highlighted(code))) : h("span", { class: "grow" }),
      h("span", { class: `badge ${state}`, role: "status" }, NAMES[state] ?? "")),
    shown.installed?.length ? h("p", { class: "hint" }, `Installed ${plainText(shown.installed.join(", "))}`) : null,
    shown.omitted ? h("p", { class: "hint" }, `${shown.omitted.toLocaleString("en")} bytes or displays of the output are left out`) : null,
    h("div", { class: "outputs", "aria-live": "polite" }, outputs(shown.outputs ?? [], (_, html) => embedded(html))),
    error ? h("pre", { class: "text stderr traceback" }, ansi(error.traceback.length ? error.traceback.join("\n") : [error.name, error.message].filter(Boolean).join(": "))) : null,
    shown.questions?.length ? questionList(shown, host, take) : null,
    shown.files?.length ? fileTable(shown.files, host) : null,
    shown.calls?.length || shown.connections?.length || shown.omitted_calls ? callTree(shown, false) : null));
}

/** Shows the result of a run that goes on. */
function take(result) {
  shown = shownResult(result);
  render();
}

function firstLine(text) {
  const lines = text.split("\n").filter((line) => line.trim());
  return `${(lines[0] ?? "").slice(0, 160)}${lines.length > 1 ? " …" : ""}`;
}

/** Reports the size of the content whenever it changes, so that the host gives the panel room. */
function reportSize() {
  let last = "";
  new ResizeObserver(() => {
    const [width, height] = [document.documentElement.clientWidth, Math.ceil(app.getBoundingClientRect().height)];
    if (last === `${width} ${height}`) return;
    last = `${width} ${height}`;
    host.notify("ui/notifications/size-changed", { width, height });
  }).observe(app);
}

render();
host.open("belljar", document.body.dataset.version).then((context) => {
  adopt(context);
  render();
  reportSize();
}).catch((error) => fill(app, h("p", { class: "problem" }, plainText(error.message))));
