"""The benchmarks in the order in which they run.

By default, data goes to topics of 12 partitions in 12 groups of three nodes, acks=all, with fsync.
The bars are issue 2's; a figure without one is for comparing commits. "node us" is the CPU time
that all nodes together take for one message or request: unlike a rate it hardly changes when others
use the machine too.
"""

from typing import Final

from benchmarks.load.clients import CONSUMER_SETTINGS, PRODUCER_SETTINGS
from benchmarks.load.jobs import ConsumeJob, PacedJob, ProduceJob, RequestJob
from benchmarks.report.results import (
    Bar,
    Figure,
    Outcome,
    corrected_figure,
    latency_figures,
    number,
)
from benchmarks.suites import catchup, failover, saturation, sizes
from benchmarks.suites.bench import Bench, Benchmark
from cli.bench import GROUP_COUNTS, NODE_COUNTS

PARTITIONS: Final = 12
CLIENT_RATE: Final = 1000.0
FILL_S_MAX: Final = 60.0
CONSUME_S_MAX: Final = 60.0
MB: Final = 1e6


# --- produce with confluent-kafka ----------------------------------------------------------------


def _produce(
    name: str,
    message_bytes: int,
    *,
    idempotent: bool,
    per_s: Bar | None = None,
    mb_per_s: Bar | None = None,
) -> Benchmark:
    async def run(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
        measured = await bench.repeat(
            lambda _repetition: ProduceJob(
                bootstrap=bench.target.bootstrap,
                topic=topic,
                partitions=benchmark.partitions,
                message_bytes=message_bytes,
                idempotent=idempotent,
                warm_up_s=bench.scale.warm_up_s,
                window_s=bench.scale.window_s,
                pids=bench.target.pids,
            ),
            lambda one: f"{number(one.per_s)} messages/s, {number(one.mb_per_s)} MB/s",
        )
        figures = [
            Figure(name="messages/s", values=[one.per_s for one in measured], bar=per_s),
            Figure(name="MB/s", values=[one.mb_per_s for one in measured], bar=mb_per_s),
            *bench.cost(measured, "node us/message"),
        ]
        client = {**PRODUCER_SETTINGS, "enable.idempotence": idempotent}
        settings = {"message_bytes": message_bytes, "client": client}
        return bench.outcome(benchmark, measured, figures, settings)

    kind = "idempotent" if idempotent else "not idempotent"
    title = f"confluent-kafka producer, {message_bytes} B messages, {kind}, as fast as possible"
    return Benchmark(name=name, title=title, run=run, partitions=PARTITIONS)


# --- requests of one record ----------------------------------------------------------------------


def _requests(
    name: str,
    title: str,
    *,
    connections: int,
    rate: float = 0.0,
    per_s: Bar | None = None,
    latency: dict[float, Bar] | None = None,
) -> Benchmark:
    async def run(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
        measured = await bench.repeat(
            lambda repetition: RequestJob(
                bootstrap=bench.target.bootstrap,
                topic=topic,
                connections=connections,
                in_flight=1,
                record_bytes=100,
                rate=rate,
                first_node=repetition,
                warm_up_s=bench.scale.warm_up_s,
                window_s=bench.scale.window_s,
                pids=bench.target.pids,
            ),
            lambda one: (
                f"{number(one.per_s)} requests/s, "
                f"p50 {number(one.latency_ns.percentile(50) / 1e6)} ms"
            ),
        )
        figures = [
            Figure(name="requests/s", values=[one.per_s for one in measured], bar=per_s),
            *latency_figures(measured, bars=latency or {}),
            *([] if rate else [corrected_figure(measured)]),
            *bench.cost(measured, "node us/request"),
        ]
        settings = {
            "connections": connections,
            "record_bytes": 100,
            "loop": f"open, {rate:g} arrivals/s" if rate else "closed, one request each",
        }
        return bench.outcome(benchmark, measured, figures, settings)

    return Benchmark(name=name, title=title, run=run, partitions=PARTITIONS)


# --- an open loop through a real client ----------------------------------------------------------


async def _paced(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
    measured = await bench.repeat(
        lambda _repetition: PacedJob(
            bootstrap=bench.target.bootstrap,
            topic=topic,
            partitions=benchmark.partitions,
            message_bytes=1000,
            idempotent=True,
            rate=CLIENT_RATE,
            warm_up_s=bench.scale.warm_up_s,
            window_s=bench.scale.window_s,
            pids=bench.target.pids,
        ),
        lambda one: f"p50 {number(one.latency_ns.percentile(50) / 1e6)} ms",
    )
    figures = [
        Figure(name="messages/s", values=[one.per_s for one in measured]),
        *latency_figures(measured),
        *bench.cost(measured, "node us/message"),
    ]
    settings = {"message_bytes": 1000, "loop": f"open, {CLIENT_RATE:g} messages/s"}
    return bench.outcome(benchmark, measured, figures, settings)


# --- consume -------------------------------------------------------------------------------------


async def _consume(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
    size = 1000
    messages = bench.scale.consume_bytes // size
    filled = await bench.run(
        ProduceJob(
            bootstrap=bench.target.bootstrap,
            topic=topic,
            partitions=benchmark.partitions,
            message_bytes=size,
            idempotent=True,
            warm_up_s=0.0,
            window_s=FILL_S_MAX,
            messages=messages,
        )
    )
    bench.say(f"filled with {number(filled.bytes / MB)} MB")
    measured = await bench.repeat(
        lambda _repetition: ConsumeJob(
            bootstrap=bench.target.bootstrap,
            topic=topic,
            partitions=benchmark.partitions,
            messages=messages,
            seconds_max=CONSUME_S_MAX,
            pids=bench.target.pids,
        ),
        lambda one: f"{number(one.mb_per_s)} MB/s",
    )
    figures = [
        Figure(name="MB/s", values=[one.mb_per_s for one in measured]),
        Figure(name="messages/s", values=[one.per_s for one in measured]),
        *bench.cost(measured, "node us/message"),
    ]
    settings = {
        "message_bytes": size,
        "messages": messages,
        "client": CONSUMER_SETTINGS,
    }
    return bench.outcome(benchmark, measured, figures, settings)


BENCHMARKS: Final = (
    _produce("produce-100b", 100, idempotent=False, per_s=Bar(100_000)),
    _produce("produce-100b-idempotent", 100, idempotent=True, per_s=Bar(100_000)),
    _produce("produce-1kb", 1000, idempotent=False, mb_per_s=Bar(100)),
    _produce("produce-1kb-idempotent", 1000, idempotent=True, mb_per_s=Bar(100)),
    _requests(
        "requests",
        "one record of 100 B per request, 64 connections, closed loop",
        connections=64,
        per_s=Bar(8_000),
    ),
    _requests(
        "requests-2000",
        "one record of 100 B per request, 64 connections, open loop at 2,000 arrivals/s",
        connections=64,
        rate=2_000,
    ),
    Benchmark(
        name="client-1000",
        title="confluent-kafka producer, 1000 B messages, open loop at 1,000 messages/s",
        run=_paced,
        partitions=PARTITIONS,
    ),
    _requests(
        "single",
        "one record of 100 B per request, one connection, closed loop",
        connections=1,
        latency={50: Bar(1.5, at_most=True)},
    ),
    Benchmark(
        name="latency",
        title="one record of 100 B per request, open loop at parts of the saturating rate",
        run=saturation.run,
        partitions=PARTITIONS,
    ),
    Benchmark(
        name="consume",
        title="confluent-kafka consumer, 1000 B messages, as fast as possible",
        run=_consume,
        partitions=PARTITIONS,
    ),
    *(sizes.of_groups(count) for count in GROUP_COUNTS),
    *(sizes.of_nodes(count) for count in NODE_COUNTS),
    failover.BENCHMARK,
    catchup.BENCHMARK,
)
