// The list of sessions: filtered and paged by the server. Only the rows in view are elements.

import { plainText } from "./ansi.js";
import { get } from "./api.js";
import { append, button, fill, h } from "./dom.js";
import { ago, bytes, plural } from "./format.js";

const ROW = 58;
const PAGE = 100;
const STATES = ["running", "waiting", "idle", "asleep", "away", "ended"];

export class BelljarSessions extends HTMLElement {
  connectedCallback() {
    if (this.rows) return;
    [this.pages, this.matching, this.query, this.states, this.asking, this.generation] = [new Map(), 0, "", new Set(), false, 0];
    // The handle of the session that was chosen last, and the row that it had.
    [this.selected, this.at] = [null, null];
    this.search = h("input", { type: "text", placeholder: "Search sessions  /", "aria-label": "Search sessions", spellcheck: "false", autocomplete: "off", oninput: () => this.filter() });
    this.chips = h("div", { class: "row wrap chips", role: "group", "aria-label": "States" });
    this.sort = h("select", { "aria-label": "Order", onchange: () => this.restart() },
      [["last_used", "last used"], ["created", "newest"], ["cells", "most cells"], ["memory", "most memory"]].map(([value, label]) => h("option", { value }, label)));
    this.summary = h("p", { class: "hint", role: "status" });
    this.space = h("div", { class: "space" });
    this.rows = h("div", { class: "viewport", role: "listbox", "aria-label": "Sessions", tabindex: "0", onscroll: () => this.draw() }, this.space);
    append(this, [h("div", { class: "filters" }, this.search, this.chips, h("div", { class: "row" }, this.summary, h("span", { class: "grow" }), this.sort)), this.rows]);
    new ResizeObserver(() => this.draw()).observe(this.rows);
    this.reload();
  }

  /** Filters by the text of the field, once the operator has stopped to type. */
  filter() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      this.query = this.search.value;
      this.restart();
    }, 80);
  }

  /** Requests a list with another order or filter, from its beginning. */
  restart() {
    this.at = null;
    this.rows.scrollTop = 0;
    this.reload();
  }

  /** Requests what is in view again. Rows stay until their successors arrive. */
  async reload() {
    const generation = (this.generation += 1);
    const first = this.page(this.rows.scrollTop);
    const last = this.page(this.rows.scrollTop + this.rows.clientHeight);
    const begin = performance.now();
    try {
      const pages = await Promise.all([...new Set([first, last])].map(async (page) => [page, await this.fetchPage(page)]));
      if (generation !== this.generation) return;
      this.pages = new Map();
      for (const [page, answer] of pages) this.take(page, answer);
      this.draw();
      this.dataset.milliseconds = Math.round(performance.now() - begin);
      this.dispatchEvent(new CustomEvent("listed", { detail: pages[0][1] }));
    } catch (error) {
      this.summary.textContent = error.message;
    }
  }

  page(top) {
    return Math.floor(top / ROW / PAGE);
  }

  fetchPage(page) {
    const query = new URLSearchParams({ q: this.query, state: [...this.states].join(","), asking: String(this.asking), sort: this.sort.value || "last_used", offset: String(page * PAGE), limit: String(PAGE) });
    return get(`/sessions?${query}`);
  }

  take(page, answer) {
    this.pages.set(page, answer.sessions);
    this.matching = answer.matching;
    this.space.style.setProperty("height", `${answer.matching * ROW}px`);
    this.summary.textContent = answer.matching === answer.total ? plural(answer.total, "session") : `${answer.matching.toLocaleString()} of ${plural(answer.total, "session")}`;
    const chip = (label, count, isOn, toggle, kind) => button([h("span", { class: `dot ${kind}`, "aria-hidden": "true" }), label, " ", h("b", {}, count.toLocaleString())], () => { toggle(); this.restart(); }, { class: "chip", "aria-pressed": String(isOn) });
    fill(this.chips,
      chip("asks", answer.asking, this.asking, () => { this.asking = !this.asking; }, "asks"),
      STATES.map((state) => chip(state, answer.states[state] ?? 0, this.states.has(state), () => this.states.has(state) ? this.states.delete(state) : this.states.add(state), state)));
  }

  session(at) {
    return this.pages.get(Math.floor(at / PAGE))?.[at % PAGE];
  }

  /** Draws the rows in view, and requests those that are missing. */
  draw() {
    const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 4);
    const last = Math.min(this.matching, Math.ceil((this.rows.scrollTop + this.rows.clientHeight) / ROW) + 4);
    const drawn = [];
    const missing = new Set();
    for (let at = first; at < last; at += 1) {
      const session = this.session(at);
      if (session) drawn.push(this.row(session, at));
      else missing.add(Math.floor(at / PAGE));
    }
    fill(this.space, drawn);
    if (!this.matching) append(this.space, [h("p", { class: "empty" }, "No session matches.")]);
    for (const page of missing) this.load(page);
  }

  load(page) {
    if (this.pages.has(page)) return;
    this.pages.set(page, []);
    const generation = this.generation;
    this.fetchPage(page).then((answer) => {
      if (generation !== this.generation) return;
      this.take(page, answer);
      this.draw();
    }).catch(() => this.pages.delete(page));
  }

  row(session, at) {
    const isCurrent = session.handle === this.current;
    const row = h("div", { class: "session-row", role: "option", id: `row-${session.handle}`, "aria-selected": String(isCurrent), "data-handle": session.handle, onclick: () => this.choose(at) },
      h("span", { class: `dot ${session.questions ? "asks" : session.state}`, title: session.state }),
      h("div", { class: "row-main" },
        h("div", { class: "row" }, h("span", { class: "mono handle" }, session.handle), session.questions ? h("span", { class: "badge asks" }, "asks") : null, session.is_program ? h("span", { class: "badge plain" }, "one call") : null, session.is_feeds ? h("span", { class: "badge plain" }, "Monty") : null, h("span", { class: "grow" }), h("span", { class: "when" }, ago(session.last_used))),
        h("div", { class: "row second" }, h("span", { class: "mono clip" }, plainText(session.code).split("\n")[0] || "no cells yet"), h("span", { class: "grow" }), h("span", { class: "when" }, session.owner ? plainText(session.owner) : "", session.owner && session.memory ? " · " : "", bytes(session.memory)))));
    row.style.setProperty("top", `${at * ROW}px`);
    return row;
  }

  choose(at) {
    const session = this.session(at);
    if (!session) return;
    [this.selected, this.at] = [session.handle, at];
    this.dispatchEvent(new CustomEvent("choose", { detail: session.handle }));
  }

  /** Marks the session that is open. */
  select(handle) {
    this.current = handle;
    this.selected = handle ?? this.selected;
    if (handle) this.rows.setAttribute("aria-activedescendant", `row-${handle}`);
    this.draw();
  }

  /** Returns the row of the selected session: where it is now or, if that is not known, where it was. */
  position() {
    for (const [page, sessions] of this.pages) {
      const at = sessions.findIndex((session) => session.handle === this.selected);
      if (at >= 0) this.at = page * PAGE + at;
    }
    return this.at;
  }

  /** Opens the session `by` rows further. */
  move(by) {
    const at = Math.min(this.matching - 1, Math.max(0, (this.position() ?? -1) + by));
    const top = at * ROW;
    if (top < this.rows.scrollTop) this.rows.scrollTop = top;
    if (top + ROW > this.rows.scrollTop + this.rows.clientHeight) this.rows.scrollTop = top + ROW - this.rows.clientHeight;
    this.choose(at);
  }
}

customElements.define("belljar-sessions", BelljarSessions);
