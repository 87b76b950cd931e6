// The map: a column for each group, a row for each node, the master's cell filled. A column is one
// button, so that a keyboard walks over groups; what it shows is in its label for who cannot see it.

import { byId, el, keyed, setAttribute, setText } from "./dom.js";
import { ask, moveGroup, pauseGroup, unpinGroup } from "./actions.js";
import { WHY } from "./words.js";

const COLOURS = 10;
const FEW = 20;
const MANY = 60;
const NARROW = 600;
const COLUMNS = "Each column is a Paxos group; its filled cell is its master.";
const COMPACT = "Each box is a Paxos group with its master; 1→2 belongs on node 2.";
const PINNED = 1;
const PAUSED = 2;
const BY_HAND = 4;

export class GroupMap {
  constructor(live) {
    this.live = live;
    this.root = byId("map");
    this.columns = new Map();
    this.nodes = [];
    this.compact = null;
    this.leaseMax = 30;
    this.open = null;
    this.current = null;
    for (const [id, compact] of [["map-nodes", false], ["map-compact", true]]) {
      byId(id).addEventListener("click", () => this.choose(compact));
    }
    this.root.addEventListener("keydown", (event) => this.key(event));
    this.root.addEventListener("click", (event) => {
      const column = event.target.closest(".group");
      if (column) this.show(column.dataset.group);
    });
  }

  /** By default whatever can be overlooked at once. */
  choose(compact) {
    this.compact = compact;
    setAttribute(byId("map-nodes"), "aria-pressed", !compact);
    setAttribute(byId("map-compact"), "aria-pressed", compact);
    setText(byId("map-help"), `${compact ? COMPACT : COLUMNS} Arrow keys move, Enter opens a Paxos group.`);
    this.columns.clear();
    this.root.replaceChildren();
    this.root.classList.toggle("compact", compact);
    this.draw(null);
  }

  draw(changed) {
    const groups = this.live.sections.groups;
    const nodes = [...this.live.sections.nodes.keys()].map(Number).sort((a, b) => a - b);
    if (this.compact === null) {
      const narrow = this.root.clientWidth < NARROW;
      this.nodes = nodes;
      this.choose(groups.size > MANY * 2 || (narrow && groups.size > MANY));
      return;
    }
    if (nodes.join() !== this.nodes.join()) {
      this.nodes = nodes;
      changed = null;
      this.columns.clear();
      this.root.replaceChildren();
    }
    const rows = changed?.groups ?? (changed === null ? groups.keys() : []);
    const names = new Set(rows);
    const down = this.nodes.filter((node) => this.down(node)).join();
    if (down !== this.seenDown) for (const name of groups.keys()) names.add(name);
    this.seenDown = down;
    for (const name of names) this.column(name, groups.get(name));
    if (changed === null || changed.groups) this.arrange(groups);
    this.root.classList.toggle("roomy", groups.size <= FEW && this.root.clientWidth >= NARROW);
    this.leases();
    this.legend();
    if (this.open !== null) this.detail();
  }

  arrange(groups) {
    for (const [name, column] of this.columns) {
      if (!groups.has(name)) {
        column.remove();
        this.columns.delete(name);
      }
    }
    const ordered = [...this.columns.keys()].sort((a, b) => a - b);
    ordered.forEach((name, index) => {
      const column = this.columns.get(name);
      if (this.root.children[index] !== column) this.root.insertBefore(column, this.root.children[index] ?? null);
    });
    if (!this.columns.has(this.current)) this.current = ordered[0] ?? null;
    for (const [name, column] of this.columns) column.tabIndex = name === this.current ? 0 : -1;
  }

  colour(node) {
    return `c${this.nodes.indexOf(node) % COLOURS}`;
  }

  down(node) {
    return this.live.sections.nodes.get(String(node))?.alive === false;
  }

  // -- one group ----------------------------------------------------------------------------------

  column(name, row) {
    let column = this.columns.get(name);
    if (row === undefined) return;
    if (column === undefined) {
      const cells = (this.compact ? [0] : this.nodes).map(() => el("span", { class: "cell" }));
      column = el(
        "button",
        { type: "button", class: "group", "data-group": name },
        el("span", { class: "head" }, name),
        cells,
      );
      column.left = el("span", { class: "left" });
      column.bar = el("span", {});
      column.append(column.left, el("span", { class: "bar" }, column.bar));
      this.columns.set(name, column);
    }
    const [master, , ideal] = row;
    setAttribute(column, "aria-label", this.sentence(name, row));
    column.classList.toggle("misplaced", master !== ideal);
    column.classList.toggle("masterless", master === null);
    const cells = column.querySelectorAll(".cell");
    if (this.compact) this.compactCell(cells[0], row);
    else this.nodes.forEach((node, index) => this.cell(cells[index], node, row));
  }

  cell(cell, node, row) {
    const [master, certain, ideal, , members, wanted] = row;
    const has = members.length === 0 || members.includes(node);
    const gets = wanted.includes(node);
    let kind = "";
    let text = "";
    if (node === master) {
      kind = `master ${this.colour(node)}${certain ? "" : " unsure"}`;
      text = certain ? String(node) : `${node}?`;
    } else if (node === ideal) [kind, text] = ["ideal", "◇"];
    else if (has && wanted.length && !gets) [kind, text] = ["going", "−"];
    else if (has) [kind, text] = ["member", "·"];
    else if (gets) [kind, text] = ["coming", "+"];
    if (master === null && node === ideal) [kind, text] = ["none", "!"];
    setAttribute(cell, "class", `cell ${kind}${this.down(node) ? " down" : ""}`);
    setText(cell, text);
  }

  compactCell(cell, row) {
    const [master, certain, ideal] = row;
    if (master === null) {
      setAttribute(cell, "class", "cell none");
      setText(cell, "!");
      return;
    }
    const to = master === ideal || ideal === null ? "" : `→${ideal}`;
    setAttribute(cell, "class", `cell master ${this.colour(master)}${certain ? "" : " unsure"}`);
    setText(cell, `${master}${certain ? "" : "?"}${to}`);
  }

  sentence(name, row) {
    const [master, certain, ideal, why, , , flags] = row;
    const who = master === null ? "no master" : `master node ${master}${certain ? "" : ", by hearsay"}`;
    const where = master === ideal ? "where it belongs" : ideal === null ? "no ideal node" : `belongs on node ${ideal}: ${WHY[why] ?? why}`;
    const more = (flags & PINNED ? ", pinned" : "") + (flags & PAUSED ? ", paused" : "");
    return `Paxos group ${name}${name === "0" ? ", the registry" : ""}: ${who}, ${where}${more}`;
  }

  // -- leases -------------------------------------------------------------------------------------

  /** Tenths of a second that are left by now, though the last word of it is a moment old. */
  left(index) {
    const told = this.live.sections.leases[index];
    if (told === undefined || told < 0) return -1;
    return Math.max(0, told - Math.floor((performance.now() - this.live.heardAt) / 100));
  }

  /** Between two pictures: where there are many, the pictures are enough. */
  countDown() {
    if (this.columns.size <= MANY) this.leases();
    if (this.open !== null) this.detail();
  }

  leases() {
    let index = 0;
    for (const told of this.live.sections.leases) this.leaseMax = Math.max(this.leaseMax, told);
    for (const name of this.live.sections.groups.keys()) {
      const column = this.columns.get(name);
      const left = this.left(index);
      index += 1;
      if (!column) continue;
      setText(column.left, left >= 0 ? (left / 10).toFixed(1) : "–");
      column.bar.style.transform = `scaleX(${Math.max(0, left) / this.leaseMax})`;
    }
  }

  // -- the nodes above it -------------------------------------------------------------------------

  legend() {
    const masters = new Map();
    for (const [master] of this.live.sections.groups.values()) masters.set(master, (masters.get(master) ?? 0) + 1);
    const ideals = new Map();
    for (const [, , ideal] of this.live.sections.groups.values()) ideals.set(ideal, (ideals.get(ideal) ?? 0) + 1);
    keyed(
      byId("legend"),
      this.nodes,
      (node) => node,
      () => el("li", {}, el("span", { class: "cell" }), el("span", {})),
      (item, node) => {
        setAttribute(item.firstChild, "class", `cell master ${this.colour(node)}`);
        setText(item.firstChild, node);
        const has = masters.get(node) ?? 0;
        const should = ideals.get(node) ?? 0;
        setText(item.lastChild, `master of ${has}, ideal ${should}${this.down(node) ? ", down" : ""}`);
        setAttribute(item, "aria-label", `Node ${node} is master of ${has} Paxos groups and should be of ${should}${this.down(node) ? "; it is down" : ""}`);
      },
    );
  }

  // -- keyboard -----------------------------------------------------------------------------------

  key(event) {
    const columns = [...this.root.children];
    const at = columns.indexOf(document.activeElement);
    if (at < 0) return;
    const perLine = columns.findIndex((one) => one.offsetTop > columns[0].offsetTop);
    const line = perLine < 0 ? columns.length : perLine;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -line, ArrowDown: line, Home: -at, End: columns.length - 1 - at };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = columns[Math.min(columns.length - 1, Math.max(0, at + step))];
    columns[at].tabIndex = -1;
    next.tabIndex = 0;
    this.current = next.dataset.group;
    next.focus();
  }

  // -- one group, opened --------------------------------------------------------------------------

  show(name) {
    this.current = name;
    for (const [other, column] of this.columns) column.tabIndex = other === name ? 0 : -1;
    const row = this.live.sections.groups.get(name);
    const flags = row[6];
    const group = Number(name);
    this.facts = el("dl", { class: "facts" });
    this.open = name;
    const nodes = this.nodes.filter((node) => !this.down(node));
    const button = (text, act) => el("button", { type: "button", onclick: act }, text);
    ask({
      title: group === 0 ? "Paxos group 0, the registry" : `Paxos group ${name}`,
      body: [
        this.facts,
        el(
          "div",
          { class: "buttons" },
          button("Move…", () => this.then(() => moveGroup(group, this.live.sections.groups.get(name), nodes))),
          flags & PINNED ? button("Unpin…", () => this.then(() => unpinGroup(group))) : null,
          flags & PAUSED
            ? button("Resume…", () => this.then(() => pauseGroup(group, false)))
            : button("Pause…", () => this.then(() => pauseGroup(group, true))),
        ),
      ],
      onClose: () => {
        this.open = null;
        this.columns.get(name)?.focus();
      },
    });
    this.detail();
  }

  /** Another question instead of the group's page; the focus comes back to the map afterwards. */
  then(next) {
    const name = this.open;
    this.open = null;
    byId("dialog").close();
    this.columns.get(name)?.focus();
    // The event of the one that was closed comes first.
    setTimeout(next);
  }

  detail() {
    const name = this.open;
    const row = this.live.sections.groups.get(name);
    if (!row) return;
    const [master, certain, ideal, why, members, wanted, flags, weight, epoch] = row;
    const index = [...this.live.sections.groups.keys()].indexOf(name);
    const left = this.left(index);
    const list = (nodes) => (nodes.length ? nodes.join(", ") : "all nodes");
    const facts = [
      ["Master", master === null ? "none" : `node ${master}${certain ? "" : ", by hearsay: it does not say so itself"}`],
      ["Lease left", left >= 0 ? `${(left / 10).toFixed(1)} s` : "none"],
      ["Belongs on", ideal === null ? "–" : `node ${ideal}`],
      ["Verdict", WHY[why] ?? why],
      ["Copies on", list(members)],
      ["Should have copies", `${list(wanted)}${flags & BY_HAND ? ", set by hand" : ""}`],
      ["Pinned", flags & PINNED ? "yes" : "no"],
      ["Paused", flags & PAUSED ? "yes" : "no"],
      ["Weight", weight.toFixed(2)],
      ["Leader epoch", epoch],
    ];
    keyed(
      this.facts,
      facts,
      ([term]) => term,
      ([term]) => el("div", {}, el("dt", {}, term), el("dd", {})),
      (item, [, text]) => setText(item.lastChild, text),
    );
  }
}
