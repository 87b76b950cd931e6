"""`python -m benchmarks.placement.placements`: all masters on one node against masters evenly
spread.

It uses a fresh cluster, whose masters are moved by the balancer's own calls. In each *phase* the
masters are in one layout, and every message size is measured once, each with a topic of its own.
Two phases, one of each layout, are a *pair*; the order within pairs alternates (concentrated,
balanced, balanced, concentrated, ...), so that drift over time favours neither. The result is the
ratio of both layouts' acknowledged messages a second, pair by pair: rates of different minutes are
not compared.

Nodes that share cores and network do not show what concentrating masters costs: it only moves work
between processes of one machine. So if this system allows it, each node is put on a machine of its
own as far as the network goes (benchmarks/machines), with a link slow enough to be the limit;
docs/benchmarks.md says why, and what the ratio can be at most.

Every request goes into the samples (benchmarks/load/samples.py), from which `python -m pipeline
report` makes tables and pictures. Exit code 0 if everything was measured, else 1.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

import attrs
import trio
from rich.console import Console

from benchmarks.load.frames import TargetError, leaders_of
from benchmarks.load.jobs import Job, Measured, ProduceJob, RequestJob, TailJob
from benchmarks.load.samples import BALANCED, CONCENTRATED, SampleFolder
from benchmarks.machines import limits
from benchmarks.machines.network import MachinesError, Network, network, why_not
from benchmarks.placement.options import options_of
from benchmarks.placement.ratios import Case, Rate, as_json, links_table, table
from benchmarks.report import environment
from benchmarks.report.progress import View, view_of
from benchmarks.report.results import number
from benchmarks.suites.bench import QUICK, RETRIES_MAX, Bench, BenchmarkFailed, Scale
from benchmarks.suites.runs import NOT_MEASURABLE, Run
from benchmarks.target import (
    EVEN_S_MAX,
    EVEN_S_PER_GROUP,
    LOOK_EVERY_S,
    Target,
    delete_topic,
    fresh_cluster,
)
from cluster import health, state, status
from cluster.launcher import StartError
from cluster.spec import ClusterSpec, SpecError
from runtime.config.config import ConfigError

ON_NODE: Final = 1
IN_FLIGHT_S: Final = 0.2
"""The number of outstanding requests is what a full link sends in this time, with all copies:
enough to fill the links, and no request waits so long that it counts as lost (`paxos` sends an
Accept again after 400 ms)."""
READERS_FIRST_S: Final = 2.0
"""Before they have to share a link, so that they only read new data."""
IN_FLIGHT_PER_NODE_MAX: Final = 32
OVERHEAD_BYTES: Final = 200
"""Of a message on its way to a node, roughly."""
UNLIMITED: Final = (
    "The nodes share this machine's cores, disk and network, without limits for each of them: "
    "these ratios say nothing about nodes on machines of their own."
)


@attrs.frozen
class Phase:
    """The masters are in one layout, and every size is measured once."""

    pair: int
    layout: str


def phases(pairs: int) -> Iterator[Phase]:
    """Concentrated, balanced, balanced, concentrated, concentrated, ..."""
    for pair in range(pairs):
        first, then = (CONCENTRATED, BALANCED) if pair % 2 == 0 else (BALANCED, CONCENTRATED)
        yield Phase(pair, first)
        yield Phase(pair, then)


# --- moving the masters --------------------------------------------------------------------------


async def put_masters(spec: ClusterSpec, layout: str) -> None:
    """Have the balancer move the masters, and wait until they are in place.

    The balanced layout is dealt out here, so that each node has as many groups with partitions as
    any other: the planner, which `evenkeel balance run` asks, also counts the registry's group.

    Raises:
        TargetError: if they do not get there.
    """
    wanted: Mapping[str, object] = {"all_on": ON_NODE}
    if layout == BALANCED:
        wanted = {"placement": dealt([node.id for node in spec.nodes], spec.groups)}
    version = await health.place(spec.nodes[0].http, wanted)
    patience_s = EVEN_S_MAX + EVEN_S_PER_GROUP * spec.groups
    with trio.move_on_after(patience_s):
        while True:
            try:
                view = await status.collect(spec)
            except health.HealthError:
                view = None
            if view is not None and view.placement_version >= version and view.all_at_ideal:
                return
            await trio.sleep(LOOK_EVERY_S)
    raise TargetError(f"masters are not {layout} after {patience_s:.0f} s")


def dealt(nodes: Sequence[int], groups: int) -> dict[str, int]:
    """Groups 1 to `groups` in turns; the registry's group 0 goes to the last node."""
    places = {str(group): nodes[(group - 1) % len(nodes)] for group in range(1, groups + 1)}
    return {"0": nodes[-1], **places}


async def check_layout(target: Target, topic: str, layout: str, groups: int) -> None:
    """Check that clients are told the layout that the samples will name.

    Raises:
        TargetError: if not.
    """
    find = partial(leaders_of, target.bootstrap, topic)
    leaders = await trio.to_thread.run_sync(find, abandon_on_cancel=True)
    counts = Counter({leader.port: len(leader.partitions) for leader in leaders})
    nodes = 1 if layout == CONCENTRATED else min(len(target.pids), groups)
    if len(counts) != nodes or max(counts.values()) - min(counts.values()) > 1:
        told = ", ".join(map(str, sorted(counts.values(), reverse=True)))
        raise TargetError(f"masters are not {layout}: nodes lead {told} partitions of {topic}")


# --- measuring -----------------------------------------------------------------------------------


@attrs.define(kw_only=True)
class Placements:
    """The options, and what has been measured so far."""

    options: argparse.Namespace
    samples: SampleFolder
    view: View
    machines: Network | None = None
    """For the nodes; without them nothing is limited."""
    rates: list[Rate] = attrs.Factory(list)
    failures: list[str] = attrs.Factory(list)

    async def measure(self) -> None:
        for nodes in self.options.nodes:
            for groups in self.options.groups:
                await self._on_a_cluster(nodes, groups)

    async def _on_a_cluster(self, nodes: int, groups: int) -> None:
        self.view.begin(f"starting a fresh cluster: {nodes} nodes, {groups} groups")
        cluster = fresh_cluster(
            nodes=nodes,
            groups=groups,
            overrides=[f"groups.replicas={nodes}", *self.options.overrides],
            say=self.view.say,
            machines=self.machines,
        )
        async with cluster as target:
            for phase in phases(self.options.pairs):
                await self.phase(phase, target)
                self.view.done()

    async def phase(self, phase: Phase, target: Target) -> None:
        """Put the masters in place, and measure every size."""
        spec = target.spec
        assert spec is not None, "the cluster is ours"
        self.view.begin(f"pair {phase.pair + 1} of {self.options.pairs}: masters {phase.layout}")
        cases = [
            Case(len(spec.nodes), spec.groups, readers, size)
            for readers in self.options.readers
            for size in self.options.sizes
        ]
        for case in cases:
            failure = ""
            for _ in range(1 + RETRIES_MAX):
                try:
                    await put_masters(spec, phase.layout)
                    self.rates.append(await self._load(target, phase, case))
                except (*NOT_MEASURABLE, health.HealthError) as error:
                    failure = f"{case}, {phase.layout}, pair {phase.pair + 1}: {error}"
                    self.view.say(failure)
                    continue
                break
            else:
                self.failures.append(failure)

    async def _load(self, target: Target, phase: Phase, case: Case) -> Rate:
        """One load on a topic of its own; the layout has to be the same before and after."""
        if target.full:
            raise BenchmarkFailed("the cluster has too much data by now: use fewer --pairs")
        limit, size = self._limit, case.message_bytes
        bench = Bench(
            target,
            _scale(self.options),
            self.view.say,
            benchmark=f"placements, read by {case.readers}" if case.readers else "placements",
            samples=self.samples,
            layout=phase.layout,
            pair=phase.pair,
            limits=limit.label(size),
        )
        async with target.topic(f"{phase.layout}-{size}", case.groups) as topic:
            await check_layout(target, topic, phase.layout, case.groups)
            try:
                measured, read = await self._run(bench, topic, case)
            finally:
                self._let_through(0)  # moves, and consumers that fell behind, need not wait
            await check_layout(target, topic, phase.layout, case.groups)
            await trio.to_thread.run_sync(delete_topic, target.bootstrap, topic)
        rate = Rate(
            case=case,
            pair=phase.pair,
            layout=phase.layout,
            bits_per_s=limit.bits_for(size),
            both_ways=limit.both_ways,
            measured=measured,
            read=read,
        )
        self.view.say(_told(rate))
        return rate

    @property
    def _limit(self) -> limits.Limit:
        return limits.UNLIMITED if self.machines is None else self.options.limit

    def _let_through(self, bits_per_s: int) -> None:
        if self.machines is not None:
            self.machines.limit(bits_per_s, both_ways=self._limit.both_ways)

    async def _run(
        self, bench: Bench, topic: str, case: Case
    ) -> tuple[Measured, tuple[Measured, ...]]:
        """Produce, and meanwhile read all of it with this many consumers; returns both results."""
        tails: list[Job] = [self._tail(bench.target, topic, case) for _ in range(case.readers)]
        job = self._job(bench.target, topic, case)
        done: dict[int, Measured] = {}
        failures: list[BenchmarkFailed] = []

        async def run(number: int, job: Job) -> None:
            try:
                done[number] = await bench.run(job)
            except BenchmarkFailed as error:
                failures.append(error)

        async with trio.open_nursery() as nursery:
            for number, tail in enumerate(tails):
                nursery.start_soon(run, number, tail)
            if tails:
                await trio.sleep(READERS_FIRST_S)
            self._let_through(self._limit.bits_for(case.message_bytes))
            await run(len(tails), job)
        if failures:
            raise failures[0]
        *read, produced = (done[number] for number in range(len(tails) + 1))
        return produced, tuple(read)

    def _tail(self, target: Target, topic: str, case: Case) -> Job:
        return TailJob(
            bootstrap=target.bootstrap,
            topic=topic,
            partitions=case.groups,
            warm_up_s=READERS_FIRST_S + self.options.warm_up,
            window_s=self.options.seconds,
            pids=target.pids,
        )

    def _job(self, target: Target, topic: str, case: Case) -> Job:
        options = self.options
        if options.client == "producer":
            return ProduceJob(
                bootstrap=target.bootstrap,
                topic=topic,
                partitions=case.groups,
                message_bytes=case.message_bytes,
                idempotent=False,
                warm_up_s=options.warm_up,
                window_s=options.seconds,
                pids=target.pids,
            )
        bits_per_s = self._limit.bits_for(case.message_bytes)
        bits_per_s = bits_per_s or limits.BY_SIZE.bits_for(case.message_bytes)
        return RequestJob(
            bootstrap=target.bootstrap,
            topic=topic,
            connections=options.connections or connections_for(case, bits_per_s),
            in_flight=1,
            record_bytes=case.message_bytes,
            rate=options.rate,
            first_node=0,
            warm_up_s=options.warm_up,
            window_s=options.seconds,
            pids=target.pids,
        )


def connections_for(case: Case, bits_per_s: int) -> int:
    """The same number for each node, and in both layouts."""
    copies = case.nodes - 1 + case.readers
    size = copies * (case.message_bytes + OVERHEAD_BYTES)
    per_node = int(bits_per_s / 8 * IN_FLIGHT_S / size / case.nodes)
    return case.nodes * max(1, min(per_node, IN_FLIGHT_PER_NODE_MAX))


def _told(rate: Rate) -> str:
    measured = rate.measured
    machine, process = limits.busy(measured.usage)
    parts = [
        f"{rate.case}: {number(measured.per_s)} messages/s",
        f"{number(measured.mb_per_s)} MB/s",
        f"CPU {machine:.0%}, one process at most {process:.0%} of a core",
    ]
    if rate.read:
        parts.append(f"read of it {rate.read_share:.0%}")
    sent, received = rate.links
    if sent:
        parts.append(f"links at most {max(sent):.0%} sending, {max(received):.0%} receiving")
    return "; ".join(parts)


def _scale(options: argparse.Namespace) -> Scale:
    return attrs.evolve(QUICK, name="placements", warm_up_s=options.warm_up)


# --- the command ---------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(sys.argv[1:] if arguments is None else arguments)
    try:
        options.limit, why_unlimited = limit_of(options.limit)
    except MachinesError as error:
        print(f"--limit network: {error}", file=sys.stderr)
        return 1
    if why_unlimited:
        print(f"without limits: {why_unlimited}\n", file=sys.stderr)
    environ = environment.describe(state.DEFAULT_DATA_DIR)
    samples = SampleFolder.of(options.samples, environ)
    clusters = len(options.nodes) * len(options.groups)
    view = view_of(Console(), 2 * options.pairs * clusters)
    placements = Placements(options=options, samples=samples, view=view)
    run = Run(scale=_scale(options), view=view)
    with ExitStack() as stack:
        if options.limit.network:
            machines = stack.enter_context(network(max(options.nodes)))
            stack.enter_context(machines.clients.entered())
            placements.machines = machines
        try:
            run.until_done(placements.measure)
        except (TargetError, StartError, SpecError, ConfigError, state.StateError) as error:
            placements.failures.append(str(error))
        finally:
            view.close()
    _tell(placements, environ)
    return 1 if placements.failures or run.interrupted else 0


def limit_of(asked: limits.Limit | None) -> tuple[limits.Limit, str]:
    """The limits for nodes; and, if there are none although some were wanted, why.

    Raises:
        MachinesError: if the requested limit cannot be set up.
    """
    if asked is not None and not asked.network:
        return asked, ""
    why = why_not()
    if not why:
        return asked or limits.BY_SIZE, ""
    if asked is not None:
        raise MachinesError(why)
    return limits.UNLIMITED, why


def _tell(placements: Placements, environ: Mapping[str, Any]) -> None:
    samples, rates = placements.samples, placements.rates
    print(f"\n{table(rates)}")
    print(f"\n{links_table(rates) or UNLIMITED}")
    path = samples.folder / f"{samples.run}.ratios.json"
    path.write_text(json.dumps({**environ, "loads": as_json(rates)}, indent=1), encoding="utf-8")
    print(f"\nsamples of run {samples.run} are in {samples.folder}; what was measured: {path}")
    for failure in placements.failures:
        print(f"not measured: {failure}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
