// The client that embeds a panel: messages of MCP Apps (SEP-1865, version 2026-01-26, specification/2026-01-26/apps.mdx
// of modelcontextprotocol/ext-apps) between this page and the window that contains it.

const VERSION = "2026-01-26";
// In milliseconds. The server confirms an answer after 30 s.
const TIMEOUT = 60_000;
const METHOD_NOT_FOUND = -32601;

export class Host {
  /** Creates the connection. `receive` is called with the method and the parameters of each notification. */
  constructor(receive) {
    this.receive = receive;
    this.next = 1;
    this.pending = new Map();
    this.capabilities = {};
    addEventListener("message", (event) => {
      // Only the window that embeds this page, and no frame of it.
      if (event.source === window.parent && event.data?.jsonrpc === "2.0") this.take(event.data);
    });
  }

  /** Opens the connection. Returns the context of the host: its theme and its styles. */
  async open(name, version) {
    const result = await this.request("ui/initialize", {
      protocolVersion: VERSION,
      appInfo: { name, version },
      appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
    });
    this.capabilities = result?.hostCapabilities ?? {};
    this.notify("ui/notifications/initialized", {});
    return result?.hostContext ?? {};
  }

  take({ id, method, params, result, error }) {
    if (method === undefined) {
      const waiting = this.pending.get(id);
      if (!waiting) return;
      this.pending.delete(id);
      clearTimeout(waiting.timer);
      if (error) waiting.reject(new Error(String(error.message ?? "The client refused this.")));
      else waiting.resolve(result);
    } else if (id === undefined) this.receive(method, params ?? {});
    else if (method === "ping" || method === "ui/resource-teardown") this.send({ id, result: {} });
    else this.send({ id, error: { code: METHOD_NOT_FOUND, message: "the panel has no such method" } });
  }

  request(method, params) {
    const id = this.next++;
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.pending.delete(id);
        reject(new Error("The client did not answer."));
      }, TIMEOUT);
      this.pending.set(id, { resolve, reject, timer });
      this.send({ id, method, params });
    });
  }

  notify(method, params) {
    this.send({ method, params });
  }

  send(message) {
    // The origin of the host is not known here. The messages have no secrets: the host knows all of it.
    window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  }
}
