"""What a benchmark may use: its target, how long to measure, loads in their own processes."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

import attrs
import trio

from benchmarks.load import worker
from benchmarks.load.jobs import (
    ConsumeJob,
    Job,
    Measured,
    PacedJob,
    ProduceJob,
    RequestJob,
    TailJob,
    job_to_json,
    measured_from_json,
    measured_to_json,
)
from benchmarks.load.samples import NO_LIMITS, UNKNOWN, SampleFile, SampleFolder
from benchmarks.report.results import Figure, Outcome, merged
from benchmarks.target import NODES, Target
from cluster import child
from cluster.programs import environment

MIB: Final = 1 << 20


@attrs.frozen(kw_only=True)
class CatchupScale:
    """How much data a node has to catch up on, and how short the log is (`catchup.py`)."""

    bytes: int = 4096 * MIB
    """Before anything happens."""
    fill_bytes_per_s: int = 40 * MIB
    bytes_per_s: int = 4 * MIB
    """The load that continues meanwhile."""
    message_bytes: int = 16384
    log_bytes: int = 64 * MIB
    """The size limit of the nodes' logs; older data is in cold segments."""
    quiet_s: float = 10.0
    """Measured before anything happens."""

    @property
    def short_log(self) -> tuple[str, ...]:
        """The settings of nodes with such a log."""
        return (
            f"storage.segment_bytes={self.log_bytes // 4}",
            f"storage.log_bytes={self.log_bytes}",
            f"storage.checkpoint_bytes={self.log_bytes // 2}",
        )


SHORT_LOG_BYTES: Final = 32 * MIB
WORKER_S_MAX: Final = 90.0
RETRIES_MAX: Final = 2
"""Repetitions of one benchmark that may be discarded, for example because a master has moved."""


class BenchmarkFailed(RuntimeError):
    """No figures; the message says why."""


@attrs.frozen(kw_only=True)
class Scale:
    """How long to measure."""

    name: str
    repetitions: int
    warm_up_s: float
    window_s: float
    consume_bytes: int
    settle_s: float
    idle_s: float
    probe_s: float
    """Of each step of a search for the saturating rate."""
    size_repetitions: int
    size_window_s: float
    size_idle_s: float
    """At each number of groups and of nodes."""
    kills: int
    catch_up: CatchupScale

    @property
    def of_sizes(self) -> "Scale":
        """For benchmarks on many clusters, one after the other."""
        return attrs.evolve(
            self,
            repetitions=self.size_repetitions,
            window_s=self.size_window_s,
            idle_s=self.size_idle_s,
        )


QUICK: Final = Scale(
    name="quick",
    repetitions=3,
    warm_up_s=1.0,
    window_s=1.0,
    consume_bytes=100_000_000,
    settle_s=2.0,
    idle_s=5.0,
    probe_s=1.0,
    size_repetitions=1,
    size_window_s=2.0,
    size_idle_s=4.0,
    kills=3,
    catch_up=CatchupScale(bytes=256 * MIB, log_bytes=SHORT_LOG_BYTES, quiet_s=3.0),
)
FULL: Final = Scale(
    name="full",
    repetitions=3,
    warm_up_s=1.0,
    window_s=5.0,
    consume_bytes=500_000_000,
    settle_s=5.0,
    idle_s=20.0,
    probe_s=2.0,
    size_repetitions=3,
    size_window_s=3.0,
    size_idle_s=10.0,
    kills=6,
    catch_up=CatchupScale(bytes=1024 * MIB, log_bytes=SHORT_LOG_BYTES),
)


@asynccontextmanager
async def at_any_time() -> AsyncIterator[None]:
    """The turn of a system that is measured alone."""
    yield


@attrs.define
class Bench:
    """One benchmark in progress."""

    target: Target
    scale: Scale
    say: Callable[[str], None]
    retried: list[str] = attrs.Factory(list)
    benchmark: str = ""
    samples: SampleFolder | None = None
    """Where every load leaves its raw samples."""
    layout: str = UNKNOWN
    """Where the masters are, for the samples' labels, like the number of the pair of layouts."""
    pair: int | None = None
    limits: str = NO_LIMITS
    """What each node is limited to, likewise."""
    turn: Callable[[], AbstractAsyncContextManager[None]] = at_any_time
    """Every load takes it first, so that systems that are compared load the machine in turns."""

    async def repeat(
        self, make_job: Callable[[int], Job], tell: Callable[[Measured], str]
    ) -> list[Measured]:
        """Run the job as often as the scale says, one run at a time.

        Raises:
            BenchmarkFailed: if too many repetitions fail to measure.
        """
        results: list[Measured] = []
        while len(results) < self.scale.repetitions:
            try:
                measured = await self.run(make_job(len(results)))
            except BenchmarkFailed as error:
                self.retried.append(str(error))
                self.say(f"again, because: {error}")
                if len(self.retried) > RETRIES_MAX:
                    raise
                continue
            results.append(measured)
            self.say(f"{tell(measured)} ({len(results)} of {self.scale.repetitions})")
        return results

    async def run(self, job: Job) -> Measured:
        """Carry out one job in a process of its own, in our turn.

        Raises:
            BenchmarkFailed: if it is not a measurement.
        """
        async with self.turn():
            return await self._run(job)

    async def _run(self, job: Job) -> Measured:
        if self.samples is not None:
            job = attrs.evolve(job, samples=self._sample_file(self.samples, job))
        process = start_module(worker.__name__)
        try:
            return await trio.to_thread.run_sync(_finish, process, job, abandon_on_cancel=True)
        finally:
            process.kill()

    def _sample_file(self, folder: SampleFolder, job: Job) -> SampleFile:
        return folder.next_load(
            pair=self.pair,
            benchmark=self.benchmark,
            limits=self.limits,
            layout=self.layout,
            nodes=self.target.configuration.get("nodes"),
            groups=self.target.configuration.get("groups"),
            client=_client_of(job),
            message_bytes=_message_bytes_of(job),
            rate=job.rate if isinstance(job, RequestJob | PacedJob) else 0.0,
            connections=job.connections if isinstance(job, RequestJob) else 1,
            in_flight=job.in_flight if isinstance(job, RequestJob) and not job.rate else None,
        )

    def cost(self, measured: Sequence[Measured], name: str) -> list[Figure]:
        """The CPU time of all nodes for each message or request, if the nodes are ours."""
        if not self.target.pids:
            return []
        values = [one.node_us_per_count for one in measured]
        return [Figure(name=name, values=values, less_is_better=True)]

    def outcome(
        self,
        benchmark: "Benchmark",
        measured: Sequence[Measured],
        figures: Sequence[Figure],
        settings: dict[str, Any],
    ) -> Outcome:
        return Outcome(
            name=benchmark.name,
            title=benchmark.title,
            system=self.target.name,
            figures=tuple(figures),
            settings={
                "scale": self.scale.name,
                "partitions": benchmark.partitions,
                **settings,
            },
            repetitions=tuple(measured_to_json(one) for one in measured),
            latency_ns=merged(measured),
            others_share=max((one.usage.others_share for one in measured), default=0.0),
            retried=tuple(self.retried),
        )


def _client_of(job: Job) -> str:
    if isinstance(job, RequestJob):
        return "one record per request"
    kind = "consumer" if isinstance(job, ConsumeJob | TailJob) else "producer"
    idempotent = isinstance(job, ProduceJob | PacedJob) and job.idempotent
    return f"confluent-kafka {kind}{', idempotent' if idempotent else ''}"


def _message_bytes_of(job: Job) -> int | None:
    """None for a consumer, which takes whatever is there."""
    if isinstance(job, RequestJob):
        return job.record_bytes
    return job.message_bytes if isinstance(job, ProduceJob | PacedJob) else None


def start_module(*words: str) -> "subprocess.Popen[bytes]":
    """Run one of our modules, with arguments, in a process that does not outlive this one.

    Call this on the main thread, not in a worker thread: see cluster/child.py.
    """
    command = [sys.executable, "-P", "-m", *words]
    guard = [sys.executable, "-I", "-S", child.__file__, str(os.getpid())]
    return subprocess.Popen(
        [*guard, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(os.environ),
        process_group=0,
    )


def _finish(process: "subprocess.Popen[bytes]", job: Job) -> Measured:
    try:
        output, errors = process.communicate(job_to_json(job).encode(), WORKER_S_MAX)
    except subprocess.TimeoutExpired as error:
        process.kill()
        process.communicate()
        raise BenchmarkFailed(f"the load did not end within {WORKER_S_MAX:.0f} s") from error
    if process.returncode != 0:
        told = errors.decode(errors="replace").strip().splitlines()
        raise BenchmarkFailed(told[-1] if told else f"the load ended with {process.returncode}")
    measured = measured_from_json(json.loads(output))
    if measured.errors:
        raise BenchmarkFailed("; ".join(measured.errors))
    return measured


@attrs.frozen(kw_only=True)
class Benchmark:
    name: str
    title: str
    run: Callable[["Benchmark", Bench, str], Awaitable[Outcome]]
    """Called with the name of a topic that was created for it."""
    partitions: int = 0
    """Of that topic; 0 for none."""
    groups: int = 12
    nodes: int = NODES
    overrides: tuple[str, ...] = ()
    """Settings that its nodes need."""
    alone: bool = False
    """It runs on a cluster that nothing else uses, before or after."""
    needs_nodes: bool = False
    """It looks at the processes of the nodes, so they must be ours."""

    async def measure(self, bench: Bench) -> Outcome:
        if not self.partitions:
            return await self.run(self, bench, "")
        async with bench.target.topic(self.name, self.partitions) as topic:
            return await self.run(self, bench, topic)
