// The console: the list of sessions on one side, the open session on the other.

import { follow, get, post, setToken, token } from "./api.js";
import { append, button, fill, h, icon } from "./dom.js";
import { listen, showHelp } from "./keys.js";
import { login } from "./login.js";
import "./session-list.js";
import "./session-view.js";

const app = document.getElementById("app");
const THEME = "belljar-theme";
let stop = new AbortController();
// Ends the stream of events.
let following = new AbortController();
let live = null;
let list = null;
let view = null;
let main = null;
let server = null;
let soon = 0;

/** Takes the token of the address, which the browser did not send, and removes it from the history. */
function takeToken() {
  const given = /^#token=([\x21-\x7e]+)$/.exec(location.hash);
  if (!given) return;
  setToken(given[1]);
  history.replaceState(null, "", location.pathname);
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
}

function toggleTheme() {
  const isDark = getComputedStyle(document.documentElement).getPropertyValue("--is-dark").trim() === "1";
  const theme = isDark ? "light" : "dark";
  localStorage.setItem(THEME, theme);
  setTheme(theme);
}

async function start(reason) {
  following.abort();
  stop.abort();
  stop = new AbortController();
  [list, view] = [null, null];
  if (!token()) return void fill(app, login(reason, () => start()));
  try {
    server = await get("/server");
  } catch (error) {
    if (error.status === 401 || error.status === 403) {
      setToken("");
      return void fill(app, login("The server does not accept this token.", () => start()));
    }
    return void fill(app, h("main", { class: "centered" }, h("p", { class: "problem" }, error.message), button("Try again", () => start())));
  }
  build();
}

function build() {
  live = h("span", { class: "live", role: "status", title: "Connection to the server" }, "connecting");
  list = document.createElement("belljar-sessions");
  list.addEventListener("choose", (event) => go(event.detail));
  list.addEventListener("listed", (event) => {
    const { asking } = event.detail;
    document.title = asking ? `(${asking}) Belljar console` : "Belljar console";
  });
  main = h("main", { class: "detail", "aria-label": "Session" });
  const create = async () => go((await post("/sessions")).handle);
  const quiet = (label, name, action) => append(button("", action, { class: "quiet", "aria-label": label, title: label }), [icon(name)]);
  fill(app, h("div", { class: "frame-of-page" },
    h("nav", { class: "side", "aria-label": "Sessions" },
      h("header", { class: "brand" }, logo(), h("b", {}, "Belljar"), h("span", { class: "version" }, server.version), h("span", { class: "grow" }), live,
        quiet("New session", "plus", create), quiet("Light or dark", "theme", toggleTheme), quiet("Sign out", "out", () => { setToken(""); start(); }), button("?", showHelp, { class: "quiet", "aria-label": "Keyboard shortcuts" })),
      list),
    main));
  // Without a stream, too: the title of a hidden tab has the number of sessions that ask something.
  const refreshing = setInterval(() => list?.reload(), 10_000);
  stop.signal.addEventListener("abort", () => clearInterval(refreshing));
  route();
}

/** Follows all sessions, and the one that is open with its output: by one stream, and by none in a hidden tab. A browser opens six connections to a server without TLS for all its tabs together, and each stream occupies one. */
async function connect() {
  following.abort();
  if (!list) return;
  if (document.hidden) return;
  following = new AbortController();
  const { signal } = following;
  const onState = (isLive) => {
    if (signal.aborted) return;
    live.textContent = live.dataset.state = isLive ? "live" : "offline";
    // Otherwise the session is loaded with the event that begins the stream.
    if (!isLive && view && !view.session) view.load();
  };
  const refusal = await follow(view ? `/events?session=${view.handle}` : "/events", receive, signal, onState);
  // The session does not exist: others do.
  if (refusal === 404) await follow("/events", receive, signal, onState);
}

function receive(event) {
  if (view && (event.change === "lagged" || event.session === view.handle)) view.receive(event);
  // Events arrive in bursts.
  if (event.change === "output" || soon) return;
  soon = setTimeout(() => {
    soon = 0;
    list?.reload();
  }, 400);
}

function logo() {
  const image = h("img", { class: "logo" });
  image.src = "/console/icon.svg";
  image.alt = "";
  return image;
}

function go(handle) {
  location.hash = handle ? `#/${handle}` : "#/";
}

/** Shows the session that the address names. A handle gives no access: it may be in the history. */
function route() {
  takeToken();
  if (!list) return;
  const handle = /^#\/([0-9a-f]{16})$/.exec(location.hash)?.[1] ?? null;
  document.body.dataset.view = handle ? "session" : "list";
  list.select?.(handle);
  if (handle === view?.handle) return;
  view = null;
  if (handle) show(handle);
  else fill(main, h("div", { class: "centered" }, h("p", { class: "empty" }, "Choose a session, or press ", h("kbd", {}, "j"), ". ", h("kbd", {}, "?"), " shows all shortcuts.")));
  connect();
}

function show(handle) {
  view = document.createElement("belljar-session");
  view.addEventListener("leave", () => go(null));
  view.addEventListener("open", (event) => go(event.detail));
  fill(main, view);
  view.show(handle, server);
}

listen((action, tab) => {
  if (action === "theme") return toggleTheme();
  if (action === "help") return showHelp();
  if (!list) return false;
  if (action === "search") return list.search.focus();
  if (action === "next" || action === "previous") return list.move(action === "next" ? 1 : -1);
  if (action === "open") return list.choose(list.position() ?? 0);
  if (action === "back") return go(null);
  if (!view) return false;
  return action === "tab" ? view.open(tab) : view.act(action);
});

addEventListener("hashchange", () => (location.hash.startsWith("#token=") ? (takeToken(), start()) : route()));
addEventListener("unauthorized", (event) => {
  // The form for the token shows its own errors.
  if (!list || !token()) return;
  setToken("");
  start(event.detail.detail || "Sign in again.");
});

addEventListener("visibilitychange", connect);

setTheme(localStorage.getItem(THEME));
takeToken();
start();
