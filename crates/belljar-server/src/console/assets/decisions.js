// The decisions about a call of a tool that waits for approval, for the console and for panels.

import { plainText, visible } from "./ansi.js";
import { button, h } from "./dom.js";

// Decisions that were meant for something else decide nothing: buttons work only after this time, in milliseconds.
const DELAY = 500;
const TIMERS = new WeakMap();

/** Returns the buttons. `decide` is called with the decision that the user makes. */
export function decisionButtons(decide) {
  return delayed([
    button("Approve", () => decide("approve"), { class: "primary", "data-action": "approve" }),
    button("for this run", () => decide("approve-run"), { "aria-label": "Approve for this run" }),
    button("for this session", () => decide("approve-session"), { "aria-label": "Approve for this session" }),
    button("Deny", () => decide("deny"), { class: "danger", "data-action": "deny" }),
  ]);
}

/** Disables buttons that have just appeared, or moved, under the cursor or the key of a shortcut. They work a moment later. */
export function delayed(buttons) {
  enable(buttons, false);
  for (const one of buttons) {
    clearTimeout(TIMERS.get(one));
    TIMERS.set(one, setTimeout(() => enable([one], true), DELAY));
  }
  return buttons;
}

/** Enables or disables buttons. */
export function enable(buttons, isEnabled) {
  for (const one of buttons) one.disabled = !isEnabled;
}

/** Returns the text of a question, without how a line of text would answer it. */
export function questionText(message) {
  return h("pre", { class: "text" }, visible(plainText(message.replace(/\nAllow it\? Answer yes[^\n]*$/, ""))));
}
