// Speaks to a server over TLS, with HTTP/1.1 and with HTTP/2: `tls_client.mjs URL CERTIFICATE`.
import assert from "node:assert";
import { readFileSync } from "node:fs";
import http2 from "node:http2";
import https from "node:https";

const [url, certificate] = process.argv.slice(2);
const ca = readFileSync(certificate);
const body = JSON.stringify({
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "tests", version: "1" } },
});
const headers = { "content-type": "application/json", accept: "application/json, text/event-stream" };

async function read(stream) {
  let text = "";
  for await (const piece of stream) text += piece;
  return text;
}

const answer = await new Promise((resolve, reject) => {
  https.request(url, { method: "POST", ca, headers }, resolve).on("error", reject).end(body);
});
assert.equal(answer.statusCode, 200);
assert.match(await read(answer), /"name":"belljar"/);

const session = http2.connect(new URL(url).origin, { ca });
const request = session.request({ ":method": "POST", ":path": new URL(url).pathname, ...headers });
const status = new Promise((resolve) => request.on("response", (head) => resolve(head[":status"])));
request.end(body);
assert.match(await read(request), /"name":"belljar"/);
assert.equal(await status, 200);
assert.equal(session.alpnProtocol, "h2");
session.close();
