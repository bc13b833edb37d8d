// Tables of code: the cells of HTML as text, which can be sorted and paged. Makes no HTML of text.

import { plainText, visible } from "./ansi.js";
import { button, fill, h } from "./dom.js";

const PAGE = 10;
const MAX_CELLS = 200_000;
const MAX_SPAN = 100;
// Elements with a content that text does not show: such a table is shown in a frame.
const RICH = new Set(["img", "svg", "picture", "video", "audio", "canvas", "iframe", "object", "embed", "input", "select", "textarea", "button", "math"]);
const HIDDEN = new Set(["style", "script", "template", "noscript", "title"]);
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0", times: "×", hellip: "…", minus: "−", middot: "·" };
const ELLIPSES = new Set(["...", "…", "⋮", "⋯"]);
const NUMBER = /^[+\-−]?(?:\d[\d,_]*\.?\d*|\.\d+)(?:e[+-]?\d+)?%?$/i;

/** Returns an element with the only table of `html`, or null if a frame has to show it. */
export function dataTable(html) {
  const parsed = parseTable(html);
  return parsed && parsed.rows.length ? tableElement(parsed) : null;
}

/** Returns the cells of the only table of `html` as `{ names, rows, headers, notes }`, or null. Takes linear time. */
export function parseTable(html) {
  const state = { tables: 0, inside: false, head: [], body: [], row: null, cell: null, section: "", outside: [], spans: [], cells: 0 };
  let at = 0;
  while (at < html.length) {
    const open = html.indexOf("<", at);
    const end = open < 0 ? html.length : open;
    if (end > at) text(state, html.slice(at, end));
    if (open < 0) break;
    if (html.startsWith("!--", open + 1)) {
      const close = html.indexOf("-->", open + 4);
      if (close < 0) break;
      at = close + 3;
      continue;
    }
    const name = /^\/?[a-z][a-z0-9]*/i.exec(html.slice(open + 1, open + 24))?.[0].toLowerCase();
    if (!name) {
      text(state, "<");
      at = open + 1;
      continue;
    }
    const close = endOfTag(html, open + 1 + name.length);
    if (close < 0) break;
    if (RICH.has(name)) return null;
    if (!take(state, name, html.slice(open + 1 + name.length, close))) return null;
    at = close + 1;
    if (HIDDEN.has(name)) {
      const hidden = new RegExp(`</${name}`, "gi");
      hidden.lastIndex = at;
      const ended = hidden.exec(html);
      if (!ended) break;
      at = ended.index;
    }
  }
  endRow(state);
  return state.tables === 1 ? arranged(state) : null;
}

/** Returns the place of the `>` that ends a tag, behind quoted values, or -1. */
function endOfTag(html, from) {
  let quote = "";
  for (let at = from; at < html.length; at += 1) {
    const character = html[at];
    if (quote) {
      if (character === quote) quote = "";
    } else if (character === ">") return at;
    else if ((character === '"' || character === "'") && html[at - 1] === "=") quote = character;
  }
  return -1;
}

/** Takes a tag. Returns false if the table cannot be shown as text. */
function take(state, name, attributes) {
  if (name === "table") {
    state.tables += 1;
    state.inside = true;
    return state.tables === 1;
  }
  if (!state.inside) return true;
  if (name === "/table") {
    endRow(state);
    state.inside = false;
  } else if (name === "thead" || name === "tbody" || name === "tfoot") {
    endRow(state);
    [state.section, state.spans] = [name, []];
  } else if (name === "tr") {
    endRow(state);
    state.row = [];
  } else if (name === "/tr" || name === "/thead" || name === "/tbody") endRow(state);
  else if (name === "td" || name === "th") {
    state.row ??= [];
    endCell(state);
    state.cell = { text: [], isHeader: name === "th", columns: span(attributes, "colspan"), rows: span(attributes, "rowspan") };
  } else if (name === "/td" || name === "/th") endCell(state);
  else if (name === "br" || name === "/p" || name === "/div" || name === "/li") state.cell?.text.push("\n");
  return state.cells <= MAX_CELLS;
}

function text(state, part) {
  if (state.cell) state.cell.text.push(part);
  else if (!state.inside) state.outside.push(part);
}

function span(attributes, name) {
  const value = Number.parseInt(new RegExp(`\\b${name}\\s*=\\s*["']?(\\d{1,5})`, "i").exec(attributes.slice(0, 2000))?.[1] ?? "1", 10);
  return Math.min(Math.max(value, 1), MAX_SPAN);
}

function endCell(state) {
  const { cell } = state;
  if (!cell) return;
  state.cell = null;
  const shown = { text: clean(cell.text.join("")), isHeader: cell.isHeader };
  // Cells of the rows above that reach into this row.
  while (state.spans[state.row.length]?.rows > 0) fromAbove(state);
  for (let column = 0; column < cell.columns; column += 1) {
    state.spans[state.row.length] = { rows: cell.rows - 1, shown };
    state.row.push(shown);
    state.cells += 1;
  }
}

function fromAbove(state) {
  const above = state.spans[state.row.length];
  above.rows -= 1;
  state.row.push(above.shown);
  state.cells += 1;
}

function endRow(state) {
  endCell(state);
  const { row } = state;
  if (!row) return;
  while (state.spans[row.length]?.rows > 0) fromAbove(state);
  state.row = null;
  if (!row.length) return;
  const isHead = state.section === "thead" || (state.section === "" && !state.body.length && row.every((cell) => cell.isHeader));
  (isHead ? state.head : state.body).push(row);
}

function arranged({ head, body, outside }) {
  const width = Math.max(0, ...[head.slice(0, 20), body.slice(0, 1000)].flat().map((row) => row.length));
  if (width * body.length > MAX_CELLS) return null;
  const names = Array.from({ length: width }, (_, column) => {
    const parts = head.slice(0, 20).map((row) => row[column]?.text ?? "").filter(Boolean);
    return parts.filter((part, at) => part !== parts[at - 1]).join(" · ");
  });
  const headers = Math.min(...body.slice(0, 1000).map((row) => row.findIndex((cell) => !cell.isHeader)).filter((at) => at >= 0), width);
  const rows = body.map((row) => Array.from({ length: width }, (_, column) => row[column]?.text ?? ""));
  return { names, rows, headers: headers === width ? 0 : headers, notes: clean(outside.join(" ")).slice(0, 400) };
}

function clean(html) {
  const decoded = html.replace(/&(#x[0-9a-f]{1,6}|#\d{1,7}|[a-z]{2,8});/gi, (whole, name) => {
    if (name[0] !== "#") return ENTITIES[name] ?? whole;
    const code = name[1] === "x" || name[1] === "X" ? Number.parseInt(name.slice(2), 16) : Number.parseInt(name.slice(1), 10);
    return code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff) ? String.fromCodePoint(code) : "\ufffd";
  });
  return plainText(decoded).replace(/[ \t\r\f]+/g, " ").replace(/ ?\n\s*/g, "\n").trim();
}

function number(value) {
  return NUMBER.test(value) ? Number(value.replace(/[,_%]/g, "").replace("−", "-")) : NaN;
}

function tableElement({ names, rows, headers, notes }) {
  const isShortened = rows.some((row) => row.some((cell) => ELLIPSES.has(cell)) && row.slice(headers).every((cell) => ELLIPSES.has(cell)));
  const isNumeric = names.map((_, column) => isNumbers(rows, column));
  const order = { column: -1, direction: 0, page: 0 };
  const body = h("tbody");
  const place = h("span", { class: "hint", role: "status" });
  const pages = Math.ceil(rows.length / PAGE);
  const turn = (page) => () => {
    order.page = Math.min(Math.max(page(order.page), 0), pages - 1);
    show();
  };
  const steps = [["«", "First page", () => 0], ["‹", "Previous page", (page) => page - 1], ["›", "Next page", (page) => page + 1], ["»", "Last page", () => pages - 1]]
    .map(([label, title, page]) => button(label, turn(page), { class: "quiet", "aria-label": title, title }));
  const heads = names.map((name, column) => h("th", { scope: "col", "aria-sort": "none", class: isNumeric[column] ? "amount" : null },
    button([visible(name || "\u00a0"), h("span", { class: "arrow", "aria-hidden": "true" })], () => sort(column), { class: "sort", "aria-label": `Sort by ${name || `column ${column + 1}`}` })));
  let sorted = rows;

  function sort(column) {
    order.direction = order.column === column ? [1, -1, 0][[0, 1, -1].indexOf(order.direction)] : 1;
    [order.column, order.page] = [column, 0];
    const direction = order.direction;
    sorted = sortedRows(rows, column, direction);
    heads.forEach((head, at) => head.setAttribute("aria-sort", at !== column || !direction ? "none" : direction > 0 ? "ascending" : "descending"));
    show();
  }

  function show() {
    const begin = order.page * PAGE;
    fill(body, sorted.slice(begin, begin + PAGE).map((row) => h("tr", {}, row.map((cell, column) =>
      h(column < headers ? "th" : "td", { class: isNumeric[column] && column >= headers ? "amount" : null }, visible(cell))))));
    place.textContent = `${(begin + 1).toLocaleString("en")}–${Math.min(begin + PAGE, rows.length).toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
    [order.page > 0, order.page > 0, order.page < pages - 1, order.page < pages - 1].forEach((isPossible, at) => { steps[at].disabled = !isPossible; });
  }

  show();
  return h("div", { class: "data" },
    h("div", { class: "scroll" }, h("table", { class: "grid" }, names.length ? h("thead", {}, h("tr", {}, heads)) : null, body)),
    h("div", { class: "row pages" }, pages > 1 ? [place, steps] : null, notes ? h("span", { class: "hint" }, visible(notes)) : null,
      isShortened ? h("span", { class: "hint" }, "The code has left out rows.") : null));
}

/** Returns whether a column has numbers only, and blank cells. */
export function isNumbers(rows, column) {
  return rows.every((row) => isBlank(row[column]) || !Number.isNaN(number(row[column])));
}

/** Returns rows in the order of a column: ascending for 1, descending for -1, and as they are for 0. */
export function sortedRows(rows, column, direction) {
  if (direction === 0) return rows;
  const isNumeric = isNumbers(rows, column);
  return [...rows].sort((left, right) => compare(left[column], right[column], isNumeric, direction));
}

function isBlank(value) {
  return value === "" || ELLIPSES.has(value) || /^(nan|none|nat|null|<na>)$/i.test(value);
}

/** Compares two cells. Blank ones are last in both directions. */
function compare(left, right, isNumeric, direction) {
  if (isBlank(left) || isBlank(right)) return Number(isBlank(left)) - Number(isBlank(right));
  const order = isNumeric ? number(left) - number(right) : left.localeCompare(right, "en", { numeric: true });
  return order * direction;
}
