// A cell: its code, its output as it comes, its calls and its questions.

import { plainText, visible, ansi } from "./ansi.js";
import { get, post } from "./api.js";
import { callTree } from "./calls.js";
import { decisionButtons, delayed, questionText } from "./decisions.js";
import { append, button, h } from "./dom.js";
import { bytes, clock, duration } from "./format.js";
import { framed } from "./frames.js";
import { highlighted } from "./highlight.js";
import { display, stream } from "./outputs.js";

const NAMES = { queued: "queued", running: "running", waiting: "waiting", ok: "done", error: "error", "timed-out": "timed out", died: "interpreter ended", "not-run": "not run" };
const MAX_LIVE_NODES = 2000;
// The time in milliseconds between two requests of a cell, at least: updates of displays may come at any rate.
const PAUSE = 100;
const ENCODER = new TextEncoder();

export class BelljarCell extends HTMLElement {
  /** Sets the cell of the session at `path` that the element is for. */
  open(path, number) {
    this.path = `${path}/cells/${number}`;
    this.number = number;
    this.seen = 0;
    // The displays that are shown, each with the value that it shows, by their positions in the output.
    this.displays = [];
    this.body = h("div", { class: "outputs" });
    this.content = h("div", {}, this.body);
    // The elements of the open questions. They stay while the rest is drawn again: an answer may be half typed.
    this.asked = new Map();
    this.asking = h("div");
    append(this, [this.content, this.asking]);
    this.id = `cell-${number}`;
    this.setAttribute("role", "article");
    this.setAttribute("aria-label", `Cell ${number}`);
  }

  /** Shows a state of the cell. */
  show(cell) {
    this.cell = cell;
    this.render();
  }

  get isOver() {
    return this.cell && (this.cell.ended !== null || this.cell.is_stored);
  }

  /** Requests the cell again, once for events that arrive together or soon after a request. */
  refresh() {
    this.again = Boolean(this.pending);
    if (this.pending) return;
    const begin = performance.now();
    this.pending = get(this.path).then((cell) => {
      this.show(cell);
      // Output that has arrived since the answer was made is in the next one.
      this.again ||= cell.ended === null && cell.written < this.seen;
      this.dispatchEvent(new CustomEvent("changed", { bubbles: true }));
    }).catch(() => {}).then(() => {
      // A cell that takes long to show leaves the page as much time for others.
      const rest = Math.max(PAUSE, performance.now() - begin);
      return new Promise((resolve) => setTimeout(resolve, rest));
    }).finally(() => {
      this.pending = null;
      if (this.again) this.refresh();
    });
  }

  /** Adds output that has just been written, up to the byte `end` of all output. */
  write(name, text, end) {
    this.seen = Math.max(this.seen, end);
    if (!this.cell || this.isOver || end <= this.cell.written) return;
    if (this.cell.written + ENCODER.encode(text).length !== end) return this.refresh();
    this.cell.written = end;
    const last = this.body.lastElementChild;
    if (last?.dataset.stream === name && last.childNodes.length < MAX_LIVE_NODES) last.append(...ansi(text));
    else this.body.append(stream(name, text));
  }

  render() {
    const { cell } = this;
    this.dataset.state = cell.state;
    this.body.setAttribute("aria-live", this.isOver ? "off" : "polite");
    this.time = h("span", { class: "when", title: "Time since the code began, with its waits" });
    const before = [
      h("header", { class: "cell-head" },
        h("span", { class: "number" }, `[${cell.number}]`),
        h("span", { class: `badge ${cell.state}` }, NAMES[cell.state] ?? cell.state),
        cell.by_operator ? h("span", { class: "badge plain" }, "operator") : null,
        h("span", { class: "grow" }),
        cell.memory ? h("span", { class: "when", title: "Most memory of the interpreter so far" }, bytes(cell.memory)) : null,
        cell.cpu_ms ? h("span", { class: "when", title: "Processor time of the code" }, `${duration(cell.cpu_ms)} CPU`) : null,
        this.time,
        h("span", { class: "when" }, clock(cell.began ?? cell.queued))),
      h("pre", { class: "code", tabindex: "0", "aria-label": "Code" }, highlighted(cell.code)),
      cell.installed.length ? h("p", { class: "hint" }, `Installed ${plainText(cell.installed.join(", "))}`) : null,
      cell.omitted ? h("p", { class: "hint" }, `${cell.omitted.toLocaleString()} bytes or displays of the output are left out`) : null,
    ];
    const after = [
      cell.error ? this.error(cell.error) : null,
      this.callTree(cell),
      cell.files.length ? h("p", { class: "hint files" }, "Files: ", cell.files.map((file, at) => [at ? ", " : "", h("span", { class: "mono" }, visible(plainText(file.path))), ` ${bytes(file.size)}`])) : null,
    ];
    for (const child of [...this.content.children]) if (child !== this.body) child.remove();
    this.body.before(...before.filter(Boolean));
    this.body.after(...after.filter(Boolean));
    this.drawOutputs(cell.outputs);
    this.ask(cell.questions);
    this.tick();
  }

  /** Shows the output. Displays that have not changed stay in place, with what is chosen in them: a frame that is moved loads again. */
  drawOutputs(list) {
    this.displays = list.map((output, at) => {
      if (output.type === "stream") return { element: stream(output.name, output.text) };
      const known = this.displays[at];
      if (isEqual(known?.output, output)) return known;
      return { output, element: display(output, (html) => framed(`${this.path}/outputs/${at}/frame`, html)) };
    });
    let shown = this.body.firstElementChild;
    for (const { element } of this.displays) {
      const next = shown?.nextElementSibling;
      if (!shown) this.body.append(element);
      else if (shown !== element) shown.replaceWith(element);
      shown = next;
    }
    // Output that has arrived meanwhile is in the list.
    while (shown) {
      const next = shown.nextElementSibling;
      shown.remove();
      shown = next;
    }
  }

  /** Returns the tree of calls. As long as there are the same calls, it stays open. */
  callTree(cell) {
    const called = [cell.calls, cell.connections, cell.omitted_calls];
    if (isEqual(this.called, called)) return this.tree;
    this.called = called;
    this.tree = cell.calls.length || cell.connections.length || cell.omitted_calls ? callTree(cell, false) : null;
    return this.tree;
  }

  /** Shows the open questions. */
  ask(questions) {
    const open = new Map(questions.map((question) => [JSON.stringify(question), question]));
    for (const [key, element] of this.asked) {
      if (open.has(key)) continue;
      element.remove();
      this.asked.delete(key);
      // The next question moves to its place.
      for (const other of this.asked.values()) delayed(other.querySelectorAll("button:not([type=submit])"));
    }
    for (const [key, question] of open) {
      if (!this.asked.has(key)) this.asked.set(key, this.asking.appendChild(this.question(question)));
    }
  }

  /** Shows the time that the cell has taken. */
  tick() {
    if (!this.cell) return;
    const { began, ended } = this.cell;
    this.time.textContent = began ? duration((ended ?? Date.now()) - began) : "";
  }

  error({ name, message, traceback }) {
    const text = traceback.length ? traceback.join("\n") : `${name}${name ? ": " : ""}${message}`;
    return h("pre", { class: "text stderr traceback", role: "status" }, ansi(text));
  }

  question(question) {
    const answer = async (body) => {
      problem.textContent = "";
      try {
        await post(`${this.path}/questions/${question.number}`, body);
      } catch (error) {
        problem.textContent = error.message;
      }
      this.refresh();
    };
    const problem = h("p", { class: "problem", role: "alert" });
    const line = h("input", { type: "text", "aria-label": "Answer", autocomplete: "off", spellcheck: "false" });
    const actions = question.kind === "approval"
      ? decisionButtons((decision) => answer({ decision }))
      : [h("form", { class: "row grow", onsubmit: (event) => { event.preventDefault(); answer({ line: line.value }); } }, line, h("button", { type: "submit", class: "primary" }, "Answer")), delayed([button("Decline", () => answer({ decision: "deny" }), { "data-action": "deny" })])];
    return h("section", { class: "question", "aria-label": question.kind === "approval" ? "Approval" : "Input" },
      h("h3", {}, question.kind === "approval" ? "Waits for approval" : "Waits for input"),
      questionText(question.message),
      h("div", { class: "row wrap" }, actions), problem);
  }
}

/** Returns whether two values of JSON are equal. */
function isEqual(one, other) {
  if (one === other) return true;
  if (!one || !other || typeof one !== "object" || typeof other !== "object") return false;
  const names = Object.keys(one);
  return names.length === Object.keys(other).length && names.every((name) => isEqual(one[name], other[name]));
}

customElements.define("belljar-cell", BelljarCell);
