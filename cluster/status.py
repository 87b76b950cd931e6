"""The status of the whole cluster, combined from the reports of every node.

Each node knows its own part for certain and that of others only by hearsay. So a Paxos group's
master is the node that reports that it is *acting* (it holds the lease, in this incarnation, and
hands nothing over). If no node does, the table shows the last known one.
"""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from balancer.machines import machines_of, statement
from cluster import health
from cluster.spec import ClusterSpec, NodeSpec
from cluster.state import NodeState, State
from paxos.ids import GroupId, NodeId

COLUMNS: Final = 80
UNSAFE_BANNER: Final = "UNSAFE: without fsync, a power cut takes back acknowledged messages"


@attrs.frozen(kw_only=True)
class NodeRow:
    """One node: `status` is its own answer, None where it gave none, and `silence` says why."""

    spec: NodeSpec
    state: str
    pid: int | None
    status: Mapping[str, Any] | None
    silence: str = ""


@attrs.frozen(kw_only=True)
class GroupRow:
    group: int
    master: int | None
    """The node that reports itself as the master."""
    last_known: int | None
    ideal: int | None
    lease_left_ms: float
    ballot: tuple[int, int]
    chosen: int
    applied: int
    lag: Mapping[int, int]
    """How many slots each other node is behind, as the master sees it."""


@attrs.frozen(kw_only=True)
class ClusterView:
    cluster_id: str
    nodes: tuple[NodeRow, ...]
    groups: tuple[GroupRow, ...]
    groups_count: int
    """How many there are with the registry's, as the nodes that answer have it."""
    placement_version: int
    cluster_version: int | None
    """None: nodes of before there were cluster versions answer."""
    balancer: Mapping[str, Any] | None
    steals: tuple[Mapping[str, Any], ...]
    """The finished ones that the registry remembers, oldest first."""
    zones: Mapping[int, str] = attrs.field(factory=dict)
    """The machine of each node, where nodes have one."""
    members: Mapping[int, tuple[int, ...]] = attrs.field(factory=dict)
    """The nodes that have each Paxos group."""

    def machines(self) -> list[dict[str, Any]]:
        """What is on each machine (zone), and what its loss would cost."""
        zones = {NodeId(node): zone for node, zone in self.zones.items()}
        members = {GroupId(group): (*map(NodeId, nodes),) for group, nodes in self.members.items()}
        replicas = max((len(nodes) for group, nodes in members.items() if group), default=0)
        counts, up = self.count_by_master(), {row.spec.id for row in self.nodes if row.status}
        found = machines_of(zones, members)
        return [
            {
                "machine": one.machine,
                "nodes": list(one.nodes),
                "answering": [node for node in one.nodes if node in up],
                "masters": sum(counts.get(node, 0) for node in one.nodes),
                "groups": one.groups,
                "crowded": list(one.crowded),
                "stopped_without": list(one.stopped),
                "problem": statement(one, len(found), replicas),
            }
            for one in found
        ]

    def masters(self) -> dict[int, int | None]:
        return {row.group: row.master for row in self.groups}

    def count_by_master(self) -> dict[int, int]:
        """Groups of each node in the spec; those without a master count for none."""
        counts = {row.spec.id: 0 for row in self.nodes}
        for row in self.groups:
            if row.master is not None:
                counts[row.master] += 1
        return counts

    def unknown(self) -> list[str]:
        """What the picture does not show, though it may well exist: a line for each, or none."""
        missing = []
        silent = [str(row.spec.id) for row in self.nodes if row.status is None]
        if len(silent) * 2 >= len(self.nodes):
            missing.append(
                f"no majority answers (silent: node {', '.join(silent)}): "
                "other nodes may report old data about them"
            )
        lost = max(0, self.groups_count - len(self.groups))
        if lost:
            missing.append(f"no node answers for {lost} of {self.groups_count} Paxos groups")
        unled = [str(row.group) for row in self.groups if row.master is None]
        if unled:
            missing.append(f"no answering node is the master of Paxos group {', '.join(unled)}")
        return missing

    @property
    def all_at_ideal(self) -> bool:
        return bool(self.groups) and all(
            row.master is not None and row.master == row.ideal for row in self.groups
        )


async def collect(
    spec: ClusterSpec, state: State | None = None, *, timeout_s: float = health.TIMEOUT_S
) -> ClusterView:
    """Ask all nodes at once; one that does not answer costs at most `timeout_s`."""
    rows: dict[int, NodeRow] = {}

    async def ask(node: NodeSpec) -> None:
        now = None if state is None else state.nodes.get(node.id)
        pid = None if now is None else now.pid
        known = str(now.state) if now is not None else "unknown"
        if now is not None and now.state != NodeState.RUNNING:
            rows[node.id] = NodeRow(spec=node, state=known, pid=pid, status=None, silence=known)
            return
        try:
            answer = await health.call_async(node.http, "GET", "/status", timeout_s=timeout_s)
        except health.HealthError as error:
            row = NodeRow(spec=node, state="silent", pid=pid, status=None, silence=str(error))
        else:
            row = NodeRow(spec=node, state="running", pid=pid, status=answer)
            if answer.get("cluster_id") != spec.cluster_id:
                why = "another cluster answers there"
                row = NodeRow(spec=node, state="silent", pid=pid, status=None, silence=why)
        rows[node.id] = row

    async with trio.open_nursery() as nursery:
        for node in spec.nodes:
            nursery.start_soon(ask, node)
    try:
        return merge(spec.cluster_id, tuple(rows[node.id] for node in spec.nodes))
    except (KeyError, TypeError, ValueError) as error:
        raise health.HealthError(f"a node's status is not as expected: {error!r}") from error


def merge(cluster_id: str, nodes: tuple[NodeRow, ...]) -> ClusterView:
    """Combine the answers; the registry's values come from the node with the newest."""
    answers = [(row.spec.id, row.status) for row in nodes if row.status is not None]
    newest: Mapping[str, Any] = max(
        (status for _, status in answers),
        key=lambda status: int(status["placement_version"]),
        default={},
    )
    by_group: dict[int, dict[int, Mapping[str, Any]]] = {}
    for node_id, status in answers:
        for group in status["groups"]:
            by_group.setdefault(int(group["group"]), {})[node_id] = group
    # A node tells of the groups it has; together those of one version tell of all.
    ideals = {
        int(group["group"]): group["ideal"]
        for _, status in answers
        if int(status["placement_version"]) == int(newest["placement_version"])
        for group in status["groups"]
    }
    # The history of steals is in the registry: nodes differ only in how much of it they know.
    steals = {
        (int(steal["finished_wall_ms"]), int(steal["group"])): steal
        for _, status in answers
        for steal in status["steals"]
    }
    return ClusterView(
        cluster_id=cluster_id,
        nodes=nodes,
        groups=tuple(
            _group_row(group, reports, ideals.get(group))
            for group, reports in sorted(by_group.items())
        ),
        groups_count=int(newest.get("groups_count", -1)) + 1,
        placement_version=int(newest.get("placement_version", 0)),
        cluster_version=max(
            (int(one["cluster_version"]) for _, one in answers if "cluster_version" in one),
            default=None,
        ),
        balancer=newest.get("balancer"),
        steals=tuple(steal for _, steal in sorted(steals.items())),
        zones={int(row["id"]): str(row.get("zone") or "") for row in newest.get("nodes", ())},
        members={
            int(group): tuple(map(int, nodes))
            for group, nodes in newest.get("group_members", {}).items()
        },
    )


def _group_row(group: int, reports: Mapping[int, Mapping[str, Any]], ideal: int | None) -> GroupRow:
    def ballot_of(node_id: int) -> tuple[int, int]:
        round_, owner = reports[node_id]["ballot"]
        return int(round_), int(owner)

    own = [
        node_id
        for node_id, report in reports.items()
        if report["master"] == node_id and report["acting"]
    ]
    witness = max(own or reports, key=lambda node_id: (ballot_of(node_id), node_id))
    report = reports[witness]
    return GroupRow(
        group=group,
        master=witness if own else None,
        last_known=report["master"],
        ideal=ideal,
        lease_left_ms=float(report["lease_left_ms"]),
        ballot=ballot_of(witness),
        chosen=int(report["chosen"]),
        applied=int(report["applied"]),
        lag={int(node): int(slots) for node, slots in report["lag"].items()},
    )


def to_json(view: ClusterView) -> dict[str, Any]:
    """For programs: the same facts as `render`."""
    return {
        "cluster_id": view.cluster_id,
        "unknown": view.unknown(),
        "placement_version": view.placement_version,
        "cluster_version": view.cluster_version,
        "balancer": view.balancer,
        "nodes": [
            {
                "id": row.spec.id,
                "state": row.state,
                "pid": row.pid,
                "kafka": str(row.spec.kafka),
                "http": str(row.spec.http),
                "zone": view.zones.get(row.spec.id, ""),
                "silence": row.silence,
                "insecure_listeners": insecure_listeners(row),
                **{
                    key: None if row.status is None else row.status[key]
                    for key in ("durability", "rss_bytes", "uptime_s", "version", "incarnation")
                },
            }
            for row in view.nodes
        ],
        "machines": view.machines(),
        "groups": [attrs.asdict(row) for row in view.groups],
        "steals": list(view.steals),
    }


def render(view: ClusterView) -> str:
    """For people: at most 80 columns wide."""
    lines = [f"cluster {view.cluster_id}, placement version {view.placement_version}"]
    if view.cluster_version is not None:
        lines[0] += f", cluster version {view.cluster_version}"
    versions = sorted({str(row.status["version"]) for row in view.nodes if row.status is not None})
    if len(versions) > 1:
        lines.append(f"nodes run Evenkeel {' and '.join(versions)}: evenkeel cluster version")
    lines.append(_balancer_line(view.balancer))
    unsafe = [str(row.spec.id) for row in view.nodes if _durability(row) not in ("fsync", "-")]
    if unsafe:
        lines += ["!" * COLUMNS, f"{UNSAFE_BANNER} (node {', '.join(unsafe)})", "!" * COLUMNS]
    lines += _insecure_lines(view)
    lines += ["", "node  state    masters  kafka            metrics          rss     durability"]
    counts = view.count_by_master()
    for row in view.nodes:
        rss = "-" if row.status is None else f"{row.status['rss_bytes'] / 1e6:.0f} MB"
        lines.append(
            f"{row.spec.id:>4}  {row.state:<8} {counts[row.spec.id]:>7}  {row.spec.kafka!s:<16} "
            f"{row.spec.http!s:<16} {rss:<7} {_durability(row)}"
        )
    lines += _machine_lines(view.machines())
    lines += [
        "",
        "Paxos groups",
        "group  master  ideal  lease left  ballot   chosen     applied    behind",
    ]
    for group in view.groups:
        lines.append(_group_line(group))
    if not view.groups:
        lines.append("(no node answers)")
    missing = view.unknown()
    if missing:
        lines.append("")
        for one in missing:
            lines += textwrap.wrap(f"UNKNOWN: {one}", COLUMNS, subsequent_indent="  ")
    return "\n".join(lines)


def insecure_listeners(row: NodeRow) -> list[str]:
    """The listeners of a node that other machines reach, and that prove nobody."""
    status = row.status or {}
    links = {"name": "listen.peer", **status.get("peer_links", {})}
    told = [*status.get("listeners", []), links]
    return [f"{one['name']} ({one['bind']})" for one in told if one.get("insecure")]


def _insecure_lines(view: ClusterView) -> list[str]:
    found = [
        f"node {row.spec.id}: everyone who reaches {', '.join(insecure)} may do everything"
        for row in view.nodes
        if (insecure := insecure_listeners(row))
    ]
    return [one for text in found for one in textwrap.wrap(f"INSECURE: {text}", COLUMNS)]


def _machine_lines(machines: Sequence[Mapping[str, Any]]) -> list[str]:
    """Nothing where nodes have no zones."""
    if not machines:
        return []
    lines = ["", "machine           nodes            up  masters  Paxos groups"]
    for one in machines:
        nodes = ",".join(map(str, one["nodes"]))
        up = f"{len(one['answering'])}/{len(one['nodes'])}"
        lines.append(
            f"{one['machine'][:16]:<16}  {nodes[:12]:<12} {up:>6} {one['masters']:>8} "
            f"{one['groups']:>13}"
        )
    for one in machines:
        if one["problem"]:
            note = f"note: {one['problem']}"
            lines += textwrap.wrap(note, COLUMNS, subsequent_indent="  ")
    return lines


def _balancer_line(balancer: Mapping[str, Any] | None) -> str:
    if balancer is None:
        return "balancer unknown"
    if not balancer["enabled"]:
        return "balancer off (balancer.enabled = false)"
    if balancer["paused"]:
        return "balancer paused; resume it with evenkeel balance resume"
    return f"balancer on, {balancer['state']}"


def _durability(row: NodeRow) -> str:
    return "-" if row.status is None else str(row.status["durability"])


def _group_line(row: GroupRow) -> str:
    if row.master is not None:
        master, lease = str(row.master), f"{row.lease_left_ms / 1000:.1f} s"
    else:
        master, lease = "-" if row.last_known is None else f"({row.last_known})", "-"
    if row.master != row.ideal:
        master += " *"
    ideal = "-" if row.ideal is None else str(row.ideal)
    behind = " ".join(f"{node}:{slots}" for node, slots in sorted(row.lag.items()) if slots)
    ballot = f"{row.ballot[0]}.{row.ballot[1]}"
    line = (
        f"{row.group:>5}  {master:<6}  {ideal:<5}  {lease:<10}  {ballot:<7}  "
        f"{row.chosen:<9}  {row.applied:<9}  {behind or '-'}"
    )
    return line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..."
