// Topics and consumer groups: a row each, and what they consist of under a row that is opened.

import { bytes, byId, count, el, keyed, plural, setAttribute, setText } from "./dom.js";

const ROWS_MAX = 200;
const DETAILS_MAX = 500;
const AGAIN_MS = 3000;

class Table {
  constructor(live, { id, path, section, note, cells, heads, detail }) {
    Object.assign(this, { live, path, section, note, cells, heads, detail });
    this.table = byId(id);
    this.noteElement = byId(`${id}-note`);
    this.find = byId(`${id}-find`);
    this.columns = this.table.tHead.rows[0].cells.length;
    this.open = new Map();
    this.find.addEventListener("input", () => this.draw());
    this.find.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.lookUp(this.find.value.trim());
    });
  }

  draw() {
    const rows = this.live.sections[this.section];
    if (!rows) return;
    const wanted = this.find.value.trim().toLowerCase();
    const found = [...rows].filter(([name]) => name.toLowerCase().includes(wanted));
    for (const [name, one] of this.open) if (one.extra && !rows.has(name)) found.unshift([name, null]);
    const items = [];
    for (const [name, row] of found.slice(0, ROWS_MAX)) {
      items.push({ key: `row ${name}`, name, row });
      if (this.open.has(name)) items.push({ key: `detail ${name}`, name, row, isDetail: true });
    }
    keyed(
      this.table.tBodies[0],
      items,
      (item) => item.key,
      (item) => (item.isDetail ? this.makeDetail(item.name) : this.makeRow(item.name)),
      (element, item) => (item.isDetail ? undefined : this.fillRow(element, item)),
    );
    setText(this.noteElement, this.note(rows.size, found.length, Math.min(found.length, ROWS_MAX)));
  }

  makeRow(name) {
    const button = el("button", { type: "button", class: "open", "aria-expanded": "false" }, el("span", { class: "arrow", "aria-hidden": "true" }), el("span", { class: "name" }, name));
    button.addEventListener("click", () => this.toggle(name));
    const cells = this.heads.map((kind) => el("td", { class: kind }));
    return el("tr", {}, el("th", { scope: "row" }, button), cells);
  }

  fillRow(element, { name, row }) {
    setAttribute(element.querySelector(".open"), "aria-expanded", this.open.has(name));
    const texts = row === null ? this.heads.map(() => "") : this.cells(row);
    texts.forEach((text, index) => setText(element.children[index + 1], text));
  }

  makeDetail(name) {
    const holder = el("td", { colspan: this.columns, class: "detail" }, el("p", { class: "quiet" }, "…"));
    Object.assign(this.open.get(name), { holder, loaded: false });
    this.load(name);
    return el("tr", {}, holder);
  }

  toggle(name) {
    if (this.open.has(name)) this.open.delete(name);
    else this.open.set(name, {});
    this.draw();
  }

  /** A name that is not among those shown. */
  lookUp(name) {
    if (!name) return;
    if (!this.open.has(name)) this.open.set(name, { extra: !this.live.sections[this.section].has(name) });
    this.draw();
  }

  async load(name) {
    const one = this.open.get(name);
    if (!one?.holder?.isConnected && one?.loaded) return; // its row has gone; it may come back
    if (!one?.holder) return;
    one.loaded = true;
    if (!document.hidden) {
      try {
        const answer = await fetch(`${this.path}?name=${encodeURIComponent(name)}`, { cache: "no-store" });
        const value = await answer.json();
        if (answer.ok) this.detail(one.holder, value);
        else say(one.holder, value.error);
      } catch {
        say(one.holder, "The node does not answer.");
      }
    }
    clearTimeout(one.again);
    if (this.open.get(name) === one) one.again = setTimeout(() => this.load(name), AGAIN_MS);
  }
}

function say(holder, text) {
  holder.rows = undefined;
  holder.replaceChildren(el("p", { class: "quiet" }, text));
}

/** A table in an opened row: made once, then only its numbers change. */
function fill(holder, heads, rows, texts) {
  if (holder.rows === undefined) {
    holder.head = el("div", {});
    holder.rows = el("tbody", {});
    const head = heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text));
    holder.replaceChildren(holder.head, el("table", {}, el("thead", {}, el("tr", {}, head)), holder.rows));
  }
  keyed(
    holder.head,
    texts,
    (text) => text,
    () => el("p", { class: "quiet" }),
    (element, text) => setText(element, text),
  );
  keyed(
    holder.rows,
    rows.slice(0, DETAILS_MAX),
    (row) => row.key,
    () => el("tr", {}, heads.map(([, kind], index) => (index ? el("td", { class: kind }) : el("th", { scope: "row", class: kind })))),
    (element, row) => row.cells.forEach((text, index) => setText(element.children[index], text)),
  );
}

export function topics(live) {
  return new Table(live, {
    id: "topics",
    section: "topics",
    path: "topic",
    heads: ["number wide", "number", "number", "number wide", "number wide"],
    cells: ([partitions, copies, records, size, perSecond]) => [count(partitions), count(records), count(perSecond), bytes(size), count(copies)],
    note: (told, found, shown) => {
      const all = live.sections.topics_count;
      const more = all > told ? ` The ${told} largest of ${count(all)}: type a whole name and press Enter for another one.` : "";
      return `${shown < found ? `${shown} of ${found}` : plural(found, "topic")} shown.${more}`;
    },
    detail: (holder, value) => {
      const configs = Object.entries(value.configs).map(([name, one]) => `${name}=${one}`);
      fill(
        holder,
        [["Partition", "number"], ["Paxos group", "number"], ["Master", "number"], ["First offset", "number"], ["Next offset", "number"]],
        value.partitions.map(([index, group, master, start, end]) => ({ key: index, cells: [index, group, master ?? "–", count(start), count(end)] })),
        [configs.length ? `Settings: ${configs.join(", ")}` : "All settings are the cluster's."],
      );
    },
  });
}

export function consumers(live) {
  return new Table(live, {
    id: "consumers",
    section: "consumers",
    path: "consumers",
    heads: ["", "number", "number", "number wide"],
    cells: ([state, kind, members, lag, unknown, coordinator]) => [
      kind === "classic" ? state : `${state} (${kind})`,
      count(members),
      unknown ? `${count(lag)} or more` : count(lag),
      `node ${coordinator}`,
    ],
    note: (told, found, shown) =>
      `${shown < found ? `${shown} of ${found}` : plural(found, "consumer group")} shown.` + (live.sections.cut ? " There is more than can be shown: some are missing, and so are parts of lags." : ""),
    detail: (holder, value) => {
      const clients = value.clients.length ? `Members: ${value.clients.join("; ")}${value.members > value.clients.length ? " and more" : ""}` : "No members.";
      fill(
        holder,
        [["Topic"], ["Partition", "number"], ["Committed", "number"], ["End", "number"], ["Lag", "number"]],
        value.offsets.map(([topic, index, offset, end, lag]) => ({ key: `${topic} ${index}`, cells: [topic, index, count(offset), count(end), count(lag)] })),
        [`${clients} Kept in Paxos group ${value.group}.`],
      );
    },
  });
}
