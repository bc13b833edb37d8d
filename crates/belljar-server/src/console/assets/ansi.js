// Shows text with ANSI escapes as spans with classes. Everything but colours and weights is left out.

import { h } from "./dom.js";

// CSI sequences, OSC and other strings, and two-character escapes; unterminated ones end with the text.
const ESCAPES = /\x1b(?:\[([0-9;:?<=>!]*)[ -/]*([@-~])|[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]|$)|\x9b[0-9;:?]*[@-~]?/g;
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
// Characters that change the order of text: an operator must see code as Python reads it.
const BIDI = /[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]/;

/** Returns nodes that show a text with escapes. */
export function ansi(text) {
  const style = { color: null, background: null, bold: false, dim: false, italic: false, underline: false, inverse: false };
  const nodes = [];
  let last = 0;
  const push = (part) => {
    if (part) nodes.push(...styled(plain(part), style));
  };
  for (const match of text.matchAll(ESCAPES)) {
    push(text.slice(last, match.index));
    last = match.index + match[0].length;
    if (match[2] === "m") apply(style, match[1]);
  }
  push(text.slice(last));
  return nodes;
}

/** Returns text without escapes and control characters, for places without colours. */
export function plainText(text) {
  return plain(String(text).replace(ESCAPES, ""));
}

/** Returns nodes that show code or another text as it is, with marks in place of characters that change its order. */
export function visible(text) {
  if (!BIDI.test(text)) return [document.createTextNode(text)];
  return text.split(/([\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c])/).map((part) =>
    BIDI.test(part) && part.length === 1
      ? h("span", { class: "bidi", title: "A character that changes the order of text" }, `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`)
      : document.createTextNode(part));
}

function plain(text) {
  // A carriage return overwrites its line, as progress bars do.
  const lines = text.replace(/\r+\n?/g, (ends) => (ends.endsWith("\n") ? "\n" : "\r"));
  return lines.replace(/^.*\r(?=.)/gm, "").replace(CONTROLS, "");
}

function styled(text, style) {
  const classes = [];
  let [color, background] = style.inverse ? [style.background ?? "ground", style.color ?? "text"] : [style.color, style.background];
  if (style.bold) classes.push("a-bold");
  if (style.dim) classes.push("a-dim");
  if (style.italic) classes.push("a-italic");
  if (style.underline) classes.push("a-underline");
  if (!classes.length && color === null && background === null) return visible(text);
  const span = h("span", {}, visible(text));
  // Set by the object model, which the policy of the page allows, from numbers only.
  const set = (value, prefix, property) => {
    if (value === null) return;
    if (typeof value === "string") span.style.setProperty(property, `rgb(${value})`);
    else classes.push(`${prefix}${value}`);
  };
  if (style.inverse && (typeof color !== "number" || typeof background !== "number")) classes.push("a-inverse");
  else {
    set(color, "a-f", "color");
    set(background, "a-b", "background-color");
  }
  if (classes.length) span.className = classes.join(" ");
  return [span];
}

function apply(style, sequence) {
  const codes = sequence.split(/[;:]/).map((code) => Number.parseInt(code || "0", 10));
  for (let at = 0; at < codes.length && at < 64; at += 1) {
    const code = codes[at];
    if (code === 0 || Number.isNaN(code)) {
      Object.assign(style, { color: null, background: null, bold: false, dim: false, italic: false, underline: false, inverse: false });
    } else if (code === 1) style.bold = true;
    else if (code === 2) style.dim = true;
    else if (code === 3) style.italic = true;
    else if (code === 4) style.underline = true;
    else if (code === 7) style.inverse = true;
    else if (code === 22) style.bold = style.dim = false;
    else if (code === 23) style.italic = false;
    else if (code === 24) style.underline = false;
    else if (code === 27) style.inverse = false;
    else if (code >= 30 && code <= 37) style.color = code - 30;
    else if (code >= 90 && code <= 97) style.color = code - 82;
    else if (code === 39) style.color = null;
    else if (code >= 40 && code <= 47) style.background = code - 40;
    else if (code >= 100 && code <= 107) style.background = code - 92;
    else if (code === 49) style.background = null;
    else if (code === 38 || code === 48) {
      const [color, used] = extended(codes.slice(at + 1));
      if (code === 38) style.color = color;
      else style.background = color;
      at += used;
    }
  }
}

function extended(codes) {
  const byte = (value) => Math.min(255, Math.max(0, value | 0));
  if (codes[0] === 2) return [`${byte(codes[1])}, ${byte(codes[2])}, ${byte(codes[3])}`, 4];
  if (codes[0] !== 5) return [null, 1];
  const index = byte(codes[1]);
  if (index < 16) return [index, 2];
  if (index >= 232) return [Array(3).fill(8 + (index - 232) * 10).join(", "), 2];
  const level = (part) => (part ? 55 + part * 40 : 0);
  const cube = index - 16;
  return [[Math.floor(cube / 36), Math.floor(cube / 6) % 6, cube % 6].map(level).join(", "), 2];
}
