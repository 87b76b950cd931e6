// The nodes: how each of them is, what clients do there, and the button that drains it.

import { bytes, byId, count, duration, el, keyed, plural, setAttribute, setText, svg } from "./dom.js";
import { drain } from "./actions.js";

const SECONDS = 300;
const STEPS = [1, 1.5, 2, 3, 5, 7.5, 10];
const WIDTH = 300;
const HEIGHT = 60;
const GAP_S = 4;
const PRODUCED = 1;
const FETCHED = 2;
const IN = 3;
const OUT = 4;

/** [sign, text, kind]: never by colour alone. */
export function health(node) {
  if (!node.alive && node.life === "added") return ["+", "added, has not come yet", "wait"];
  if (!node.alive) return ["✕", node.silent_s === null ? "down" : `down for ${duration(node.silent_s)}`, "bad"];
  if (node.life === "leaving") return ["↘", "leaving", "wait"];
  if (node.draining) return ["↓", "draining", "wait"];
  if (node.answers && node.not_ready) return ["!", `not ready: ${node.not_ready}`, "bad"];
  if (node.disk_low) return ["!", "disk nearly full", "bad"];
  if (node.unfit) return ["!", node.unfit.replaceAll("-", " "), "wait"];
  if (!node.answers) return ["?", "up, and silent about itself", "wait"];
  return ["✓", "up", "good"];
}

export class Nodes {
  constructor(live, colour) {
    this.live = live;
    this.colour = colour;
  }

  draw(changed) {
    this.top = this.scale();
    keyed(
      byId("nodes"),
      [...this.live.sections.nodes].sort(byMachine),
      ([name]) => name,
      ([name]) => this.card(name),
      (card, [name, node]) => this.fill(card, name, node, changed),
    );
  }

  /** The masters of all nodes on this node's machine (its zone). */
  onMachine(node) {
    let masters = 0;
    for (const one of this.live.sections.nodes.values()) {
      if (one.zone === node.zone) masters += one.masters ?? 0;
    }
    return masters;
  }

  /** One scale for all charts, so that they can be compared: a round number. */
  scale() {
    let most = 10;
    for (const rows of this.live.samples.values()) {
      for (const row of rows) most = Math.max(most, row[PRODUCED], row[FETCHED]);
    }
    const power = 10 ** Math.floor(Math.log10(most));
    return power * STEPS.find((one) => one * power >= most);
  }

  card(name) {
    const produce = svg("path", { class: "produce" });
    const fetch = svg("path", { class: "fetch" });
    const top = el("span", { class: "top" });
    const chart = svg(
      "svg",
      { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" },
      svg("path", { class: "rule", d: `M0 ${HEIGHT / 2}H${WIDTH}M0 0.5H${WIDTH}` }),
      fetch,
      produce,
    );
    const button = el("button", { type: "button" });
    button.addEventListener("click", () => {
      const node = this.live.sections.nodes.get(name);
      drain(Number(name), !node.draining, node.masters ?? 0);
    });
    const parts = {
      badge: el("span", { class: "cell master" }, name),
      title: el("h3", { id: `node-${name}` }, `Node ${name}`),
      state: el("p", { class: "state" }),
      link: el("a", { hidden: true }),
      now: el("p", { class: "now" }),
      facts: el("dl", { class: "facts small" }),
    };
    const card = el(
      "article",
      { "aria-labelledby": `node-${name}` },
      el("div", { class: "card-head" }, parts.badge, parts.title, parts.state),
      el(
        "figure",
        {},
        el("div", { class: "plot" }, top, chart),
        el("div", { class: "axis", "aria-hidden": "true" }, el("span", {}, "5 min ago"), el("span", {}, "now")),
        el("figcaption", {}, parts.now),
      ),
      parts.facts,
      el("div", { class: "buttons" }, button, parts.link),
    );
    card.parts = { ...parts, produce, fetch, top, chart, button };
    return card;
  }

  fill(card, name, node, changed) {
    const parts = card.parts;
    const rows = this.live.samples.get(name) ?? [];
    this.plot(parts, name, rows);
    const others = node.zone && changed?.nodes; // a machine's sum changes with any of its nodes
    if (changed !== null && changed.nodes !== null && !others && !changed.nodes?.has(name)) return;
    const [sign, text, kind] = health(node);
    setAttribute(parts.badge, "class", `cell master ${this.colour(Number(name))}`);
    setAttribute(parts.state, "class", `state ${kind}`);
    setText(parts.state, `${sign} ${text}`);
    setText(parts.title, node.zone ? `Node ${name} on ${node.zone}` : `Node ${name}`);
    card.classList.toggle("is-down", !node.alive);
    setText(parts.button, node.draining ? "End drain…" : "Drain…");
    parts.button.hidden = node.life !== "active";
    setAttribute(parts.button, "aria-label", node.draining ? `End the drain of node ${name}` : `Drain node ${name}`);
    this.goThere(parts.link, name, node);
    keyed(
      parts.facts,
      facts(node, this.onMachine(node)),
      ([term]) => term,
      ([term]) => el("div", {}, el("dt", {}, term), el("dd", {})),
      (item, [, value]) => setText(item.lastChild, value),
    );
  }

  /** Each node has such a page: where a browser that came to this one can reach it, by a link. */
  goThere(link, name, node) {
    const me = String(this.live.sections.cluster.get("me"));
    const near = node.http && location.hostname === new URL(`http://${node.http}`).hostname && location.port;
    link.hidden = name === me || !node.alive || !near;
    if (!link.hidden) {
      setAttribute(link, "href", `http://${node.http}/console/`);
      setText(link, `Console of node ${name}`);
    }
  }

  plot(parts, name, rows) {
    const now = this.live.sections.cluster.get("second");
    const last = rows.at(-1);
    const fresh = last !== undefined && now - last[0] <= GAP_S;
    setAttribute(parts.produce, "d", path(rows, PRODUCED, now, this.top));
    setAttribute(parts.fetch, "d", path(rows, FETCHED, now, this.top));
    setText(parts.top, count(this.top));
    const [produced, fetched, into, out] = fresh ? [last[PRODUCED], last[FETCHED], last[IN], last[OUT]] : [0, 0, 0, 0];
    const said = fresh
      ? `produce ${count(produced)}/s (${bytes(into)}/s), fetch ${count(fetched)}/s (${bytes(out)}/s)`
      : "no word from it";
    setText(parts.now, said);
    setAttribute(parts.chart, "aria-label", `Requests per second of node ${name}: now ${said}`);
  }
}

/** The nodes of a machine stand side by side. */
function byMachine([a, one], [b, other]) {
  const zones = (one.zone ?? "").localeCompare(other.zone ?? "");
  return zones || a - b;
}

function facts(node, onMachine) {
  const rows = [["Masters", node.masters === null ? "–" : `${node.masters}, ideal ${node.ideals}`]];
  rows.push(["Copies", count(node.replicas)]);
  if (node.zone) rows.push(["Machine", `${node.zone}, ${plural(onMachine, "master")}`]);
  if (node.capacity !== null && node.capacity !== 100) rows.push(["Capacity", `${node.capacity} %`]);
  if (node.p99_ms) rows.push(["Produce p99", `${count(node.p99_ms)} ms`]);
  if (node.lag) rows.push(["Behind", plural(node.lag, "slot")]);
  if (node.kafka) rows.push(["Kafka", node.kafka]);
  if (!node.answers) return rows;
  rows.push(["Clients", count(node.connections)], ["Memory", `${node.rss_mb} MB`]);
  if (node.disk_free_gb !== null) rows.push(["Disk free", `${count(node.disk_free_gb)} GB`]);
  rows.push(["Up for", duration(node.uptime_s)]);
  if (node.durability !== "fsync") rows.push(["Durability", node.durability]);
  return rows;
}

function path(rows, column, now, top) {
  let drawn = "";
  let before = -Infinity;
  for (const row of rows) {
    const age = now - row[0];
    if (age > SECONDS) continue;
    const x = (WIDTH * (SECONDS - age)) / SECONDS;
    const y = HEIGHT - (HEIGHT * row[column]) / top;
    drawn += `${row[0] - before > GAP_S ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    before = row[0];
  }
  return drawn;
}

/** What all nodes do together, now. */
export function total(live) {
  const sums = [0, 0, 0, 0];
  const now = live.sections.cluster.get("second");
  for (const rows of live.samples.values()) {
    const last = rows.at(-1);
    if (last === undefined || now - last[0] > GAP_S) continue;
    for (const column of [PRODUCED, FETCHED, IN, OUT]) sums[column - 1] += last[column];
  }
  return sums;
}
