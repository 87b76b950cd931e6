// The balancer: what it is doing, why each group is where it is, and what it has decided so far.

import { byId, count, el, keyed, plural, setText, time } from "./dom.js";
import { WHY } from "./words.js";

const STEALS_SHOWN = 8;
const PLANS_SHOWN = 12;
const GROUPS_NAMED = 24;

export class Balancer {
  constructor(live) {
    this.live = live;
    this.all = false;
    byId("steals-more").addEventListener("click", () => {
      this.all = !this.all;
      this.steals();
    });
  }

  draw(changed) {
    const has = (name) => changed === null || name in changed;
    if (has("balancer") || has("policy") || has("tokens") || has("weights")) this.state();
    if (has("groups")) this.reasons();
    if (has("steals")) this.steals();
    if (has("plans") || has("replica_changes")) this.plans();
  }

  state() {
    const { balancer, policy, tokens, weights } = this.live.sections;
    const moving = tokens.map((one) => `Paxos group ${one.group} from node ${one.source} to node ${one.target}`);
    const copying = balancer.get("replica_moves").length;
    let text;
    if (!balancer.get("enabled")) text = "Off on this node (balancer.enabled = false).";
    else if (balancer.get("paused")) text = "Paused: no master is moved until it is resumed.";
    else if (!policy.get("automatic")) text = "The placement was set by hand: a dry run that is adopted makes it plan again.";
    else text = `Automatic, planner ${balancer.get("planner")}.`;
    text += moving.length ? ` Moving ${moving.join(", ")}.` : " Nothing is being moved.";
    if (copying) text += ` ${plural(copying, "Paxos group")} on the way to other nodes.`;
    text += ` Even by ${weights.get("by")} (${weights.get("source")}), placement version ${count(balancer.get("placement_version"))}.`;
    setText(byId("balancer-state"), text);
    setText(byId("pause"), balancer.get("paused") ? "Resume…" : "Pause…");
  }

  reasons() {
    const by = new Map();
    for (const [name, row] of this.live.sections.groups) by.set(row[3], [...(by.get(row[3]) ?? []), name]);
    keyed(
      byId("reasons").tBodies[0],
      [...by].sort(([, a], [, b]) => b.length - a.length),
      ([why]) => why,
      ([why]) => el("tr", {}, el("th", { scope: "row" }, WHY[why] ?? why, " ", el("code", {}, why)), el("td", { class: "number" }), el("td", {})),
      (row, [, names]) => {
        setText(row.children[1], count(names.length));
        const more = names.length - GROUPS_NAMED;
        setText(row.children[2], names.slice(0, GROUPS_NAMED).join(" ") + (more > 0 ? ` and ${more} more` : ""));
      },
    );
  }

  steals() {
    const steals = [...this.live.sections.steals].reverse();
    const shown = this.all ? steals : steals.slice(0, STEALS_SHOWN);
    keyed(
      byId("steals").tBodies[0],
      shown.length ? shown : [null],
      (one) => (one === null ? "none" : `${one.finished_wall_ms} ${one.group}`),
      (one) =>
        one === null
          ? el("tr", {}, el("td", { colspan: 5, class: "quiet" }, "None yet."))
          : el(
              "tr",
              {},
              el("td", {}, time(one.finished_wall_ms)),
              el("td", { class: "number" }, one.group),
              el("td", {}, `${one.source} → ${one.target}`),
              el("td", { class: one.outcome === "done" ? "" : "bad-text" }, one.outcome === "done" ? "✓ done" : `✕ ${one.outcome.replaceAll("_", " ")}`),
              el("td", { class: "number" }, count(Math.round(one.duration_ms))),
            ),
      () => {},
    );
    const more = byId("steals-more");
    more.hidden = steals.length <= STEALS_SHOWN;
    setText(more, this.all ? "Show the last ones" : `Show all ${steals.length}`);
  }

  /** Plans of masters and changes of replica sets, newest first. */
  plans() {
    const plans = this.live.sections.plans.map((one) => ({ ...one, kind: "plan" }));
    const changes = this.live.sections.replica_changes.map((one) => ({ ...one, kind: "copies" }));
    const all = [...plans, ...changes].sort((a, b) => b.wall_ms - a.wall_ms).slice(0, PLANS_SHOWN);
    keyed(
      byId("plans"),
      all.length ? all : [null],
      (one) => (one === null ? "none" : `${one.kind} ${one.wall_ms} ${one.node}`),
      (one) => (one === null ? el("p", { class: "quiet" }, "None yet.") : decision(one)),
      () => {},
    );
  }
}

function decision(one) {
  const isPlan = one.kind === "plan";
  const number = isPlan ? one.moves_count : one.changes_count;
  const what = isPlan ? plural(number, "move") : `${plural(number, "Paxos group")} to other nodes`;
  const rows = isPlan
    ? one.moves.map((move) => [move.group, `${move.source ?? "–"} → ${move.target}`, move.reason])
    : one.changes.map((change) => [change.group, `${change.before.join(" ")} → ${change.after.join(" ")}`, change.reason]);
  const note = isPlan ? `Even by ${one.by}, weights: ${one.weights}. At least ${plural(one.at_least, "move")} needed (proof: ${one.proof}).` : "Which nodes keep the groups.";
  const more = number - rows.length;
  return el(
    "details",
    {},
    el("summary", {}, el("span", { class: "at" }, time(one.wall_ms)), ` ${one.trigger}: ${what}`, el("span", { class: "quiet" }, ` by node ${one.node}`)),
    el("p", { class: "quiet" }, note, more > 0 ? ` The first ${rows.length} are shown.` : ""),
    rows.length
      ? el(
          "table",
          {},
          el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "number" }, "Paxos group"), el("th", { scope: "col" }, "From → to"), el("th", { scope: "col" }, "Reason"))),
          el("tbody", {}, rows.map(([group, way, reason]) => el("tr", {}, el("th", { scope: "row", class: "number" }, group), el("td", {}, way), el("td", {}, reason)))),
        )
      : null,
  );
}
