// Calls of tools and connections, as a tree that can be opened.

import { plainText, visible } from "./ansi.js";
import { h } from "./dom.js";
import { bytes, clock, duration, plural } from "./format.js";

/** Returns the tree of the calls and connections of a cell. */
export function callTree(cell, isOpen) {
  const groups = new Map();
  for (const call of cell.calls) {
    const name = `${call.server}.${call.tool}`;
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(call);
  }
  const tools = [...groups].map(([name, calls]) => {
    const failed = calls.filter((call) => call.status !== "ok" && call.status !== "running").length;
    return h("details", { class: "branch", open: isOpen || groups.size === 1 },
      h("summary", {}, h("span", { class: "mono" }, plainText(name)), h("span", { class: "count" }, calls.length),
        failed ? h("span", { class: "badge bad" }, `${failed} failed`) : null),
      calls.map(leaf));
  });
  const connections = cell.connections.length
    ? h("details", { class: "branch", open: isOpen }, h("summary", {}, "Network", h("span", { class: "count" }, cell.connections.length)), cell.connections.map(connection))
    : null;
  const total = cell.calls.length + cell.omitted_calls;
  return h("details", { class: "tree", open: isOpen },
    h("summary", {}, [total ? plural(total, "call") : null, cell.connections.length ? plural(cell.connections.length, "connection") : null].filter(Boolean).join(", ")),
    tools, connections,
    cell.omitted_calls ? h("p", { class: "hint" }, `${plural(cell.omitted_calls, "further call")} not recorded`) : null);
}

function leaf(call) {
  return h("details", { class: "leaf" },
    h("summary", {},
      h("span", { class: `dot ${statusClass(call.status)}`, "aria-hidden": "true" }),
      h("span", { class: "status" }, plainText(call.status)),
      h("span", { class: "mono arguments" }, visible(plainText(call.arguments))),
      h("span", { class: "when" }, call.status === "running" ? "" : duration(call.duration_ms))),
    h("dl", {},
      h("dt", {}, "Began"), h("dd", {}, clock(call.began)),
      h("dt", {}, "Arguments"), h("dd", {}, h("pre", { class: "text" }, visible(pretty(call.arguments)))),
      call.error ? [h("dt", {}, "Error"), h("dd", {}, h("pre", { class: "text stderr" }, visible(plainText(call.error))))] : null,
      call.status === "ok" ? [h("dt", {}, "Result"), h("dd", {}, bytes(call.result_bytes))] : null));
}

function connection(record) {
  const target = `${record.method ? `${record.method} ` : ""}${record.host ?? ""}${record.port ? `:${record.port}` : ""}${record.path ?? ""}`;
  return h("div", { class: "leaf row" },
    h("span", { class: `dot ${record.allowed ? (record.error ? "error" : "ok") : "denied"}`, "aria-hidden": "true" }),
    h("span", { class: "status" }, record.allowed ? String(record.status ?? "open") : "refused"),
    h("span", { class: "mono arguments" }, visible(plainText(target))),
    h("span", { class: "when" }, `${bytes(record.bytes_received)} · ${duration(record.duration_ms)}`));
}

function statusClass(status) {
  if (status === "ok" || status === "running") return status;
  return status === "denied" || status === "cancelled" ? "denied" : "error";
}

function pretty(json) {
  try {
    return plainText(JSON.stringify(JSON.parse(json), null, 2));
  } catch {
    return plainText(json);
  }
}
