// The form for the operator's token.

import { get, setToken } from "./api.js";
import { h } from "./dom.js";

/** Returns the form. `done` is called once a token was accepted. */
export function login(reason, done) {
  const input = h("input", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", "aria-describedby": "login-error" });
  const error = h("p", { class: "problem", id: "login-error", role: "alert" }, reason ?? "");
  const submit = async (event) => {
    event.preventDefault();
    // Headers are ASCII.
    if (!/^[\x21-\x7e]+$/.test(input.value.trim())) {
      error.textContent = "Enter the token of an operator.";
      return;
    }
    setToken(input.value.trim());
    try {
      await get("/server");
      done();
    } catch (failure) {
      setToken("");
      error.textContent = failure.status === 401 ? "The server does not accept this token." : failure.message;
      input.select();
    }
  };
  const form = h("form", { class: "login", onsubmit: submit },
    h("h1", {}, "Belljar console"),
    h("label", { for: "token" }, "Operator token"),
    input,
    h("button", { type: "submit", class: "primary" }, "Sign in"),
    error,
    h("p", { class: "hint" }, "The token stays in this tab. On a loopback address, the server prints an address that contains it; otherwise it is a line of the file of --admin-token-file."));
  queueMicrotask(() => input.focus());
  return h("main", { class: "centered" }, form);
}
