"""A fresh cluster, two clients, and one group that is moved round and round between its nodes."""

import re
import shutil
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.handoff.clients import Follower, Probe
from benchmarks.handoff.figures import MS, Interval, Move, Result, Run, gap_ms, watched
from benchmarks.handoff.raw import keep
from benchmarks.load.frames import TargetError
from benchmarks.load.samples import SampleFolder
from cluster import health, state, status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import ClusterSpec, plan

NODES: Final = 3
GROUPS: Final = 3
SETTLE_S: Final = 60.0
WARM_UP_S: Final = 3.0
TAIL_MS: Final = 60
"""The handover interval ends this long after the new master acts."""
REDIRECT_MS: Final = 500
"""... and the redirect interval this long after the old master stopped forwarding."""
QUIET_MS: Final = 300
POLL_S: Final = 0.01
OVERRIDES: Final = (
    "balancer.hold_down_ms=300",
    "balancer.interval_ms=50",
    "balancer.steal_deadline_ms=6000",
    "balancer.token_ms=12000",
)
TOPIC: Final = "handoff"
NOT_LEADER: Final = re.compile(r'^evenkeel_errors_total\{code="6"\} ([0-9.]+)$', re.MULTILINE)
FORWARDED: Final = re.compile(r"^evenkeel_forwarded_total ([0-9.]+)$", re.MULTILINE)


async def in_thread(call: Any) -> Any:  # noqa: ANN401 (whatever the call returns)
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


@attrs.define
class Cluster:
    spec: ClusterSpec
    launcher: Launcher
    redirect_ms: int
    """The length of the redirect interval."""
    group: int = 0

    async def status_of(self, node: int) -> Any:  # noqa: ANN401 (JSON)
        return await health.call_async(self.spec.node(node).http, "GET", "/status")

    async def view(self) -> status.ClusterView:
        return await status.collect(self.spec, self.launcher.now())

    async def counted(self, pattern: re.Pattern[str]) -> int:
        """The sum of a counter over all nodes."""
        total = 0.0
        for node in self.spec.nodes:
            ask = partial(health.request, node.http, "GET", "/metrics")
            _, text = await in_thread(ask)
            found = pattern.search(text.decode())
            total += float(found.group(1)) if found else 0.0
        return int(total)

    async def place(self, target: int) -> None:
        await health.place(self.spec.nodes[0].http, {"placement": {str(self.group): target}})

    async def until_even(self) -> None:
        with trio.move_on_after(SETTLE_S):
            while True:
                if (await self.view()).all_at_ideal:
                    return
                await trio.sleep(0.1)
        raise TargetError(f"masters are not where they belong after {SETTLE_S:.0f} s")


async def measure(
    run: Run, overrides: tuple[str, ...], samples: SampleFolder | None = None
) -> Result:
    """Move the topic's only partition round and round under a steady load.

    Raises:
        TargetError: if the cluster does not do what it is asked for in time.
    """
    state.DEFAULT_DATA_DIR.mkdir(parents=True, exist_ok=True)
    data_dir = Path(tempfile.mkdtemp(prefix="handoff-", dir=state.DEFAULT_DATA_DIR))
    settings = (
        *OVERRIDES,
        f"balancer.strategy={run.strategy}",
        f"balancer.forward_grace_ms={run.grace_ms}",
        *overrides,
    )
    try:
        spec, _ = plan(data_dir, node_count=NODES, groups=GROUPS, fixed_ports=False)
        async with launch(spec, overrides=settings) as launcher:
            await launcher.start_all()
            cluster = Cluster(spec, launcher, run.grace_ms + REDIRECT_MS)
            await cluster.until_even()
            create = partial(workload.create_topic, partitions=1, replication=NODES)
            await in_thread(partial(create, spec.bootstrap, TOPIC))
            result = await _with_clients(cluster, run, samples)
            launcher.hurry.set()  # nobody needs its data: no graceful end
            return result
    finally:
        shutil.rmtree(data_dir)


async def _with_clients(cluster: Cluster, run: Run, samples: SampleFolder | None) -> Result:
    probe = Probe(cluster.spec.bootstrap, TOPIC, run.rate, idempotent=run.idempotent)
    follower = Follower(cluster.spec.bootstrap, TOPIC)
    follower.start()
    probe.start()
    done: list[Move] = []
    try:
        await trio.sleep(WARM_UP_S)
        cluster.group = await _busiest_group(cluster)
        first = await _first_contacts(cluster)
        refused, forwarded = await _counters(cluster)
        master = _master(await cluster.view(), cluster.group)
        for _ in range(run.moves):
            target = master % NODES + 1
            done.append(await _move(cluster, master, target))
            master = target
    finally:
        await in_thread(probe.stop)
        await in_thread(partial(follower.stop_after, len(probe.sent_ns) - 1))
    refused_after, forwarded_after = await _counters(cluster)
    if samples is not None:
        keep(samples, run, probe, follower, first=first, done=done, nodes=NODES, groups=GROUPS)
    acks_ns = [at for at, _ in probe.acked]
    reads_ns = [at for at, _ in follower.got]
    read = [number for _, number in follower.got]
    acknowledged = {number for _, number in probe.acked}
    return Result(
        run=run,
        moves=tuple(done),
        produce=watched(acks_ns, done),
        fetch=watched(reads_ns, done),
        first_contact_ms=tuple(
            max(gap_ms(times, move.handover), gap_ms(times, move.redirect))
            for move in first
            for times in (acks_ns, reads_ns)
        ),
        sent=len(probe.sent_ns),
        acknowledged=len(acknowledged),
        errors=(*probe.errors, *follower.errors),
        lost=len(acknowledged - set(read)),
        duplicates=len(read) - len(set(read)),
        refusals=refused_after - refused,
        forwarded=forwarded_after - forwarded,
        phases_ms=_phases(done),
    )


async def _counters(cluster: Cluster) -> tuple[int, int]:
    return await cluster.counted(NOT_LEADER), await cluster.counted(FORWARDED)


async def _first_contacts(cluster: Cluster) -> list[Move]:
    """One round of moves, reported apart: after it each client knows each node, as most clients do.

    librdkafka opens a connection when it first has something to send to a node, which takes a
    while.
    """
    master = _master(await cluster.view(), cluster.group)
    moves = []
    for _ in range(NODES):
        target = master % NODES + 1
        moves.append(await _move(cluster, master, target))
        master = target
    return moves


async def _busiest_group(cluster: Cluster) -> int:
    """The group of the topic's partition: the one whose log grows."""
    before = {row.group: row.applied for row in (await cluster.view()).groups}
    await trio.sleep(0.5)
    after = {row.group: row.applied for row in (await cluster.view()).groups}
    return max(after, key=lambda group: after[group] - before.get(group, 0))


def _master(view: status.ClusterView, group: int) -> int:
    master = view.masters()[group]
    if master is None:
        raise TargetError(f"group {group} has no master")
    return master


async def _move(cluster: Cluster, source: int, target: int) -> Move:
    began_ns, began_wall_ms = time.monotonic_ns(), time.time_ns() / MS
    await cluster.place(target)

    def newest(status_: Any, name: str) -> Any:  # noqa: ANN401 (JSON)
        rows = [row for row in status_[name] if row["group"] == cluster.group]
        return rows[-1] if rows and rows[-1]["finished_wall_ms"] > began_wall_ms else None

    with trio.move_on_after(SETTLE_S):
        while True:
            stolen = newest(await cluster.status_of(target), "steals")
            given = newest(await cluster.status_of(source), "handovers")
            if stolen is not None and stolen["outcome"] == "done" and given is not None:
                break
            await trio.sleep(POLL_S)
        move = _as_move(cluster, source, target, stolen, given, began_ns)
        rest_ns = move.redirect.to_ns - time.monotonic_ns()
        await trio.sleep(rest_ns / 1e9 + QUIET_MS / 1e3)
        return move
    raise TargetError(f"group {cluster.group} did not move from {source} to {target}")


def _as_move(
    cluster: Cluster,
    source: int,
    target: int,
    stolen: Any,  # noqa: ANN401 (JSON)
    given: Any,  # noqa: ANN401
    began_ns: int,
) -> Move:
    to_monotonic_ns = time.monotonic_ns() - time.time_ns()
    phases = {**given["phases_ms"], "handover": stolen["handover_ms"]}
    frozen_ms = given["finished_wall_ms"] - phases["freeze"] - phases["propose"]
    frozen_ns = int(frozen_ms * MS) + to_monotonic_ns
    acts_ns = int(stolen["finished_wall_ms"] * MS) + to_monotonic_ns
    handover = Interval(min(frozen_ns, acts_ns), acts_ns + TAIL_MS * MS)
    length_ns = min(handover.to_ns - handover.from_ns, QUIET_MS * MS)
    return Move(
        source=source,
        target=target,
        quiet=Interval(began_ns - length_ns, began_ns),
        handover=handover,
        redirect=Interval(handover.to_ns, handover.to_ns + cluster.redirect_ms * MS),
        phases_ms=phases,
    )


def _phases(moves: list[Move]) -> dict[str, list[float]]:
    phases: dict[str, list[float]] = defaultdict(list)
    for move in moves:
        for name, value in move.phases_ms.items():
            phases[name].append(value)
    return dict(phases)
