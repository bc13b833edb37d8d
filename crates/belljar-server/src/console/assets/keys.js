// Keyboard shortcuts, and the dialog that lists them.

import { button, h } from "./dom.js";

/** The shortcuts, in the order of the dialog: keys, meaning, action of the application. */
export const SHORTCUTS = [
  ["/", "Search sessions", "search"],
  ["j", "Next session", "next"],
  ["k", "Previous session", "previous"],
  ["Enter", "Open the selected session", "open"],
  ["Escape", "Back to the list", "back"],
  ["1 – 5", "Cells, timeline, calls, files, variables", "tab"],
  ["e", "Edit a cell to run", "edit"],
  ["Shift+Enter", "Run the cell", null],
  ["a", "Approve the first open question", "approve"],
  ["d", "Deny the first open question", "deny"],
  ["i", "Interrupt", "interrupt"],
  ["t", "Light or dark", "theme"],
  ["?", "These shortcuts", "help"],
];

const ACTIONS = { j: "next", k: "previous", Enter: "open", Escape: "back", e: "edit", a: "approve", d: "deny", i: "interrupt", t: "theme", "?": "help", "/": "search" };

/** Calls `act` with the name of an action, and its number if it has one, for each shortcut. */
export function listen(act) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const target = event.target;
    if (document.querySelector("dialog[open]")) return;
    if (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) {
      if (event.key === "Escape") target.blur();
      return;
    }
    // Enter presses the button that has the focus.
    if (event.key === "Enter" && target instanceof HTMLElement && target.closest("button, a, summary")) return;
    const tab = "12345".indexOf(event.key);
    const action = event.key.length === 1 && tab >= 0 ? "tab" : ACTIONS[event.key];
    if (action && act(action, tab) !== false) event.preventDefault();
  });
}

/** Shows the dialog of the shortcuts. */
export function showHelp() {
  const close = () => dialog.close();
  const rows = SHORTCUTS.map(([keys, meaning]) => h("tr", {}, h("td", {}, h("kbd", {}, keys)), h("td", {}, meaning)));
  const dialog = h("dialog", { class: "help", "aria-label": "Keyboard shortcuts", onclose: () => dialog.remove() },
    h("h2", {}, "Keyboard shortcuts"), h("table", {}, h("tbody", {}, rows)), button("Close", close));
  document.body.append(dialog);
  dialog.showModal();
}

/** Asks whether to do something. Resolves to true if the operator confirms. */
export function confirmed(question, label) {
  return new Promise((resolve) => {
    let answer = false;
    const yes = () => {
      answer = true;
      dialog.close();
    };
    const dialog = h("dialog", { "aria-label": question, onclose: () => { dialog.remove(); resolve(answer); } },
      h("p", {}, question),
      h("div", { class: "row end" }, button("Cancel", () => dialog.close()), button(label, yes, { class: "danger" })));
    document.body.append(dialog);
    dialog.showModal();
  });
}
