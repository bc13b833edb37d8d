// The files of a result in a panel, and their downloads through the client.

import { plainText, visible } from "./ansi.js";
import { append, button, h, icon } from "./dom.js";
import { bytes } from "./format.js";

// The server returns at most so many bytes of a file at once.
const PART = 1 << 20;
const MAX_FILE = 64 << 20;
const MAX_LISTED = 200;

/** Returns a table of files, with their downloads if the client reads resources. */
export function fileTable(files, host) {
  const rows = files.slice(0, MAX_LISTED).map((file) => row(file, host));
  const further = files.length - rows.length;
  return h("div", { class: "saved" },
    h("div", { class: "scroll" }, h("table", { class: "grid" },
      h("thead", {}, h("tr", {}, ["File", "Type", "Size", ""].map((name) => h("th", { scope: "col", class: name === "Size" ? "amount" : null }, name)))), h("tbody", {}, rows))),
    further > 0 ? h("p", { class: "hint" }, `${further} further files`) : null);
}

function row(file, host) {
  const name = String(file.name ?? "");
  const problem = h("span", { class: "problem", role: "alert" });
  const save = async (event) => {
    const pressed = event.currentTarget;
    pressed.disabled = true;
    problem.textContent = "";
    try {
      await download(file, name, host);
    } catch (error) {
      problem.textContent = plainText(error.message);
    }
    pressed.disabled = false;
  };
  const canRead = host.capabilities.serverResources && /^kernel:\/\//.test(file.uri ?? "");
  return h("tr", {}, h("td", { class: "mono" }, visible(plainText(name)), problem), h("td", {}, visible(plainText(String(file.mime_type ?? "")))),
    h("td", { class: "amount" }, bytes(Number(file.size))),
    h("td", {}, canRead ? append(button("", save, { "aria-label": `Download ${plainText(name)}`, class: "quiet" }), [icon("down")]) : null));
}

async function download(file, name, host) {
  const size = Number(file.size) || 0;
  if (size > MAX_FILE) throw new Error("The file is too large for a panel.");
  const parts = [];
  if (size <= PART) parts.push(await read(host, file.uri));
  else for (let offset = 0; offset < size; offset += PART) parts.push(await read(host, `${file.uri}?offset=${offset}&length=${PART}`));
  const content = new Blob(parts, { type: "application/octet-stream" });
  if (host.capabilities.downloadFile) {
    // Of later versions of the specification: the client asks the user, and saves the file.
    const resource = { uri: file.uri, mimeType: "application/octet-stream", blob: (await dataUrl(content)).split(",")[1] ?? "" };
    const result = await host.request("ui/download-file", { contents: [{ type: "resource", resource }] });
    if (result?.isError) throw new Error("The client did not save the file.");
    return;
  }
  const link = document.createElement("a");
  link.download = name.split("/").at(-1) || "file";
  link.href = await dataUrl(content);
  link.click();
}

/** Returns the bytes of a resource. */
async function read(host, uri) {
  const result = await host.request("resources/read", { uri });
  const content = result?.contents?.[0] ?? {};
  if (typeof content.text === "string") return new TextEncoder().encode(content.text);
  if (typeof content.blob === "string") return Uint8Array.from(atob(content.blob), (character) => character.charCodeAt(0));
  throw new Error("The client returned no content.");
}

function dataUrl(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("The file cannot be read."));
    reader.readAsDataURL(blob);
  });
}
