"""The cost of idle nodes: CPU time and memory of each."""

import trio

from benchmarks.load import usage
from benchmarks.report.results import Bar, Figure, number
from benchmarks.suites.bench import Bench

MB = 1e6
MEMORY = "RSS MB"
CPU = "% of one core"


async def idle_figures(
    bench: Bench, *, memory_bar: Bar | None = None, cpu_bar: Bar | None = None
) -> tuple[list[Figure], usage.Usage]:
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
    return [_worst(MEMORY, memory, memory_bar), _worst(CPU, shares, cpu_bar)], spent


def _worst(name: str, values: list[float], bar: Bar | None) -> Figure:
    return Figure(name=name, values=values, bar=bar, of_worst=True, less_is_better=True)
