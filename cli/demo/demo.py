"""`evenkeel demo`: shows Evenkeel in under two minutes, with real processes and a real Kafka
client.

Everything is shown on the real thing and checked: masters are concentrated on one node and stolen
back one by one while a producer continues, a node is killed with SIGKILL and comes back, and a
fresh consumer then proves that nothing acknowledged was lost, repeated or reordered. A failed check
makes the exit code 1.
"""

import argparse
import logging
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs
import trio
from rich.console import Console

from cli.demo import report as demo_report
from cli.demo.report import Findings, Move
from cli.demo.view import LiveView, PlainView, View
from cluster import health, recorder, state, status, workload
from cluster.launcher import Launcher, StartError, launch
from cluster.spec import ClusterSpec, plan
from cluster.status import ClusterView
from cluster.workload import LoadProducer, SteadyProducer, WorkloadError
from history.checker import check
from history.record import Op, Record

NODES: Final = 3
PARTITIONS: Final = 12
"""And as many Paxos groups: in a new cluster partition p of the first topic is in group p + 1,
because the registry gives each partition to the group with the fewest, the lowest number among
equals."""
TOPIC: Final = "demo"
LOAD_TOPIC: Final = "demo-load"
BUSY_NODE: Final = 1
"""The node that gets all masters."""
VICTIM: Final = 2
"""The node that is killed."""

DEMO_S_MAX: Final = 110.0
LOOK_EVERY_S: Final = 0.2
STEADY_RATE: Final = 2400
LOAD_BYTES: Final = 100
WARM_UP_S: Final = 1.0
MEASURE_S: Final = 4.0
MOVE_S_MAX: Final = 30.0
READ_S_MAX: Final = 30.0
FIRST_S: Final = 0.5
STABLE_S: Final = 1.0
AFTER_STEAL_MS: Final = 1500
"""An old master forwards for balancer.forward_grace_ms, and only then redirects its clients."""
LEASE_MS: Final = 3000
"""Waiting for a lease to expire takes longer than this; a steal must not."""

_T = TypeVar("_T")


class DemoError(RuntimeError):
    """The demonstration cannot continue; the message says why."""


DEMO_ERRORS: Final = (DemoError, WorkloadError, StartError, health.HealthError)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, metavar="DIR", help="keep all files in this directory")
    parser.add_argument("--plain", action="store_true", help="plain lines, even on a terminal")


def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    """Run the whole demonstration; returns the exit code."""
    given: Path | None = options.data
    if given is not None and (given / "cluster.json").exists():
        raise state.StateError(f"{given} already holds a cluster: --data must be a new directory")
    directory = _new_directory() if given is None else given
    console = Console(highlight=False)
    live = console.is_terminal and not options.plain
    view: View = LiveView(console) if live else PlainView(partial(print, flush=True))
    spec, _ = plan(directory, node_count=NODES, groups=PARTITIONS, fixed_ports=False)
    demo = Demo(spec, view)
    spec.data_dir.mkdir(parents=True, exist_ok=True)
    client_log = logging.FileHandler(spec.data_dir / "clients.log")
    workload.CLIENT_LOG.addHandler(client_log)
    workload.CLIENT_LOG.propagate = False
    try:
        trio.run(demo.play)
    except BaseExceptionGroup as group:
        if group.split(KeyboardInterrupt)[1] is None:
            raise KeyboardInterrupt from group
        raise
    finally:
        view.close()
        workload.CLIENT_LOG.removeHandler(client_log)
        client_log.close()
    for part in demo_report.render(demo.findings):
        console.print(part)
    if given is None and demo.findings.passed:
        shutil.rmtree(directory)
    else:
        console.print(f"data, logs and history.jsonl are in {directory}", soft_wrap=True)
    return 0 if demo.findings.passed else 1


def _new_directory() -> Path:
    """Below ./data, on the user's disk: /tmp may be memory, where an fsync costs nothing."""
    state.DEFAULT_DATA_DIR.mkdir(exist_ok=True)
    return Path(tempfile.mkdtemp(prefix="demo-", dir=state.DEFAULT_DATA_DIR))


@attrs.define
class Demo:
    """The script; its results are in `findings`."""

    spec: ClusterSpec
    view: View
    findings: Findings = attrs.Factory(Findings)
    _now: ClusterView | None = None
    _looked: trio.Event = attrs.Factory(trio.Event)
    _facts: Callable[[], Mapping[str, str]] = dict
    _producers: list[SteadyProducer] = attrs.Factory(list)
    _history: list[Record] = attrs.Factory(list)
    _load_acknowledged: int = 0
    _load_errors: int = 0

    async def play(self) -> None:
        """Run the whole script; whatever stops it counts as a failed check."""
        began = time.monotonic()
        try:
            with trio.fail_after(DEMO_S_MAX):
                async with launch(self.spec, report=self.view.note) as cluster:
                    await self._play_on(cluster)
        except trio.TooSlowError:
            self.findings.check(self.findings.phase, False, f"not done in {DEMO_S_MAX:.0f} s")
        except DEMO_ERRORS as error:
            self.findings.check(self.findings.phase, False, str(error))
        self.findings.seconds = time.monotonic() - began

    async def _play_on(self, cluster: Launcher) -> None:
        self._phase(f"start {NODES} nodes")
        await cluster.start_all()
        try:
            state.remember(self.spec.data_dir, os.environ)
        except OSError as error:
            self.view.note(f"evenkeel status needs --data {self.spec.data_dir} ({error})")
        setback: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch, cluster)
            try:
                await self._produce_and_consume()
                await self._concentrate()
                await self._measure("concentrated on one node")
                await self._balance()
                await self._measure("balanced")
                await self._crash(cluster)
                await self._read_back()
            except DEMO_ERRORS as error:
                setback = error
            nursery.cancel_scope.cancel()
        if setback is not None:
            raise setback

    # ---- scenes ----------------------------------------------------------------------------------

    async def _produce_and_consume(self) -> None:
        self._phase(f"create a topic with {PARTITIONS} partitions, produce and consume")
        await self._until(_every_group_has_a_master, "every Paxos group has a master")
        for topic in (TOPIC, LOAD_TOPIC):
            create = partial(workload.create_topic, partitions=PARTITIONS, replication=NODES)
            await _in_thread(partial(create, self.spec.bootstrap, topic))
        async with self._steady("first") as producer:
            await trio.sleep(FIRST_S)
        read = await _in_thread(
            partial(
                workload.read_as_group,
                self.spec.bootstrap,
                TOPIC,
                group="demo-group",
                count=producer.acknowledged,
                seconds_max=READ_S_MAX,
            )
        )
        self._history += read
        values = [str(one.value) for one in read if one.op == Op.POLL]
        self.findings.check(
            "a consumer group reads what a producer sent",
            sorted(values) == sorted(str(one.value) for one in producer.history),
            f"{producer.acknowledged:,} acknowledged, {len(values):,} read",
        )

    async def _concentrate(self) -> None:
        self._phase(f"all masters to node {BUSY_NODE}")
        began = trio.current_time()
        version = await self._place({"all_on": BUSY_NODE})

        def concentrated(view: ClusterView) -> bool:
            return view.placement_version >= version and all(
                row.master == row.ideal == BUSY_NODE for row in view.groups
            )

        view = await self._until(concentrated, f"node {BUSY_NODE} is master of all Paxos groups")
        self.findings.check(
            f"all masters on node {BUSY_NODE}, through the registry",
            True,
            f"{len(view.groups)} Paxos groups after {trio.current_time() - began:.1f} s",
        )

    async def _measure(self, placement: str) -> None:
        self._phase(f"measure acknowledged QPS, masters {placement}")
        load = LoadProducer(
            self.spec.bootstrap, LOAD_TOPIC, partitions=PARTITIONS, message_bytes=LOAD_BYTES
        )
        self._facts = lambda: {"acknowledged": f"{load.acknowledged:,}"}
        result = await _in_thread(partial(load.measure, WARM_UP_S, MEASURE_S))
        self._facts = dict
        self._load_acknowledged += result.acknowledged
        self._load_errors += result.errors
        rate = f"{result.acknowledged_per_s:,.0f} messages/s of {LOAD_BYTES} B"
        self.findings.figure(f"acknowledged QPS, masters {placement}", rate)
        self.view.note(f"masters {placement}: {rate}")

    async def _balance(self) -> None:
        self._phase("the balancer steals them back, one by one, under load")
        async with self._steady("steady") as producer:
            await trio.sleep(STABLE_S)
            stable_ns = time.monotonic_ns() - round(STABLE_S * 1e9 / 2), time.monotonic_ns()
            before_ms = time.time_ns() // workload.MS
            before = (await self._until(_every_group_has_a_master, "masters are known")).masters()
            version = await self._place({"even": True})

            def balanced(view: ClusterView) -> bool:
                counts = view.count_by_master().values()
                newest = view.placement_version >= version
                return newest and view.all_at_ideal and max(counts) - min(counts) <= 1

            view = await self._until(balanced, "masters are evenly spread and where they belong")
            await trio.sleep(AFTER_STEAL_MS / 1000)
            view = await self._until(balanced, "masters stay where they belong")
        steals = [one for one in view.steals if int(one["finished_wall_ms"]) >= before_ms]
        done = [one for one in steals if one["outcome"] == "done"]
        self.findings.moves = [_move(one, producer) for one in done]
        after = view.masters()
        moved = {group for group, master in after.items() if master != before[group]}
        spread = " + ".join(str(count) for count in view.count_by_master().values())
        self.findings.check(
            "the balancer steals every master home",
            bool(moved) and moved <= {move.group for move in self.findings.moves},
            f"{len(moved)} masters moved in {len(done)} steals ({len(steals) - len(done)} more "
            f"given up); now {spread}",
        )
        self._check_no_errors("no error at the producer during the steals", producer)
        gaps = [gap for move in self.findings.moves for gap in move.gaps_ms or ()]
        calm = max(
            producer.longest_gap_ms(partition, *stable_ns) for partition in range(PARTITIONS)
        )
        self.findings.check(
            "no steal waits for a lease to run out",
            bool(gaps) and max(gaps) < LEASE_MS,
            f"longest gap {max(gaps, default=0):.0f} ms (without a steal {calm:.0f} ms)",
        )

    async def _crash(self, cluster: Launcher) -> None:
        self._phase(f"kill node {VICTIM} (SIGKILL) under load")
        async with self._steady("crash") as producer:
            await trio.sleep(STABLE_S)
            was = await self._until(_every_group_has_a_master, "every Paxos group has a master")
            lost = sorted(row.group for row in was.groups if row.master == VICTIM)
            began, began_ns = trio.current_time(), time.monotonic_ns()
            await cluster.kill(VICTIM)
            view = await self._until(
                lambda view: all(row.master not in (None, VICTIM) for row in view.groups),
                f"the Paxos groups of node {VICTIM} have new masters",
            )
            heirs = ", ".join(f"{group}->{view.masters()[group]}" for group in lost)
            self.findings.check(
                f"Paxos groups of node {VICTIM} get new masters",
                bool(lost),
                f"after {trio.current_time() - began:.1f} s: {heirs}",
            )
            await self._until(
                lambda _: all(acks and acks[-1] > began_ns for acks in producer.acks_ns),
                "all partitions are written again",
            )
            gap = max(
                producer.longest_gap_ms(partition, began_ns, time.monotonic_ns())
                for partition in range(PARTITIONS)
            )
            self.findings.figure("longest gap between two acks around the crash", f"{gap:,.0f} ms")
            await self._come_back(cluster, view)
        self._check_no_errors("no error at the producer during the crash", producer)

    async def _come_back(self, cluster: Launcher, without: ClusterView) -> None:
        self._phase(f"restart node {VICTIM}")
        began = trio.current_time()
        missed = {row.group: row.chosen for row in without.groups}
        await cluster.restart(VICTIM)
        view = await self._until(
            lambda view: all(_applied(view, group) >= slot for group, slot in missed.items()),
            f"node {VICTIM} has caught up",
        )
        self.findings.check(
            f"node {VICTIM} catches up",
            True,
            f"{trio.current_time() - began:.1f} s after its restart it has caught up",
        )
        home = len(view.groups) // NODES
        view = await self._until(
            lambda view: view.all_at_ideal and view.count_by_master()[VICTIM] >= home,
            f"masters come back to node {VICTIM}",
        )
        self.findings.check(
            f"masters come back to node {VICTIM}",
            True,
            f"{view.count_by_master()[VICTIM]} of {len(view.groups)} after "
            f"{trio.current_time() - began:.1f} s",
        )

    async def _read_back(self) -> None:
        self._phase("read everything with a fresh consumer, and check it")
        read = await _in_thread(
            partial(
                workload.read_everything,
                self.spec.bootstrap,
                TOPIC,
                partitions=PARTITIONS,
                name="fresh",
                seconds_max=READ_S_MAX,
            )
        )
        sent = [record for producer in self._producers for record in producer.history]
        everything = [*sent, *self._history, *read]
        await _in_thread(
            partial(recorder.write_history, everything, self.spec.data_dir / "history.jsonl")
        )
        report = await _in_thread(partial(check, everything))
        self.findings.check(
            "nothing acknowledged is lost, repeated or reordered", report.clean, report.summary()
        )
        kept = await _in_thread(
            partial(workload.stored, self.spec.bootstrap, LOAD_TOPIC, PARTITIONS)
        )
        self.findings.check(
            "the QPS topic holds what was acknowledged",
            kept == self._load_acknowledged and self._load_errors == 0,
            f"{kept:,} stored, {self._load_acknowledged:,} acknowledged, "
            f"{self._load_errors} errors",
        )

    # ---- props -----------------------------------------------------------------------------------

    def _phase(self, title: str) -> None:
        self.findings.phase = title
        self.view.phase(title)

    async def _watch(self, cluster: Launcher) -> None:
        """Poll the cluster, for the view and for the waits in `_until`."""
        while True:
            self._now = await status.collect(self.spec, cluster.now())
            self.view.cluster(self._now, self._facts())
            self._looked.set()
            self._looked = trio.Event()
            await trio.sleep(LOOK_EVERY_S)

    async def _until(self, condition: Callable[[ClusterView], bool], what: str) -> ClusterView:
        """The first picture of the cluster, taken from now on, that meets the condition."""
        with trio.move_on_after(MOVE_S_MAX):
            while True:
                await self._looked.wait()
                assert self._now is not None
                if condition(self._now):
                    return self._now
        seen = "nothing" if self._now is None else status.render(self._now)
        raise DemoError(f"not within {MOVE_S_MAX:.0f} s: {what}; last seen:\n{seen}")

    async def _place(self, placement: Mapping[str, object]) -> int:
        """Change the ideal placement in the registry, as `evenkeel balance` does; returns its
        version."""
        return await health.place(self.spec.node(BUSY_NODE).http, placement)

    @asynccontextmanager
    async def _steady(self, name: str) -> AsyncIterator[SteadyProducer]:
        """A producer at a steady rate; at the end the outcome of all its messages is known."""
        producer = SteadyProducer(
            self.spec.bootstrap, TOPIC, partitions=PARTITIONS, rate=STEADY_RATE, name=name
        )
        self._producers.append(producer)
        self._facts = lambda: {
            "acknowledged": f"{producer.acknowledged:,}",
            "errors": str(len(producer.errors)),
        }
        ended = trio.Event()

        async def go_on() -> None:
            await _in_thread(producer.run)
            ended.set()

        setback: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(go_on)
            try:
                yield producer
                producer.stop()
                await ended.wait()
            except DEMO_ERRORS as error:
                setback = error
            finally:
                producer.stop()
                nursery.cancel_scope.cancel()
        self._facts = dict
        if setback is not None:
            raise setback

    def _check_no_errors(self, name: str, producer: SteadyProducer) -> None:
        unanswered = len(producer.history) - producer.acknowledged - len(producer.errors)
        detail = f"{producer.acknowledged:,} acknowledged, {len(producer.errors)} errors"
        if producer.errors:
            detail += f", the first: {producer.errors[0]}"
        self.findings.check(name, not producer.errors and unanswered == 0, detail)


async def _in_thread(call: Callable[[], _T]) -> _T:
    """The Kafka client blocks; once the demo is over, nothing waits for it."""
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


def _every_group_has_a_master(view: ClusterView) -> bool:
    return len(view.groups) == PARTITIONS + 1 and None not in view.masters().values()


def _applied(view: ClusterView, group: int) -> int:
    """How far the killed node itself says it is; -1 while it does not answer."""
    for row in view.nodes:
        if row.spec.id == VICTIM and row.status is not None:
            for report in row.status["groups"]:
                if report["group"] == group:
                    return int(report["applied"])
    return -1


def _move(steal: Mapping[str, Any], producer: SteadyProducer) -> Move:
    """A finished steal, with the gaps at the producer; partition p is in group p + 1."""
    wall_to_monotonic_ns = time.monotonic_ns() - time.time_ns()
    finished_ns = int(steal["finished_wall_ms"] * workload.MS) + wall_to_monotonic_ns
    steal_ms = float(steal["duration_ms"])
    began_ns = finished_ns - round(steal_ms * workload.MS)
    group, gaps = int(steal["group"]), None
    if group != 0:
        during = producer.longest_gap_ms(group - 1, began_ns, finished_ns)
        until_ns = finished_ns + AFTER_STEAL_MS * workload.MS
        gaps = during, producer.longest_gap_ms(group - 1, finished_ns, until_ns)
    return Move(group, int(steal["source"]), int(steal["target"]), steal_ms, gaps)
