// Sends calls to one session over one HTTP/2 connection without waiting for results, and checks the order in which they
// ran: `pipelined.mjs ADDRESS legacy|modern|sse COUNT`. The cells are sent in rounds, each of which begins with an
// endless cell and its interrupt, and has forks between its cells.
import assert from "node:assert";
import http2 from "node:http2";

const [address, mode] = process.argv.slice(2);
const count = Number(process.argv[4]);
/** The number of cells that are sent before results are awaited. */
const ROUND = 1000;
const CELLS_PER_FORK = 250;
const VERSION = "2026-07-28";
const client = { name: "tests", version: "1" };
const connection = http2.connect(`http://${address}`);
let path = "/mcp";
let session = {};
let next = 0;
/** Resolves the answers that arrive on the event stream of `sse`, by ID. */
const pending = new Map();

async function* events(stream) {
  let rest = "";
  stream.setEncoding("utf8");
  for await (const piece of stream) {
    const parts = (rest + piece).split(/\r?\n\r?\n/);
    rest = parts.pop();
    yield* parts;
  }
}

function data(event) {
  return event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trim()).join("\n");
}

/** Sends a message and returns its answer. */
function send(message, extra = {}) {
  const headers = {
    ":method": "POST",
    ":path": path,
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    ...session,
    ...extra,
  };
  const request = connection.request(headers);
  const head = new Promise((resolve) => request.on("response", resolve));
  request.end(JSON.stringify(message));
  if (mode === "sse" && message.id !== undefined) {
    const answer = new Promise((resolve) => pending.set(message.id, resolve));
    request.resume();
    return answer;
  }
  return (async () => {
    const { ":status": status, "mcp-session-id": opened, "content-type": type } = await head;
    if (opened) session = { "mcp-session-id": opened };
    let text = "";
    if (type?.startsWith("text/event-stream")) {
      for await (const event of events(request)) {
        const answer = data(event);
        if (answer && JSON.parse(answer).id === message.id) return JSON.parse(answer);
      }
    }
    for await (const piece of request) text += piece;
    assert.ok(status < 300, `${status}: ${text}`);
    return message.id === undefined ? undefined : JSON.parse(text);
  })();
}

function call(name, args) {
  const params = { name, arguments: args };
  if (mode === "modern") {
    params._meta = {
      "io.modelcontextprotocol/protocolVersion": VERSION,
      "io.modelcontextprotocol/clientInfo": client,
      "io.modelcontextprotocol/clientCapabilities": {},
    };
  }
  const headers =
    mode === "modern" ? { "mcp-protocol-version": VERSION, "mcp-method": "tools/call", "mcp-name": name } : {};
  next += 1;
  const answer = send({ jsonrpc: "2.0", id: next, method: "tools/call", params }, headers);
  return answer.then((message) => {
    assert.ok(message.result, JSON.stringify(message));
    return JSON.parse(message.result.content[0].text);
  });
}

if (mode === "sse") {
  const stream = connection.request({ ":method": "GET", ":path": "/sse", accept: "text/event-stream" });
  const endpoint = new Promise((resolve) => {
    (async () => {
      for await (const event of events(stream)) {
        if (event.includes("event: endpoint")) resolve(data(event));
        else if (data(event)) {
          const message = JSON.parse(data(event));
          pending.get(message.id)?.(message);
        }
      }
    })();
  });
  path = await endpoint;
}
if (mode !== "modern") {
  const params = { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: client };
  await send({ jsonrpc: "2.0", id: "hello", method: "initialize", params });
  await send({ jsonrpc: "2.0", method: "notifications/initialized" });
}
const opened = await call("execute_code", { code: "order = []" });
const id = opened.session_info.session_id;
const run = (code) => call("execute_code", { code, session_id: id });
for (let begin = 0; begin < count; begin += ROUND) {
  // The interrupt follows the endless cell, and must not reach the cells behind it.
  const endless = run("while True: pass");
  const interrupt = call("interrupt_session", { session_id: id });
  const answers = [];
  const forks = [];
  for (let number = begin; number < begin + ROUND; number += 1) {
    answers.push(run(`order.append(${number})`));
    if (number % CELLS_PER_FORK === CELLS_PER_FORK - 1) {
      forks.push(call("fork_session", { session_id: id }).then((fork) => [number + 1, fork.session_id]));
    }
  }
  const interrupted = await interrupt;
  assert.equal(interrupted.message, "The running code was interrupted", JSON.stringify(interrupted));
  const ended = await endless;
  assert.ok(ended.error?.startsWith("KeyboardInterrupt"), JSON.stringify(ended));
  for (const answer of await Promise.all(answers)) assert.equal(answer.success, true, JSON.stringify(answer));
  for (const [length, fork] of await Promise.all(forks)) {
    const answer = await call("execute_code", { code: "len(order)", session_id: fork });
    assert.equal(answer.result, String(length));
    await call("clear_session", { session_id: fork });
  }
}
const last = await run(`(len(order), order == list(range(${count})))`);
assert.equal(last.result, `(${count}, True)`);
connection.destroy();
process.exit(0);
