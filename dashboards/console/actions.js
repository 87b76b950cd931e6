// What the buttons do: the same requests as the command line's, each behind a question.

import { byId, el, setText, plural, count } from "./dom.js";
import { post as send, session, toLogin } from "./session.js";

const dialog = byId("dialog");
const ok = byId("dialog-ok");
let confirmed = null;
let closed = null;

/** Asks the node, as whoever is logged in; the answer, or an Error with what it says. */
async function post(path, body) {
  try {
    return await send(path, body, (await session()).csrf);
  } catch (error) {
    if (error.status === 401) toLogin();
    throw error;
  }
}

export function tell(text) {
  setText(byId("told"), text);
  clearTimeout(tell.timer);
  tell.timer = setTimeout(() => setText(byId("told"), ""), 8000);
}

/**
 * Opens the dialog. `act` does what was confirmed and returns what to say of it; without it there
 * is only something to read. The focus comes back to where it was.
 */
export function ask({ title, body, verb, act, onClose }) {
  const from = document.activeElement;
  setText(byId("dialog-title"), title);
  byId("dialog-body").replaceChildren(...body);
  setText(byId("dialog-error"), "");
  ok.hidden = !act;
  ok.disabled = false;
  setText(ok, verb ?? "OK");
  setText(byId("dialog-cancel"), act ? "Cancel" : "Close");
  confirmed = act ?? null;
  closed = () => {
    onClose?.();
    if (from?.isConnected) from.focus();
  };
  if (!dialog.open) dialog.showModal();
  byId("dialog-cancel").focus();
}

byId("dialog-cancel").addEventListener("click", () => dialog.close());
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close(); // beside it
});
dialog.addEventListener("close", () => {
  confirmed = null;
  const done = closed;
  closed = null;
  done?.();
});
byId("dialog-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const act = confirmed;
  if (act === null || ok.disabled) return;
  ok.disabled = true;
  setText(byId("dialog-error"), "");
  try {
    const said = await act();
    if (said !== null && confirmed === act) {
      dialog.close();
      tell(said);
    }
  } catch (error) {
    setText(byId("dialog-error"), error.message);
  }
  if (confirmed === act) ok.disabled = false;
});

const p = (...text) => el("p", {}, ...text);

export function pauseBalancer(paused) {
  ask(
    paused
      ? {
          title: "Pause the balancer?",
          body: [p("No master is moved until it is resumed. Elections after a crash go on.")],
          verb: "Pause",
          act: async () => {
            await post("admin/balancer", { paused: true });
            return "The balancer is paused.";
          },
        }
      : {
          title: "Resume the balancer?",
          body: [p("It begins to move the masters that are not where they belong.")],
          verb: "Resume",
          act: async () => {
            await post("admin/balancer", { paused: false });
            return "The balancer goes on.";
          },
        },
  );
}

export function drain(node, draining, masters) {
  ask({
    title: draining ? `Drain node ${node}?` : `End the drain of node ${node}?`,
    body: [
      draining
        ? p(`Its ${plural(masters, "master")} will move to other nodes, one after the other, and it gets none until you end the drain.`)
        : p("It gets its share of the masters again."),
    ],
    verb: draining ? "Drain" : "End drain",
    act: async () => {
      await post("admin/drain", { node, draining });
      return draining ? `Node ${node} drains.` : `Node ${node} gets its share again.`;
    },
  });
}

/** The parts of a group's dialog that change something: where it goes, and whether it may move. */
export function moveGroup(group, row, nodes) {
  const [master, , , , members, wanted, flags] = row;
  const able = nodes.filter((node) => wanted.includes(node) || members.includes(node) || !members.length);
  const select = el(
    "select",
    { id: "move-to" },
    able.map((node) => el("option", { value: node }, node === master ? `node ${node} (its master now)` : `node ${node}`)),
  );
  const other = able.find((node) => node !== master);
  if (other !== undefined) select.value = String(other);
  ask({
    title: `Move Paxos group ${group}?`,
    body: [
      p("Its master moves there without an error for a producer, and the Paxos group is pinned: the planner leaves it there until it is unpinned."),
      el("p", {}, el("label", { for: "move-to" }, "Move to "), select),
      flags & 2 ? p("The Paxos group is paused: it moves when it is resumed.") : null,
    ].filter(Boolean),
    verb: "Move and pin",
    act: async () => {
      await post("admin/move", { group, node: Number(select.value) });
      return `Paxos group ${group} moves to node ${select.value}.`;
    },
  });
  select.focus();
}

export function unpinGroup(group) {
  ask({
    title: `Unpin Paxos group ${group}?`,
    body: [p("The planner may move it again.")],
    verb: "Unpin",
    act: async () => {
      await post("admin/move", { group, node: null });
      return `Paxos group ${group} is left to the planner again.`;
    },
  });
}

export function pauseGroup(group, paused) {
  ask({
    title: paused ? `Pause Paxos group ${group}?` : `Resume Paxos group ${group}?`,
    body: [p(paused ? "Its master stays where it is until the Paxos group is resumed." : "Its master may be moved again.")],
    verb: paused ? "Pause" : "Resume",
    act: async () => {
      await post("admin/balancer", { paused, group });
      return paused ? `Paxos group ${group} is paused.` : `Group ${group} may move again.`;
    },
  });
}

export async function dryRun() {
  ask({ title: "Dry run", body: [p("Asking the planner…")] });
  let plan;
  try {
    plan = await post("admin/plan", { dry_run: true });
  } catch (error) {
    setText(byId("dialog-error"), error.message);
    return;
  }
  if (!dialog.open) return;
  const moves = plan.decisions.filter((one) => one.move);
  const proof = plan.certificate;
  const claim =
    proof === null
      ? "No node can be planned for."
      : `${plural(moves.length, "move")}, even by ${plan.by} (${plan.weights}); ` +
        (proof.moves === proof.at_least ? "no equally even plan has fewer." : `at least ${proof.at_least}.`);
  ask({
    title: "Dry run: what a plan would do now",
    body: [p(claim), planNodes(plan), moves.length ? planMoves(moves) : p("Every master is planned to stay where it belongs now.")],
    verb: "Adopt this plan",
    act: async () => {
      const done = await post("admin/plan", { dry_run: false });
      const changed = done.decisions.filter((one) => one.move).length;
      return `Adopted: ${plural(changed, "move")}. The planner goes on by itself.`;
    },
  });
}

function table(heads, rows) {
  const head = heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text));
  return el(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": heads[0][0] },
    el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, rows)),
  );
}

function planNodes(plan) {
  const rows = plan.nodes.map((one) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, `node ${one.id}`),
      el("td", { class: "number" }, count(one.groups_before)),
      el("td", { class: "number" }, count(one.groups_after)),
      el("td", {}, one.unfit ?? "fit"),
    ),
  );
  return table([["Node"], ["Masters now", "number"], ["Planned", "number"], ["State"]], rows);
}

function planMoves(moves) {
  const rows = moves.map((one) =>
    el(
      "tr",
      {},
      el("th", { scope: "row", class: "number" }, one.group),
      el("td", {}, `${one.source ?? "–"} → ${one.target}`),
      el("td", {}, one.detail ? `${one.reason}: ${one.detail}` : one.reason),
    ),
  );
  return table([["Paxos group", "number"], ["From → to"], ["Reason"]], rows);
}
