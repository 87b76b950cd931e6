"""How long partitions go without acknowledgements when the node that leads them dies.

A producer sends at a steady rate to all partitions while one node after the other is killed with
SIGKILL, started again, and given its groups back. For every partition that the dead node led, the
figure is the longest time between two acknowledgements around the kill. It includes lease, election
and the client's own way to the new master. At the end the topic must contain everything that was
acknowledged.
"""

import threading
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Final

import attrs
import trio

from benchmarks.load.frames import leaders_of
from benchmarks.report.results import Bar, Figure, Outcome, number
from benchmarks.suites.bench import Bench, Benchmark, BenchmarkFailed
from benchmarks.target import LOOK_EVERY_S, Target, masters_even
from cluster.control import Refused
from cluster.launcher import StartError
from cluster.workload import SteadyProducer, longest_gap_ns, stored

PER_PARTITION: Final = 50
"""Messages a second: silence is seen to 20 ms."""
QUIET_S: Final = 1.0
"""Before each kill, with acknowledgements from all partitions."""
ANSWER_S_MAX: Final = 60.0
ACKNOWLEDGED_MIN: Final = 20
"""A partition has recovered once it has acknowledged this many messages: more than can have been in
flight to a node when it died, whose acknowledgements may arrive after its end."""
PARTITIONS: Final = 12
NS: Final = 1e9


@attrs.frozen(kw_only=True)
class Kill:
    node: int
    without_s: tuple[float, ...]
    """Of each partition that it led."""
    others_s: tuple[float, ...]
    """Of each of the others."""


async def run(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
    target = bench.target
    assert target.spec is not None, "the nodes are ours"
    partitions = benchmark.partitions
    kills: list[Kill] = []
    async with _steady(target, topic, partitions) as producer:
        for number_of_kill in range(bench.scale.kills):
            node = target.spec.nodes[number_of_kill % len(target.spec.nodes)].id
            kills.append(await _kill(bench, producer, topic, node))
            _tell(bench, kills[-1])
    held = await trio.to_thread.run_sync(stored, target.bootstrap, topic, partitions)
    if held < producer.acknowledged:
        raise BenchmarkFailed(f"{producer.acknowledged} acknowledged, but {held} stored")
    return Outcome(
        name=benchmark.name,
        title=benchmark.title,
        figures=tuple(_figures(kills, len(producer.errors))),
        settings={
            "scale": bench.scale.name,
            "partitions": partitions,
            "messages/s": PER_PARTITION * partitions,
            "killed": [one.node for one in kills],
        },
        repetitions=tuple(attrs.asdict(one) for one in kills),
    )


def _figures(kills: Sequence[Kill], errors: int) -> list[Figure]:
    every = [seconds for one in kills for seconds in one.without_s]
    return [
        Figure(
            name="median s", values=[median(one.without_s) for one in kills], less_is_better=True
        ),
        Figure(name="max s", values=every, of_worst=True, less_is_better=True),
        Figure(
            name="others' max s",
            values=[max(one.others_s) for one in kills],
            of_worst=True,
            less_is_better=True,
        ),
        Figure(name="errors", values=[errors], bar=Bar(0, at_most=True), less_is_better=True),
    ]


def _tell(bench: Bench, kill: Kill) -> None:
    bench.say(
        f"node {kill.node} killed: {len(kill.without_s)} partitions without acknowledgements for "
        f"{number(median(kill.without_s))} s, at most {number(max(kill.without_s))} s"
    )


async def _kill(bench: Bench, producer: SteadyProducer, topic: str, node: int) -> Kill:
    """Kill the node, wait until everything is acknowledged again, and bring it back.

    Raises:
        BenchmarkFailed: if that does not happen.
        TargetError: if the masters do not get back in place.
    """
    target = bench.target
    launcher, spec = target.launcher, target.spec
    assert launcher is not None
    assert spec is not None
    await _acknowledged_by_all(producer, time.monotonic_ns())
    await trio.sleep(QUIET_S)
    find = partial(leaders_of, target.bootstrap, topic)
    leaders = await trio.to_thread.run_sync(find)
    port = spec.node(node).kafka.port
    led = {one for leader in leaders if leader.port == port for one in leader.partitions}
    if not led:
        raise BenchmarkFailed(f"node {node} leads nothing: there is no master to kill")
    killed_ns = time.monotonic_ns()
    try:
        await launcher.kill(node)
        await _acknowledged_by_all(producer, time.monotonic_ns())
        back_ns = time.monotonic_ns()
        gaps = [longest_gap_ns(acks, killed_ns, back_ns) / NS for acks in producer.acks_ns]
        await launcher.restart(node)
        await masters_even(spec, launcher)
    except (Refused, StartError) as error:
        raise BenchmarkFailed(f"node {node}: {error}") from error
    return Kill(
        node=node,
        without_s=tuple(seconds for one, seconds in enumerate(gaps) if one in led),
        others_s=tuple(seconds for one, seconds in enumerate(gaps) if one not in led),
    )


async def _acknowledged_by_all(producer: SteadyProducer, since_ns: int) -> None:
    """Wait until every partition has acknowledged enough messages since then.

    Raises:
        BenchmarkFailed: if one has not in time.
    """
    with trio.move_on_after(ANSWER_S_MAX):
        while not all(  # noqa: ASYNC110 (the acknowledgements come in another thread)
            _goes_on(acks, since_ns) for acks in producer.acks_ns
        ):
            await trio.sleep(LOOK_EVERY_S)
        return
    raise BenchmarkFailed(f"partitions without acknowledgements for {ANSWER_S_MAX:.0f} s")


def _goes_on(acks_ns: Sequence[int], since_ns: int) -> bool:
    return len(acks_ns) - bisect_right(acks_ns, since_ns) >= ACKNOWLEDGED_MIN


@asynccontextmanager
async def _steady(target: Target, topic: str, partitions: int) -> AsyncIterator[SteadyProducer]:
    """A producer that sends all the time, and has an answer for every message at the end."""
    rate = PER_PARTITION * partitions
    producer = SteadyProducer(
        target.bootstrap, topic, partitions=partitions, rate=rate, name="failover"
    )
    thread = threading.Thread(target=producer.run, daemon=True)
    thread.start()
    try:
        yield producer
    finally:
        producer.stop()
        with trio.CancelScope(shield=True):  # bounded by the producer's own timeout
            await trio.to_thread.run_sync(thread.join)


BENCHMARK: Final = Benchmark(
    name="failover",
    title="SIGKILL of nodes under a steady producer: partitions without acknowledgements",
    run=run,
    partitions=PARTITIONS,
    alone=True,
    needs_nodes=True,
)
