// One session: its cells as they run, its timeline, calls, files and variables, and what an operator can do.

import { plainText } from "./ansi.js";
import { get, post, remove } from "./api.js";
import { callTree } from "./calls.js";
import "./cell.js";
import { append, button, fill, h, icon } from "./dom.js";
import { ago, bytes, moment, plural } from "./format.js";
import { confirmed } from "./keys.js";
import { files, variables } from "./panels.js";
import { timeline } from "./timeline.js";

const TABS = ["Cells", "Timeline", "Calls", "Files", "Variables"];

export class BelljarSession extends HTMLElement {
  /** Shows a session. */
  show(handle, server) {
    [this.handle, this.server, this.path, this.tab, this.cells] = [handle, server, `/sessions/${handle}`, 0, new Map()];
    // The number of the first cell of the pages that were requested, or 0 if there was none.
    this.first = Infinity;
    this.head = h("header", { class: "session-head" });
    this.tabs = h("div", { class: "tabs", role: "tablist", "aria-label": "Views of the session" });
    this.list = h("div", { class: "cells" });
    this.panel = h("div", { class: "panel", role: "tabpanel", tabindex: "-1" }, this.list);
    // Stays at the end while output arrives, unless the operator has scrolled up.
    this.isSticky = true;
    this.panel.addEventListener("scroll", () => { this.isSticky = this.isAtEnd(); }, { passive: true });
    this.sizes = new ResizeObserver(() => this.isSticky && this.tab === 0 && this.scrollToEnd());
    this.sizes.observe(this.list);
    this.problem = h("p", { class: "problem toast", role: "alert", hidden: true });
    fill(this, this.head, this.tabs, this.panel, this.problem, this.prompt());
    this.drawTabs();
    this.ticking = setInterval(() => this.tick(), 1000);
    this.addEventListener("changed", () => this.drawPanel());
  }

  disconnectedCallback() {
    this.sizes?.disconnect();
    clearInterval(this.ticking);
  }

  running() {
    return [...this.cells.values()].filter((cell) => !cell.isOver);
  }

  all() {
    return [...this.list.children].filter((child) => child.cell).map((child) => child.cell);
  }

  /** Shows the time that has passed for what runs. */
  tick() {
    const running = document.hidden ? [] : this.running();
    running.forEach((cell) => cell.tick());
    if (running.length && this.tab === 1) this.drawPanel();
  }

  /** Requests the session and its last cells, at the beginning and after missed events. */
  async load() {
    try {
      const [session, page] = await Promise.all([get(this.path), get(`${this.path}/cells`)]);
      this.session = session;
      this.drawHead();
      this.putAll(page);
      // If events were missed, cells between those that are shown and the page may be missing.
      let older = page;
      while (older.has_more && older.cells[0].number > this.lastWithoutGap() + 1) {
        older = await get(`${this.path}/cells?before=${older.cells[0].number}`);
        this.putAll(older);
      }
      if (!page.cells.length && !this.cells.size) fill(this.list, h("p", { class: "empty" }, "No cell has run yet."));
      if (this.isSticky) this.scrollToEnd();
      this.drawPanel();
    } catch (error) {
      this.say(error.message);
    }
  }

  /** Shows the cells of a page, and a button for those before it unless a page has shown them. */
  putAll(page) {
    for (const cell of page.cells) this.element(cell.number).show(cell);
    const first = page.cells[0]?.number ?? 0;
    if (first > this.first) return;
    this.first = first;
    this.more?.remove();
    if (!page.has_more) return;
    this.more = button("Earlier cells", async () => {
      const older = await get(`${this.path}/cells?before=${first}`);
      const height = this.panel.scrollHeight;
      this.putAll(older);
      this.panel.scrollTop += this.panel.scrollHeight - height;
    }, { class: "more" });
    this.list.prepend(this.more);
  }

  /** Returns the number of the last cell up to which all are shown, from the first one of the pages on. */
  lastWithoutGap() {
    let last = this.first;
    while (this.cells.has(last + 1)) last += 1;
    return last;
  }

  /** Returns the element of a cell, and adds it in the order of the numbers if there is none. */
  element(number) {
    const known = this.cells.get(number);
    if (known) return known;
    const element = document.createElement("belljar-cell");
    element.open(this.path, number);
    this.cells.set(number, element);
    this.list.querySelector(".empty")?.remove();
    // Events and answers to requests arrive in any order.
    let next = null;
    for (let shown = this.list.lastElementChild; shown?.number > number; shown = shown.previousElementSibling) next = shown;
    this.list.insertBefore(element, next);
    return element;
  }

  /** Takes an event. The first one is `lagged`, and requests what was there before the stream. */
  receive({ change, cell, stream, text, end }) {
    if (change === "lagged") return void this.load();
    if (cell) {
      const isKnown = this.cells.has(cell);
      const element = this.element(cell);
      if (change === "output") element.write(stream, text, end);
      if (!isKnown || change !== "output") element.refresh();
    }
    if (change === "output") return;
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.refreshHead(), 150);
  }

  async refreshHead() {
    try {
      this.session = await get(this.path);
      this.drawHead();
      this.drawPanel();
    } catch (error) {
      this.say(error.message);
    }
  }

  isAtEnd() {
    return this.panel.scrollTop + this.panel.clientHeight > this.panel.scrollHeight - 80;
  }

  scrollToEnd() {
    this.panel.scrollTop = this.panel.scrollHeight;
  }

  say(text) {
    this.problem.hidden = false;
    this.problem.textContent = text;
    clearTimeout(this.saying);
    this.saying = setTimeout(() => { this.problem.hidden = true; }, 8000);
  }

  drawHead() {
    const { session } = this;
    const isOver = session.state === "ended";
    // Only the client of such a session uses its interpreter, and code that runs once has no session.
    const isFixed = isOver || session.is_feeds || session.is_run;
    const isBusy = session.state === "running" || session.state === "waiting";
    const action = (name, label, work, isEnabled, kind) => append(button("", () => this.attempt(work), { class: kind ?? "", disabled: !isEnabled, "data-action": name, "aria-label": label, title: label }), [icon(name), h("span", { class: "label" }, label)]);
    fill(this.head,
      h("div", { class: "row wrap" },
        append(button("", () => this.dispatchEvent(new CustomEvent("leave")), { class: "quiet only-narrow", "aria-label": "Back to the list" }), [icon("back")]),
        h("h1", { class: "mono" }, session.handle), h("span", { class: `badge ${session.state}` }, session.state),
        session.is_feeds ? h("span", { class: "badge plain" }, "Monty") : null, session.questions ? h("span", { class: "badge asks" }, plural(session.questions, "question")) : null,
        h("span", { class: "grow" }),
        h("div", { class: "row actions", role: "toolbar", "aria-label": "Session" },
          action("stop", "Interrupt", () => post(`${this.path}/interrupt`), isBusy),
          action("restart", "Restart", async () => await confirmed("Replace the interpreter by a new one? Variables are lost, files stay.", "Restart") && post(`${this.path}/restart`), !isFixed),
          this.server.can_fork ? action("fork", "Fork", async () => this.dispatchEvent(new CustomEvent("open", { detail: (await post(`${this.path}/fork`)).handle })), !isFixed) : null,
          action("sleep", "Sleep", async () => { if (!(await post(`${this.path}/sleep`)).done) this.say("The session cannot sleep now."); }, !isFixed && session.state !== "asleep" && session.state !== "away"),
          action("end", "End", async () => await confirmed("End the session? Its variables and files are deleted.", "End") && remove(this.path), !isFixed, "danger"))),
      h("p", { class: "facts" }, [
        session.owner ? plainText(session.owner) : "no owner", plural(session.cells, "cell"), session.memory ? `${bytes(session.memory)} memory` : null,
        session.waiting_calls ? `${plural(session.waiting_calls, "call")} queued` : null, session.last_used ? `${isOver ? "ended" : "used"} ${ago(session.last_used)}${ago(session.last_used) === "now" ? "" : " ago"}` : null, session.created ? `since ${moment(session.created)}` : null,
      ].filter(Boolean).join("  ·  ")));
    this.runner.disabled = this.editor.disabled = isFixed;
  }

  async attempt(work) {
    try {
      await work();
      await this.refreshHead();
    } catch (error) {
      this.say(error.message);
    }
  }

  drawTabs() {
    fill(this.tabs, TABS.map((name, at) => button(name, () => this.open(at), { role: "tab", "aria-selected": String(at === this.tab), tabindex: at === this.tab ? "0" : "-1" })));
  }

  /** Opens a tab. */
  open(at) {
    this.tab = at;
    this.drawTabs();
    const other = h("div", { class: "other" }, h("p", { class: "empty" }, "…"));
    fill(this.panel, at === 0 ? this.list : other);
    if (at === 0) this.scrollToEnd();
    this.drawPanel(true);
  }

  /** Draws the tab that is open. Files and variables are requested when it is opened, and after each cell. */
  drawPanel(isOpened) {
    if (this.tab === 0) return;
    const element = this.panel.firstElementChild;
    const cells = this.all();
    if (this.tab === 1) timeline(element, cells, (number) => { this.open(0); this.cells.get(number)?.scrollIntoView({ block: "start" }); });
    if (this.tab === 2) {
      const called = cells.filter((cell) => cell.calls.length || cell.connections.length);
      const shown = JSON.stringify(called.map((cell) => [cell.number, cell.calls.map((call) => call.status), cell.connections.length]));
      if (isOpened || this.called !== shown) {
        fill(element, called.map((cell) => h("section", { class: "called" }, h("h3", {}, `Cell ${cell.number}`), callTree(cell, true))), called.length ? null : h("p", { class: "empty" }, "No cell has called a tool or used the network."));
      }
      this.called = shown;
    }
    const ended = cells.filter((cell) => cell.ended).length;
    if (this.tab > 2 && (isOpened || ended !== this.ended)) {
      if (["asleep", "away"].includes(this.session?.state) && this.tab === 3 && !this.mayWake) {
        fill(element, h("p", { class: "empty" }, "The session sleeps. ", button("Wake it and list its files", () => { this.mayWake = true; files(element, this.path); })));
      } else (this.tab === 3 ? files : variables)(element, this.path);
    }
    this.ended = ended;
  }

  prompt() {
    const run = async () => {
      const code = this.editor.value;
      if (!code.trim()) return;
      try {
        await post(`${this.path}/cells`, { code });
        this.editor.value = "";
        this.grow();
        if (this.tab !== 0) this.open(0);
        this.isSticky = true;
        this.scrollToEnd();
      } catch (error) {
        this.say(error.message);
      }
    };
    this.editor = h("textarea", { rows: "1", placeholder: "Run a cell  (Shift+Enter)", "aria-label": "Code to run", spellcheck: "false", autocomplete: "off", autocapitalize: "off",
      oninput: () => this.grow(), onkeydown: (event) => { if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); } } });
    this.runner = append(button("", run, { class: "primary", "aria-label": "Run" }), [icon("play")]);
    return h("div", { class: "prompt" }, this.editor, this.runner);
  }

  grow() {
    this.editor.style.setProperty("height", "auto");
    this.editor.style.setProperty("height", `${Math.min(260, this.editor.scrollHeight)}px`);
  }

  /** Does what a shortcut names. */
  act(action) {
    if (action === "edit") return this.editor.focus();
    if (action === "interrupt") return void this.attempt(() => post(`${this.path}/interrupt`));
    const pressed = this.list.querySelector(`.question [data-action="${action}"]`);
    if (pressed) pressed.click();
  }
}

customElements.define("belljar-session", BelljarSession);
