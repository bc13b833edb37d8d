// The admin API: requests and streams of events, with the operator's token in a header.

const BASE = "/admin/api/v1";
const TOKEN = "belljar-token";

/** The error of a request, with the status of the answer. */
export class ApiError extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

/** Returns the token of this tab. It is in no address and in no storage that outlives the tab. */
export function token() {
  return sessionStorage.getItem(TOKEN) ?? "";
}

export function setToken(value) {
  if (value) sessionStorage.setItem(TOKEN, value);
  else sessionStorage.removeItem(TOKEN);
}

async function send(method, path, body, signal) {
  const headers = { Authorization: `Bearer ${token()}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(BASE + path, {
    method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body),
    cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
  });
  if (response.ok) return response;
  const text = await response.text();
  let detail = text;
  try {
    detail = JSON.parse(text).detail ?? text;
  } catch {
    // Refusals of the server's guard are text.
  }
  if (response.status === 401 || response.status === 403) dispatchEvent(new CustomEvent("unauthorized", { detail }));
  throw new ApiError(response.status, detail || response.statusText);
}

async function json(method, path, body, signal) {
  const response = await send(method, path, body, signal);
  const text = await response.text();
  return text ? JSON.parse(text) : null;
}

export const get = (path, signal) => json("GET", path, undefined, signal);
export const post = (path, body) => json("POST", path, body);
export const remove = (path) => json("DELETE", path);

/** Returns a file as a blob without a type that a browser would show. */
export async function download(path) {
  const response = await send("GET", path);
  return new Blob([await response.arrayBuffer()], { type: "application/octet-stream" });
}

/** Passes events to `receive` until `signal` is aborted, and the event `lagged` after each connection. Returns the status of a refusal that stays. */
export async function follow(path, receive, signal, onState = () => {}) {
  let delay = 500;
  while (!signal.aborted) {
    try {
      const response = await send("GET", path, undefined, signal);
      onState(true);
      receive({ change: "lagged" });
      delay = 500;
      await read(response, receive);
    } catch (error) {
      if (signal.aborted) return null;
      if (error.status === 404 || error.status === 401 || error.status === 403) {
        onState(false);
        return error.status;
      }
    }
    onState(false);
    await new Promise((resolve) => setTimeout(resolve, delay));
    delay = Math.min(delay * 2, 10_000);
  }
  return null;
}

async function read(response, receive) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    buffer += value;
    const events = buffer.split("\n\n");
    buffer = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
      if (data.length) receive(JSON.parse(data.join("\n")));
    }
  }
}
