"""One run of the program: the chosen benchmarks, one after the other, on as few clusters as do."""

import signal
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import trio

from benchmarks.bench import Bench, Benchmark, BenchmarkFailed, Scale
from benchmarks.frames import TargetError
from benchmarks.progress import View
from benchmarks.results import Outcome
from benchmarks.samples import BALANCED, UNKNOWN, SampleFolder
from benchmarks.target import Target, fresh_cluster
from benchmarks.usage import ProcessGone
from cluster.workload import WorkloadError

NOT_MEASURABLE: Final = (BenchmarkFailed, TargetError, ProcessGone, WorkloadError)
"""One benchmark has no figures; the others may have."""


@attrs.define(kw_only=True)
class Run:
    scale: Scale
    view: View
    overrides: Sequence[str] = ()
    samples: SampleFolder | None = None
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
        """A cluster serves benchmarks while they want as many groups as it has, and it has room."""
        waiting = deque(chosen)
        while waiting:
            groups = waiting[0].groups
            self.view.begin(f"starting a fresh cluster with {groups} groups")
            cluster = fresh_cluster(groups=groups, overrides=self.overrides, say=self.view.say)
            async with cluster as target:
                self.configurations.append(target.configuration)
                while waiting and waiting[0].groups == groups and not target.full:
                    await self._one(waiting.popleft(), target)

    async def on_target(self, chosen: Sequence[Benchmark], target: Target) -> None:
        self.configurations.append(target.configuration)
        for benchmark in chosen:
            await self._one(benchmark, target)

    async def _one(self, benchmark: Benchmark, target: Target) -> None:
        self.view.begin(f"{benchmark.name}: {benchmark.title}")
        if benchmark.needs_nodes and not target.pids:
            skipped = "it needs nodes of our own"
            outcome = Outcome(name=benchmark.name, title=benchmark.title, skipped=skipped)
        else:
            bench = Bench(
                target,
                self.scale,
                self.view.say,
                benchmark=benchmark.name,
                samples=self.samples,
                layout=BALANCED if target.spec is not None else UNKNOWN,
            )
            try:
                outcome = await benchmark.measure(bench)
            except NOT_MEASURABLE as error:
                self.view.say(f"failed: {error}")
                outcome = Outcome(
                    name=benchmark.name,
                    title=benchmark.title,
                    failure=str(error),
                    retried=tuple(bench.retried),
                )
        self.outcomes.append(outcome)
        self.view.done()
