// Shows the output of a cell: text, images and HTML, none of which can run scripts or send requests here.

import { ansi, plainText } from "./ansi.js";
import { button, fill, h } from "./dom.js";
import { dataTable } from "./table.js";

// The formats of images, the preferred ones first, and the beginning of their files in base64.
const IMAGES = [["image/png", "iVBORw0KGgo"], ["image/jpeg", "/9j/"], ["image/svg+xml", null]];
const MAX_PIXELS = 60_000_000;
const MAX_SHOWN_TEXT = 400_000;

/** Returns elements that show outputs. `frame` returns one that shows the HTML of the output with a number. */
export function outputs(list, frame) {
  return list.map((output, at) => {
    if (output.type === "stream") return stream(output.name, output.text);
    return display(output, (html) => frame(at, html));
  });
}

/** Returns an element that shows text of a stream, or is extended by it. */
export function stream(name, text) {
  const shown = text.length > MAX_SHOWN_TEXT ? text.slice(-MAX_SHOWN_TEXT) : text;
  return h("pre", { class: name === "stderr" ? "text stderr" : "text", "data-stream": name === "stderr" ? "stderr" : "stdout" }, ansi(shown));
}

/** Returns an element that shows a display, or the value of the last line. `frame` returns one that shows HTML. */
export function display(output, frame) {
  const [data, isResult] = [output.data ?? {}, output.type === "result"];
  const views = [];
  for (const [mime, magic] of IMAGES) {
    const value = textOf(data[mime]);
    if (value !== null) {
      const view = picture(mime, magic, value, textOf(data["text/plain"]));
      if (view) views.push(["Figure", () => view]);
      break;
    }
  }
  const html = textOf(data["text/html"]);
  if (html !== null) {
    const table = /<table/i.test(html) ? dataTable(html) : null;
    if (table) views.push(["Table", () => table]);
    views.push(["HTML", () => frame(html)]);
  }
  for (const mime of ["text/markdown", "text/latex", "text/plain"]) {
    const text = textOf(data[mime]);
    if (text !== null) views.push(["Text", () => h("pre", { class: isResult ? "text result" : "text" }, ansi(text))]);
    if (text !== null) break;
  }
  if (!views.length || data["application/json"] !== undefined) {
    const known = data["application/json"] ?? data[Object.keys(data)[0]] ?? null;
    views.push(["Data", () => h("pre", { class: "text" }, plainText(JSON.stringify(known, null, 2) ?? "").slice(0, MAX_SHOWN_TEXT))]);
  }
  const body = h("div", {}, views[0][1]());
  if (views.length === 1) return h("div", { class: "display" }, body);
  const tabs = views.map(([label, view], at) =>
    button(label, () => {
      fill(body, view());
      tabs.forEach((tab, other) => tab.setAttribute("aria-pressed", String(other === at)));
    }, { class: "chip small", "aria-pressed": at === 0 ? "true" : "false" }));
  return h("div", { class: "display" }, h("div", { class: "row views" }, tabs), body);
}

function textOf(value) {
  if (typeof value === "string") return value;
  return Array.isArray(value) && value.every((line) => typeof line === "string") ? value.join("") : null;
}

/** Returns an image of checked bytes, or null. Its address has the bytes: pages of hosts allow no others. */
function picture(mime, magic, value, alternative) {
  let url;
  if (magic === null) {
    // In an image, SVG runs no scripts and loads nothing.
    if (!/^\s*</.test(value)) return null;
    url = `data:image/svg+xml,${encodeURIComponent(value.toWellFormed?.() ?? value)}`;
  } else {
    const base64 = value.replace(/\s/g, "");
    if (!base64.startsWith(magic) || !/^[A-Za-z0-9+/]+={0,2}$/.test(base64)) return null;
    if (mime === "image/png" && pixels(base64) > MAX_PIXELS) return h("p", { class: "hint" }, "The image is too large to show.");
    url = `data:${mime};base64,${base64}`;
  }
  const image = h("img", { class: "figure" });
  image.alt = (alternative ?? "Figure").slice(0, 200);
  image.src = url;
  return image;
}

/** Returns the number of pixels that the beginning of a PNG file states. */
function pixels(base64) {
  if (base64.length < 36) return 0;
  const bytes = Uint8Array.from(atob(base64.slice(0, 32)), (character) => character.charCodeAt(0));
  const view = new DataView(bytes.buffer);
  return view.getUint32(16) * view.getUint32(20);
}

/** Returns the number of lines that a frame of HTML shows at once. */
export function rowsOf(html) {
  return Math.min(24, (html.match(/<tr/gi) ?? []).length || 8);
}
