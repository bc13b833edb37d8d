// The decisions about a call of a tool that waits for approval, for the console and for panels.

import { plainText, visible } from "./ansi.js";
import { button, h } from "./dom.js";

/** Returns the buttons. `decide` is called with the decision that the user makes. */
export function decisionButtons(decide) {
  return [
    button("Approve", () => decide("approve"), { class: "primary", "data-action": "approve" }),
    button("for this run", () => decide("approve-run"), { "aria-label": "Approve for this run" }),
    button("for this session", () => decide("approve-session"), { "aria-label": "Approve for this session" }),
    button("Deny", () => decide("deny"), { class: "danger", "data-action": "deny" }),
  ];
}

/** Returns the text of a question, without how a line of text would answer it. */
export function questionText(message) {
  return h("pre", { class: "text" }, visible(plainText(message.replace(/\nAllow it\? Answer yes[^\n]*$/, ""))));
}
