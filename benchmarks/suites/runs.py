"""One run of the program: the chosen benchmarks in turn, on as few clusters as possible."""

import signal
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, Final

import attrs
import trio

from benchmarks.load.frames import TargetError
from benchmarks.load.samples import BALANCED, UNKNOWN, SampleFolder
from benchmarks.load.usage import ProcessGone
from benchmarks.report.progress import View
from benchmarks.report.results import Outcome
from benchmarks.suites.bench import Bench, Benchmark, BenchmarkFailed, Scale
from benchmarks.target import Target, fresh_cluster
from benchmarks.turns import Turns
from cluster.launcher import StartError
from cluster.workload import WorkloadError

NOT_MEASURABLE: Final = (BenchmarkFailed, TargetError, ProcessGone, WorkloadError)
"""One benchmark has no figures; the others may have some."""


@attrs.define(kw_only=True)
class Run:
    scale: Scale
    view: View
    overrides: Sequence[str] = ()
    samples: SampleFolder | None = None
    peers: Sequence[Target] = ()
    """Measured alongside, in turns."""
    outcomes: list[Outcome] = attrs.Factory(list)
    configurations: list[dict[str, Any]] = attrs.Factory(list)
    interrupted: bool = False

    def until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work; a signal ends it early, with the outcomes so far."""
        trio.run(self._until_signal, work)

    async def _until_signal(self, work: Callable[[], Awaitable[None]]) -> None:
        failure: Exception | None = None
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async with trio.open_nursery() as nursery:

                async def watch() -> None:
                    async for _ in signals:
                        self.interrupted = True
                        nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                try:
                    await work()
                except Exception as error:  # noqa: BLE001 (raised below, outside the group)
                    failure = error
                nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure

    async def on_fresh_clusters(self, chosen: Sequence[Benchmark]) -> None:
        """Reuse a cluster as long as the next benchmark fits it, and it has room."""
        waiting = deque(chosen)
        while waiting:
            first = waiting[0]
            self.view.begin(f"starting {first.nodes} fresh nodes with {first.groups} groups")
            cluster = fresh_cluster(
                groups=first.groups,
                nodes=first.nodes,
                overrides=(*first.overrides, *self.overrides),
                say=self.view.say,
            )
            try:
                async with cluster as target:
                    self.configurations.append(target.configuration)
                    while waiting and _may_share(first, waiting[0]) and not target.full:
                        await self._one(waiting.popleft(), (target, *self.peers))
            except (TargetError, StartError) as error:
                if waiting and waiting[0] is first:
                    self._no_cluster(waiting.popleft(), error)
                else:
                    self.view.say(f"the cluster did not stop cleanly: {error}")

    def _no_cluster(self, benchmark: Benchmark, error: Exception) -> None:
        self.view.say(f"failed: {error}")
        outcome = Outcome(name=benchmark.name, title=benchmark.title, failure=str(error))
        self.outcomes.append(outcome)
        self.view.done()

    async def on_target(self, chosen: Sequence[Benchmark], target: Target) -> None:
        self.configurations.append(target.configuration)
        for benchmark in chosen:
            await self._one(benchmark, (target, *self.peers))

    async def _one(self, benchmark: Benchmark, targets: Sequence[Target]) -> None:
        """Measure all targets, in turns; the outcomes are in their order."""
        self.view.begin(f"{benchmark.name}: {benchmark.title}")
        if benchmark.needs_nodes:
            targets = targets[:1]  # only our own processes are known
        rota = Turns(len(targets))
        reached: dict[int, Outcome] = {}

        async def measure(seat: int, target: Target) -> None:
            try:
                reached[seat] = await self._measure(benchmark, target, partial(rota.turn, seat))
            finally:
                await rota.leave(seat)

        async with trio.open_nursery() as nursery:
            for seat, target in enumerate(targets):
                nursery.start_soon(measure, seat, target)
        self.outcomes += [reached[seat] for seat in sorted(reached)]
        self.view.done()

    async def _measure(
        self,
        benchmark: Benchmark,
        target: Target,
        turn: Callable[[], AbstractAsyncContextManager[None]],
    ) -> Outcome:
        nothing = Outcome(name=benchmark.name, title=benchmark.title, system=target.name)
        if benchmark.needs_nodes and not target.pids:
            return attrs.evolve(nothing, skipped="it needs nodes of our own")
        whose = f"{target.name}: " if self.peers else ""
        ours = target.spec is not None
        bench = Bench(
            target,
            self.scale,
            lambda line: self.view.say(f"{whose}{line}"),
            benchmark=benchmark.name if ours else f"{benchmark.name} on {target.name}",
            samples=self.samples,
            layout=BALANCED if ours else UNKNOWN,
            turn=turn,
        )
        try:
            outcome = await benchmark.measure(bench)
        except NOT_MEASURABLE as error:
            bench.say(f"failed: {error}")
            return attrs.evolve(nothing, failure=str(error), retried=tuple(bench.retried))
        if target.name in [peer.name for peer in self.peers]:  # the bars are for ours
            figures = tuple(attrs.evolve(figure, bar=None) for figure in outcome.figures)
            return attrs.evolve(outcome, figures=figures)
        return outcome


def _may_share(first: Benchmark, other: Benchmark) -> bool:
    """Whether a cluster that was started for one may serve the other."""
    if first is other:
        return True
    if first.alone or other.alone:
        return False
    return (first.nodes, first.groups, first.overrides) == (
        other.nodes,
        other.groups,
        other.overrides,
    )
