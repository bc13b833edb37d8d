// The timeline of a session: a bar for each cell, with the calls of tools that it made.

import { plainText } from "./ansi.js";
import { fill, h } from "./dom.js";
import { clock, duration } from "./format.js";

/** Shows the timeline of cells in an element. `select` is called with the number of a cell. */
export function timeline(element, cells, select) {
  const timed = cells.filter((cell) => cell.queued !== null);
  if (!timed.length) return fill(element, h("p", { class: "empty" }, "No cell has run since the server's start."));
  const now = Date.now();
  // Long pauses between cells are shortened, so that short cells stay visible.
  const spans = timed.map((cell) => [cell.queued, cell.ended ?? now]).sort((one, other) => one[0] - other[0]);
  const busy = spans.reduce((sum, [begin, end]) => sum + Math.max(1, end - begin), 0);
  const longest = Math.max(busy / 10, 500);
  const breaks = [];
  let [end, cut] = [spans[0][1], 0];
  for (const [begin, stop] of spans) {
    if (begin - end > longest) {
      cut += begin - end - longest;
      breaks.push({ at: begin, cut });
    }
    end = Math.max(end, stop);
  }
  const first = spans[0][0];
  const place = (time) => time - first - (breaks.filter((one) => time >= one.at).at(-1)?.cut ?? 0);
  const total = Math.max(1, place(end));
  const percent = (time) => (100 * place(time)) / total;
  const bar = (name, begin, stop) => {
    const mark = h("span", { class: name });
    mark.style.setProperty("left", `${percent(begin)}%`);
    mark.style.setProperty("width", `${Math.max(0.4, percent(stop) - percent(begin))}%`);
    return mark;
  };
  const known = new Map([...element.querySelectorAll(".lane-row")].map((row) => [Number(row.dataset.number), row]));
  const rows = timed.map((cell) => {
    const stop = cell.ended ?? now;
    const lane = h("div", { class: "lane" },
      cell.began && cell.began - cell.queued > 5 ? bar("wait", cell.queued, cell.began) : null,
      bar(`bar ${cell.state}`, cell.began ?? cell.queued, stop),
      cell.calls.slice(0, 200).map((call) => bar(`tick ${call.status === "ok" ? "ok" : call.status === "running" ? "running" : "error"}`, call.began, call.began + call.duration_ms)));
    const row = known.get(cell.number) ?? h("button", { type: "button", class: "lane-row", "data-number": cell.number, onclick: () => select(cell.number) });
    row.setAttribute("aria-label", `Cell ${cell.number}, ${cell.state}, ${duration(stop - (cell.began ?? cell.queued))}`);
    return fill(row,
      h("span", { class: "number" }, `[${cell.number}]`),
      h("span", { class: "lane-code mono" }, plainText(cell.code).trim().split("\n")[0].slice(0, 60)),
      lane,
      h("span", { class: "when" }, duration(stop - (cell.began ?? cell.queued))));
  });
  const hint = `${clock(first)} – ${clock(end)}${breaks.length ? ", long pauses shortened" : ""}. Grey: waiting for a thread; marks below: calls of tools.`;
  // Rows that stay in place keep the focus, while the time of what runs passes.
  if (rows.length === known.size && rows.every((row, at) => row === element.lastElementChild.children[at])) element.firstElementChild.textContent = hint;
  else fill(element, h("p", { class: "hint" }, hint), h("div", { class: "timeline" }, rows));
}
