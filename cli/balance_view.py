"""The balancer for people: what `evenkeel balance ...` prints, at most 80 columns wide."""

import datetime
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

COLUMNS: Final = 80


def show(view: Mapping[str, Any]) -> str:
    """The masters, the ideal masters, and what is moved or why not."""
    policy = view["policy"]
    lines = [
        f"placement {view['placement_version']}, policy {view['policy_version']}, "
        f"seen by node {view['node']}",
        _state_line(view),
        f"even by {view['weights']['by']} ({view['weights']['source']}), "
        f"{policy['steals_max']} steal(s) at once"
        + _when(policy["spread_zones"], ", zones first")
        + _when(policy["preferred_zones"], f", zones {' '.join(policy['preferred_zones'])}"),
        *_published(view["weights"]),
        "",
        "node  zone        capacity  replicas  masters  ideal  p99 ms   state",
    ]
    for node in view["nodes"]:
        p99 = "-" if node["produce_p99_ms"] is None else f"{node['produce_p99_ms']:.1f}"
        lines.append(
            f"{node['id']:>4}  {node['zone'] or '-':<10.10}  {node['capacity']:>7}%  "
            f"{node['replicas']:>8}  {node['masters']:>7}  {node['ideals']:>5}  {p99:>6}   "
            f"{node['unfit'] or 'fit'}"
        )
    lines += ["", "Paxos groups", "group  master  ideal  weight  nodes               why"]
    for group in view["groups"]:
        pin = _when(group["pinned"], ", pinned") + _when(group["paused"], ", paused")
        lines.append(
            f"{group['group']:>5}  {_or_dash(group['master']):>6}  {_or_dash(group['ideal']):>5}  "
            f"{group['weight']:>6.2f}  {_nodes(group):<18}  {group['why']}{pin}"
        )
    return _cut(lines)


def _published(weights: Mapping[str, Any]) -> list[str]:
    """Who published the registry's weights, when, and whether they are used."""
    last = weights.get("published")
    if last is None:
        return []
    used = "in use" if weights["by"] == "weight" else "not in use: evenness=count"
    used = used if last["fresh"] else "out of date: ignored"
    when = _time(last["computed_wall_ms"])
    return [f"weights of {when} published by {last['source']}: {used}"]


def _nodes(group: Mapping[str, Any]) -> str:
    """The nodes with a group; `+`: will get it, `-`: will drop it."""
    members, wanted = group["members"], group["replica_set"]
    if not members:
        return "all"
    marks = {node: "-" for node in members if node not in wanted}
    marks |= {node: "+" for node in wanted if node not in members}
    there = [f"{marks.get(node, '')}{node}" for node in sorted({*members, *wanted})]
    return " ".join(there) + _when(group["set_by_hand"], " by hand")


def _state_line(view: Mapping[str, Any]) -> str:
    if view["paused"]:
        return "paused: resume it with evenkeel balance resume"
    if not view["policy"]["automatic"]:
        return "placement set by hand: evenkeel balance run starts automatic planning again"
    moving = [f"{one['group']} ({one['source']} to {one['target']})" for one in view["tokens"]]
    doing = f"moving Paxos group {', '.join(moving)}" if moving else "nothing is being moved"
    copying = len(view["replica_moves"])
    doing += _when(copying, f", {copying} Paxos group(s) moving to other nodes")
    return f"automatic, planner {view['planner']}, {doing}"


def plan(answer: Mapping[str, Any], without: Iterable[int], *, explain: bool) -> str:
    """A plan, and what it would lead to."""
    decisions = answer["decisions"]
    moves = [one for one in decisions if one["move"]]
    gone = sorted(without)
    lines = []
    if gone:
        hit = sum(one["source"] in gone for one in decisions)
        lines += [
            f"if node {' and '.join(map(str, gone))} died: {hit} Paxos group(s) would have no "
            f"master for about a lease,",
            "then elect one of their other members; after balancer.dead_after_ms this plan:",
        ]
    certificate = answer["certificate"]
    if certificate is None:
        lines.append("no usable node: everything stays where it is")
    else:
        proven = certificate["moves"] == certificate["at_least"]
        claim = (
            "no equally even plan has fewer" if proven else f"at least {certificate['at_least']}"
        )
        lines.append(
            f"{len(moves)} move(s), even by {answer['by']} ({answer['weights']}); "
            f"{claim} (proof: {certificate['proof']})"
        )
    lines += ["", "node  masters now  planned  weight now  planned  state"]
    for node in answer["nodes"]:
        now, then = node["weight_before"], node["weight_after"]
        lines.append(
            f"{node['id']:>4}  {node['groups_before']:>11}  {node['groups_after']:>7}  "
            f"{now:>10.2f}  {then:>7.2f}  {node['unfit'] or 'fit'}"
        )
    lines += _replica_plan(answer["replicas"])
    shown = decisions if explain else moves
    if shown:
        lines += ["", "moves of Paxos groups", "group  from  to    reason"]
    for one in shown:
        detail = f": {one['detail']}" if one["detail"] else ""
        lines.append(
            f"{one['group']:>5}  {_or_dash(one['source']):>4}  {_or_dash(one['target']):>4}  "
            f"{one['reason']}{detail}"
        )
    return _cut(lines)


def _replica_plan(replicas: Mapping[str, Any] | None) -> list[str]:
    """Which groups should go to other nodes, before their masters do."""
    if replicas is None or not replicas["moves"]:
        return []
    mib = replicas["bytes"] / 2**20
    lines = [
        "",
        f"{len(replicas['moves'])} replica set(s) of Paxos groups change, {mib:.1f} MiB are copied",
    ]
    lines[-1] += f" (proof: {replicas['proof']})"
    lines += ["group  from                to                  reason"]
    for one in replicas["moves"]:
        before, after = (" ".join(map(str, one[key])) for key in ("before", "after"))
        detail = _when(one["detail"], f": {one['detail']}")
        lines.append(f"{one['group']:>5}  {before:<18}  {after:<18}  {one['reason']}{detail}")
    return lines


def _replica_changes(changes: list[Mapping[str, Any]]) -> list[str]:
    lines = ["", "replica sets, newest first"]
    for one in reversed(changes):
        lines.append(
            f"  {_time(one['wall_ms'])}  node {one['node']}: {one['trigger']}; "
            f"{one['changes_count']} Paxos group(s)"
        )
        for change in one["changes"]:
            before, after = (" ".join(map(str, change[key])) for key in ("before", "after"))
            lines.append(
                f"    Paxos group {change['group']}: {before} to {after}, {change['reason']}"
            )
    return lines if changes else [*lines, "  (none)"]


def history(view: Mapping[str, Any]) -> str:
    """The last plans with their reasons, and the last steals."""
    lines = ["plans, newest first"]
    for one in reversed(view["plans"]):
        reasons = Counter(move["reason"] for move in one["moves"])
        lines += [
            f"  {_time(one['wall_ms'])}  node {one['node']}: {one['trigger']}; "
            f"{one['moves_count']} move(s), by {one['weights']}, proof {one['proof']}",
            "    " + ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items())),
        ]
        lines += [
            f"    Paxos group {move['group']}: {_or_dash(move['source'])} to {move['target']}, "
            f"{move['reason']}"
            for move in one["moves"]
        ]
    if not view["plans"]:
        lines.append("  (none)")
    lines += _replica_changes(view["replica_changes"])
    lines += [
        "",
        "steals of Paxos groups, newest first",
        "  finished  group  from  to  outcome      ms",
    ]
    for steal in reversed(view["steals"]):
        lines.append(
            f"  {_time(steal['finished_wall_ms'])}  {steal['group']:>5}  {steal['source']:>4}  "
            f"{steal['target']:>2}  {steal['outcome']:<9}  {steal['duration_ms']:>7.1f}"
        )
    if not view["steals"]:
        lines.append("  (none)")
    return _cut(lines)


def _time(wall_ms: int) -> str:
    moment = datetime.datetime.fromtimestamp(wall_ms / 1_000, tz=datetime.UTC)
    return moment.astimezone().strftime("%H:%M:%S")


def _when(condition: object, text: str) -> str:
    return text if condition else ""


def _or_dash(value: int | None) -> str:
    return "-" if value is None else str(value)


def _cut(lines: list[str]) -> str:
    return "\n".join(
        line if len(line) <= COLUMNS else line[: COLUMNS - 3] + "..." for line in lines
    )
