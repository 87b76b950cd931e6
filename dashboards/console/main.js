// The page: connects what is told (live.js) with what shows it.

import { byId, bytes, count, el, keyed, plural, setAttribute, setText } from "./dom.js";
import { Live } from "./live.js";
import { GroupMap } from "./map.js";
import { Nodes, total } from "./nodes.js";
import { Balancer } from "./balancer.js";
import { consumers, topics } from "./tables.js";
import { dryRun, pauseBalancer } from "./actions.js";
import { post, session, toLogin } from "./session.js";

const TICK_MS = 250;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

const live = new Live(shown, linked, who);
const map = new GroupMap(live);
const nodes = new Nodes(live, (node) => map.colour(node));
const balancer = new Balancer(live);
const topicTable = topics(live);
const consumerTable = consumers(live);

let waiting = false;
let changes = null;

/** Draws with the next frame of the screen, however many pictures came since the last one. */
function shown(changed) {
  if (!waiting) {
    waiting = true;
    changes = changed;
    requestAnimationFrame(draw);
  } else if (changed === null || changes === null) changes = null;
  else {
    for (const [name, keys] of Object.entries(changed)) {
      const known = changes[name];
      changes[name] = name in changes && (known === null || keys === null) ? null : known ? new Set([...known, ...keys]) : keys;
    }
  }
}

function draw() {
  waiting = false;
  const changed = changes;
  map.draw(changed);
  nodes.draw(changed);
  balancer.draw(changed);
  summary();
  banners();
  if (changed === null || changed.topics !== undefined || changed.topics_count !== undefined) topicTable.draw();
  if (changed === null || changed.consumers !== undefined || changed.cut !== undefined) consumerTable.draw();
}

function summary() {
  const groups = [...live.sections.groups.values()];
  const all = [...live.sections.nodes.values()];
  const up = all.filter((one) => one.alive).length;
  const masterless = groups.filter(([master]) => master === null).length;
  const misplaced = groups.filter(([master, , ideal]) => master !== ideal).length - masterless;
  const [produced, fetched, into, out] = total(live);
  const facts = [
    ["Nodes up", `${up} of ${all.length}`, up < all.length ? "✕ some are down" : "✓ all", up < all.length],
    ["Paxos groups", count(groups.length), masterless ? `✕ ${count(masterless)} without a master` : "✓ all have a master", masterless > 0],
    ["Not where they belong", count(misplaced), misplaced ? "! to be moved" : "✓ none", false],
    ["Produce requests", `${count(produced)}/s`, `${bytes(into)}/s in`, false],
    ["Fetch requests", `${count(fetched)}/s`, `${bytes(out)}/s out`, false],
  ];
  keyed(
    byId("summary"),
    facts,
    ([term]) => term,
    ([term]) => el("div", {}, el("dt", {}, term), el("dd", { class: "big" }), el("dd", { class: "note" })),
    (item, [, big, note, bad]) => {
      setText(item.children[1], big);
      setText(item.children[2], note);
      item.children[2].classList.toggle("bad-text", bad);
    },
  );
  const cluster = live.sections.cluster;
  setText(byId("where"), `cluster ${cluster.get("id")}, seen by node ${cluster.get("me")}`);
  setText(document.querySelector("title"), `${masterless || up < all.length ? "! " : ""}Evenkeel ${cluster.get("id")}`);
}

function banners() {
  const unsafe = [...live.sections.nodes].filter(([, one]) => one.answers && one.durability !== "fsync").map(([name]) => name);
  const found = [];
  if (unsafe.length) found.push(["bad", `UNSAFE: without fsync, a power cut takes back acknowledged messages (${plural(unsafe.length, "node")}: ${unsafe.join(", ")}).`]);
  if (live.sections.balancer.get("paused")) found.push(["wait", "The balancer is paused: masters stay where they are until it is resumed."]);
  keyed(
    byId("banners"),
    found,
    ([kind]) => kind,
    ([kind]) => el("p", { class: `banner ${kind}` }),
    (item, [, text]) => setText(item, text),
  );
}

function linked(text, good) {
  setText(byId("link-text"), text);
  setAttribute(byId("link"), "class", `link ${good ? "good" : "bad"}`);
  document.body.classList.toggle("stale", !good);
}

byId("dry-run").addEventListener("click", dryRun);
byId("pause").addEventListener("click", () => pauseBalancer(!live.sections.balancer?.get("paused")));

// Leases run out between two pictures as well; who wants no motion gets them once a second.
setInterval(() => {
  if (document.hidden || calm.matches || !live.sections.groups) return;
  map.countDown();
}, TICK_MS);

live.look();

/** Shows who is logged in; the login comes instead if nobody is. */
async function who() {
  const told = await session(true).catch(() => null);
  if (told === null || !told.login) return;
  setText(byId("user-name"), `${told.user.replace(/^User:/, "")} (${told.role})`);
  byId("user").hidden = false;
}

byId("log-out").addEventListener("click", async () => {
  const told = await session().catch(() => null);
  if (told !== null) await post("logout", {}, told.csrf).catch(() => null);
  toLogin();
});
who();
