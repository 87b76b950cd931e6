"""`evenkeel data usage` without a directory: what the nodes of a running cluster hold, what they
will need, and whether it will fit (GET /usage of each, runtime.upkeep.disk_usage)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs
import trio

from cluster import health
from cluster.spec import ClusterSpec, NodeSpec
from cluster.state import NodeState, State

COLUMNS: Final = 80
TOPICS_SHOWN_MAX: Final = 20
UNITS: Final = ("B", "KB", "MB", "GB", "TB", "PB")
KINDS: Final = ("log", "cold", "checkpoints")


@attrs.frozen
class NodeUse:
    """`answer` None: it gave none, and `silence` says why."""

    node: int
    answer: Mapping[str, Any] | None
    silence: str = ""


async def collect(
    spec: ClusterSpec, state: State | None, *, timeout_s: float = health.TIMEOUT_S
) -> tuple[NodeUse, ...]:
    """Ask all nodes at once."""
    found: dict[int, NodeUse] = {}

    async def ask(node: NodeSpec) -> None:
        now = None if state is None else state.nodes.get(node.id)
        if now is not None and now.state != NodeState.RUNNING:
            found[node.id] = NodeUse(node.id, None, str(now.state))
            return
        try:
            answer = await health.call_async(node.http, "GET", "/usage", timeout_s=timeout_s)
        except health.HealthError as error:
            found[node.id] = NodeUse(node.id, None, str(error))
        else:
            found[node.id] = NodeUse(node.id, answer)

    async with trio.open_nursery() as nursery:
        for node in spec.nodes:
            nursery.start_soon(ask, node)
    return tuple(found[node.id] for node in spec.nodes)


def to_json(uses: Sequence[NodeUse]) -> list[dict[str, Any]]:
    """For programs: what each node says, all of it."""
    return [
        {"node": one.node, "silence": one.silence} if one.answer is None else dict(one.answer)
        for one in uses
    ]


# --- for people ----------------------------------------------------------------------------------


def size(value: float | None, unknown: str = "-") -> str:
    if value is None:
        return unknown
    for unit in UNITS[:-1]:
        if abs(value) < 999.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 99.95 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} {UNITS[-1]}"


def duration(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def render(uses: Sequence[NodeUse]) -> str:
    """At most 80 columns wide."""
    lines = ["node       held        log       cold  checkpts  predicted    at most      limit"]
    lines += [*map(_node_line, uses), "", *_topic_lines(uses), "", *_words(uses)]
    return "\n".join(line[:COLUMNS].rstrip() for line in lines)


def _node_line(use: NodeUse) -> str:
    answer = use.answer
    if answer is None:
        return f"{use.node:>4}  {use.silence}"
    log, cold, checkpoints = (size(answer["held"][kind]) for kind in KINDS)
    predicted = size(answer["predicted_bytes"], "not yet")
    bound = "no bound" if answer["unbounded_count"] else size(answer["bound_bytes"], "not yet")
    return (
        f"{use.node:>4} {size(answer['held_bytes']):>10} {log:>10} {cold:>10} {checkpoints:>9} "
        f"{predicted:>10} {bound:>10} {size(answer['limit_bytes']):>10}"
    )


@attrs.define
class _Sum:
    """A topic on all nodes that answer."""

    partitions: int = 0
    held: float = 0
    per_s: float | None = None
    predicted: float | None = 0
    bound: float | None = 0
    unbounded: str = ""


def _topic_lines(uses: Sequence[NodeUse]) -> Iterator[str]:
    sums: dict[str, _Sum] = {}
    for use in uses:
        for row in [] if use.answer is None else use.answer["topics"]:
            _add(sums.setdefault(row["topic"], _Sum()), row)
    if not sums:
        yield "no topic has data"
        return
    yield "topic, on all nodes           copies       held   a second  predicted    at most"
    largest = sorted(sums, key=lambda name: (-sums[name].held, name))
    for name in largest[:TOPICS_SHOWN_MAX]:
        one = sums[name]
        shown = name if len(name) <= 28 else name[:25] + "..."
        predicted = "no end" if one.unbounded else size(one.predicted, "not yet")
        bound = "no bound" if one.unbounded else size(one.bound, "not yet")
        per_s = size(one.per_s, "not yet")
        yield (
            f"{shown:<28} {one.partitions:>7} {size(one.held):>10} {per_s:>10} "
            f"{predicted:>10} {bound:>10}"
        )
    answers = [use.answer for use in uses if use.answer is not None]
    hidden = max(0, len(largest) - TOPICS_SHOWN_MAX)
    hidden += max(answer["others"]["count"] for answer in answers)
    if hidden:
        yield f"... and {hidden} smaller ones"


def _add(to: _Sum, row: Mapping[str, Any]) -> None:
    to.partitions += row["partitions"]
    to.held += row["held_bytes"]
    if row["bytes_per_s"] is not None:
        to.per_s = (to.per_s or 0.0) + row["bytes_per_s"]
    to.predicted = _plus(to.predicted, row["predicted_bytes"])
    to.bound = _plus(to.bound, row["bound_bytes"])
    to.unbounded = to.unbounded or row["unbounded"]


def _plus(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _words(uses: Sequence[NodeUse]) -> Iterator[str]:
    """Whether it fits, and what to do if not."""
    answers = [use.answer for use in uses if use.answer is not None]
    if not answers:
        yield "no node answers"
        return
    if not all(answer["rates_known"] for answer in answers):
        yield "rates are not known yet: they need two passes over all topics"
        yield "(storage.retention_check_ms apart); ask again"
        return
    late = [answer for answer in answers if not answer["fits"]]
    for answer in late:
        when = answer["full_in_s"]
        left = "is full now" if when == 0 else f"is full in {duration(when)} at today's rates"
        yield f"IT WILL NOT FIT: node {answer['node']} {left}"
    endless = sorted({name for answer in answers for name in answer["unbounded"]})
    if endless:
        named = ", ".join(endless)
        yield f"without a bound, counted with their present size: {named}"
    if late:
        yield "lower retention.ms or retention.bytes (evenkeel topic), add a node, or a disk"
    else:
        least = min(answer["measured_s"] for answer in answers)
        yield f"it fits, at the rates of the last {duration(min(least, 3_600))}"
