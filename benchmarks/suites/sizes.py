"""What groups and nodes cost: the same cluster with more and more of them.

Each cluster is first left alone, with a topic of 96 empty partitions, and then loaded. So the cost
of idle groups is known as well as their effect on throughput. The cost of one more group is the
slope of a straight line over several numbers of groups.
"""

from collections.abc import Mapping, Sequence
from statistics import StatisticsError, linear_regression, mean
from typing import Any, Final

import trio

from benchmarks.load import usage
from benchmarks.load.jobs import ProduceJob, RequestJob
from benchmarks.report.results import Bar, Figure, Outcome, number
from benchmarks.suites.bench import Bench, Benchmark

PARTITIONS: Final = 96
"""The same for all: spread over the groups, or all in one group."""
GROUPS_LOADED_MAX: Final = 96
"""Clusters with more are only measured idle."""
EVEN_SOON: Final = ("balancer.pause_between_steals_ms=0",)
"""Hundreds of masters are moved one by one before anything can be measured."""
GROUPS_OF_NODES: Final = 48
REPLICAS: Final = 3
CONNECTIONS: Final = 64
RECORD_BYTES: Final = 100
MESSAGE_BYTES: Final = 1000
KB_OF_MB: Final = 1000
MB: Final = 1e6
MEMORY: Final = "RSS MB"
CPU: Final = "% of one core"
WITH_BARS: Final = "groups-48"
IDLE_BARS: Final = (Bar(80, at_most=True), Bar(10, at_most=True))
"""Memory and CPU of its nodes when nobody uses them."""


def of_groups(groups: int) -> Benchmark:
    loaded = groups <= GROUPS_LOADED_MAX
    return Benchmark(
        name=f"groups-{groups}",
        title=f"{groups} groups: idle{', then loaded' if loaded else ''}",
        run=_loaded if loaded else _idle,
        partitions=PARTITIONS,
        groups=groups,
        overrides=() if loaded else EVEN_SOON,
        needs_nodes=True,
    )


def of_nodes(nodes: int) -> Benchmark:
    return Benchmark(
        name=f"nodes-{nodes}",
        title=f"{nodes} nodes, {GROUPS_OF_NODES} groups on {REPLICAS} of them each",
        run=_loaded,
        partitions=PARTITIONS,
        groups=GROUPS_OF_NODES,
        nodes=nodes,
        overrides=(f"groups.replicas={REPLICAS}",),
        needs_nodes=True,
    )


async def _idle_figures(benchmark: Benchmark, bench: Bench) -> tuple[list[Figure], usage.Usage]:
    """One value per node, of which the worst one counts; and the total usage.

    Raises:
        ProcessGone: if a node ends meanwhile.
    """
    pids = bench.target.pids
    await trio.sleep(bench.scale.settle_s)
    begin = usage.snapshot(pids)
    await trio.sleep(bench.scale.idle_s)
    spent = usage.between(begin, usage.snapshot(pids))
    shares = [100 * seconds / spent.seconds for seconds in spent.nodes_s]
    memory = [usage.rss_bytes(pid) / MB for pid in pids]
    bench.say(f"idle: {number(max(shares))} % of a core, {number(max(memory))} MB")
    memory_bar, cpu_bar = IDLE_BARS if benchmark.name == WITH_BARS else (None, None)
    return [_worst(MEMORY, memory, memory_bar), _worst(CPU, shares, cpu_bar)], spent


def _worst(name: str, values: list[float], bar: Bar | None) -> Figure:
    return Figure(name=name, values=values, bar=bar, of_worst=True, less_is_better=True)


async def _idle(benchmark: Benchmark, bench: Bench, _topic: str) -> Outcome:
    bench.scale = bench.scale.of_sizes
    figures, spent = await _idle_figures(benchmark, bench)
    return Outcome(
        name=benchmark.name,
        title=benchmark.title,
        figures=tuple(figures),
        settings=_settings(benchmark, bench),
        others_share=spent.others_share,
    )


async def _loaded(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
    bench.scale = bench.scale.of_sizes
    figures, _ = await _idle_figures(benchmark, bench)
    scale, target = bench.scale, bench.target
    requests = await bench.repeat(
        lambda repetition: RequestJob(
            bootstrap=target.bootstrap,
            topic=topic,
            connections=CONNECTIONS,
            in_flight=1,
            record_bytes=RECORD_BYTES,
            rate=0.0,
            first_node=repetition,
            warm_up_s=scale.warm_up_s,
            window_s=scale.window_s,
            pids=target.pids,
        ),
        lambda one: f"{number(one.per_s)} requests/s",
    )
    messages = await bench.repeat(
        lambda _repetition: ProduceJob(
            bootstrap=target.bootstrap,
            topic=topic,
            partitions=benchmark.partitions,
            message_bytes=MESSAGE_BYTES,
            idempotent=True,
            warm_up_s=scale.warm_up_s,
            window_s=scale.window_s,
            pids=target.pids,
        ),
        lambda one: f"{number(one.mb_per_s)} MB/s",
    )
    figures += [
        Figure(name="requests/s", values=[one.per_s for one in requests]),
        *bench.cost(requests, "node us/request"),
        Figure(name="MB/s", values=[one.mb_per_s for one in messages]),
        *bench.cost(messages, "node us/message"),
    ]
    settings = _settings(benchmark, bench)
    return bench.outcome(benchmark, [*requests, *messages], figures, settings)


def _settings(benchmark: Benchmark, bench: Bench) -> dict[str, Any]:
    return {
        "nodes": benchmark.nodes,
        "groups": benchmark.groups,
        "idle_s": bench.scale.idle_s,
        "connections": CONNECTIONS,
        "record_bytes": RECORD_BYTES,
        "message_bytes": MESSAGE_BYTES,
    }


def cost_of_a_group(outcomes: Sequence[Outcome]) -> Mapping[str, float]:
    """The cost of one more idle group for each of three nodes; empty if there are too few sizes."""
    found = [
        (one.settings["groups"], {figure.name: figure.values for figure in one.figures})
        for one in outcomes
        if one.name.startswith("groups-") and one.figures
    ]
    groups = [count for count, _ in found]
    slopes = {}
    for name, key, factor in ((MEMORY, "kB", KB_OF_MB), (CPU, "% of a core", 1)):
        try:
            slope, _ = linear_regression(groups, [mean(figures[name]) for _, figures in found])
        except StatisticsError:
            return {}
        slopes[key] = slope * factor
    return slopes
