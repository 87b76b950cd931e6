"""The rate that saturates a cluster, and how long requests take at parts of it.

A rate is *kept* if as many requests are answered in the window as are due in it; otherwise they
queue, and their latencies grow for as long as the load lasts. The largest rate that is kept is
searched for in an open loop: by steps of a quarter from what a closed loop reaches, then by halving
the interval.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final

from benchmarks.load.jobs import Measured, RequestJob
from benchmarks.report.results import PERCENTS, Figure, Outcome, latency_figures, number
from benchmarks.suites.bench import Bench, Benchmark, BenchmarkFailed

KEPT: Final = 0.97
"""The part of the requests due that must be answered in the window."""
STEP: Final = 1.25
NEAR: Final = 1.08
"""The search ends when the lowest rate not kept is at most this factor above the highest kept."""
STEPS_MAX: Final = 10
SHARES: Final = (10, 50, 80)
"""Percent of the saturating rate."""
CONNECTIONS: Final = 64
RECORD_BYTES: Final = 100


async def saturating_rate(is_kept: Callable[[float], Awaitable[bool]], guess: float) -> float:
    """The largest rate that is kept, to within NEAR.

    Raises:
        BenchmarkFailed: if no rate tried is kept.
    """
    kept, missed, rate = 0.0, 0.0, guess
    for _ in range(STEPS_MAX):
        if await is_kept(rate):
            kept = rate
        else:
            missed = rate
        if kept and missed:
            if missed / kept <= NEAR:
                break
            rate = (kept + missed) / 2
        else:
            rate = kept * STEP if kept else missed / STEP
    if not kept:
        raise BenchmarkFailed(f"not even {number(missed)} requests a second are kept")
    return kept


def is_kept(measured: Measured, rate: float) -> bool:
    return measured.count >= KEPT * rate * measured.seconds


async def run(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
    """Saturate, then measure at each share of that rate, in turns."""

    def job(rate: float, window_s: float, first_node: int = 0) -> RequestJob:
        return RequestJob(
            bootstrap=bench.target.bootstrap,
            topic=topic,
            connections=CONNECTIONS,
            in_flight=1,
            record_bytes=RECORD_BYTES,
            rate=rate,
            first_node=first_node,
            warm_up_s=bench.scale.warm_up_s,
            window_s=window_s,
            pids=bench.target.pids,
        )

    async def probe(rate: float) -> bool:
        try:
            measured = await bench.run(job(rate, bench.scale.probe_s))
        except BenchmarkFailed as error:  # a request refused, or unanswered for too long
            bench.say(f"{number(rate)}/s: {error}")
            return False
        kept = is_kept(measured, rate)
        answered = number(measured.per_s)
        bench.say(f"{number(rate)}/s: {answered}/s answered, {'kept' if kept else 'not kept'}")
        return kept

    closed = await bench.run(job(0.0, bench.scale.probe_s))
    saturating = await saturating_rate(probe, closed.per_s)
    by_share: dict[int, list[Measured]] = {share: [] for share in SHARES}
    for repetition in range(bench.scale.repetitions):
        for share, measured in by_share.items():
            rate = saturating * share / 100
            measured.append(await bench.run(job(rate, bench.scale.window_s, repetition)))
            p99 = number(measured[-1].latency_ns.percentile(99) / 1e6)
            bench.say(f"{share} % of it: p99 {p99} ms")
    figures = [Figure(name="saturating /s", values=[saturating])]
    for share, measured in by_share.items():
        figures += latency_figures(measured, PERCENTS, prefix=f"{share}%: ")
    settings: dict[str, Any] = {
        "connections": CONNECTIONS,
        "record_bytes": RECORD_BYTES,
        "loop": f"open, at {SHARES} % of {saturating:.0f} arrivals/s",
    }
    everything = [one for measured in by_share.values() for one in measured]
    return bench.outcome(benchmark, everything, figures, settings)
