"""`python -m benchmarks.placements`: all masters on one node against masters evenly spread.

One fresh cluster of three nodes, whose masters are moved by the balancer's own calls, the ones of
`evenkeel balance --all-on 1` and `evenkeel balance run`. In each *phase* the masters are in one
layout, and every message size is measured once, each with a topic of its own. Two phases, one of
each layout, are a *pair*; the order within pairs alternates (concentrated, balanced, balanced,
concentrated, ...), so that what drifts meanwhile favours neither. The result is the ratio of both
layouts' acknowledged messages a second, pair by pair: rates of different minutes are not compared.

Every request goes into the samples (benchmarks/samples.py), of which `python -m pipeline report`
makes tables and pictures. Exit code 0 if everything was measured, else 1.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

import attrs
import trio
from rich.console import Console

from benchmarks import environment
from benchmarks.bench import QUICK, RETRIES_MAX, Bench, BenchmarkFailed, Scale
from benchmarks.frames import TargetError, leaders_of
from benchmarks.jobs import Job, Measured, ProduceJob, RequestJob
from benchmarks.progress import View, view_of
from benchmarks.results import number
from benchmarks.runs import NOT_MEASURABLE, Run
from benchmarks.samples import BALANCED, CONCENTRATED, NO_LIMITS, SampleFolder
from benchmarks.target import EVEN_S_MAX, LOOK_EVERY_S, Target, delete_topic, fresh_cluster
from cluster import health, state, status
from cluster.launcher import StartError
from cluster.spec import ClusterSpec, SpecError
from runtime.config import ConfigError

SAMPLES: Final = Path("bench-results") / "placements"
SIZES: Final = (100, 1_000, 10_000, 100_000)
SIZE_MAX: Final = 1_000_000
"""A record batch may have 1 MiB."""
PAIRS_MAX: Final = 1_000
ON_NODE: Final = 1
GROUPS: Final = 12
"""Topics get a partition in each."""
EVEN_WITHIN: Final = 2
"""By so many partitions evenly spread nodes may differ: the balancer also counts the registry's
group, which has none. Connections are shared evenly all the same."""
UNLIMITED: Final = (
    "The nodes share this machine's cores, disk and network, without limits for each of them: "
    "these ratios say nothing about nodes on machines of their own."
)


@attrs.frozen(kw_only=True)
class Rate:
    """One load: what was acknowledged of messages of one size, in one layout."""

    pair: int
    layout: str
    message_bytes: int
    measured: Measured


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


def ratios(rates: Sequence[Rate]) -> dict[int, list[float]]:
    """By message size: balanced / concentrated of every pair that is complete."""
    found = {(one.message_bytes, one.pair, one.layout): one.measured.per_s for one in rates}
    by_size: dict[int, list[float]] = {}
    for (size, pair, layout), per_s in found.items():
        concentrated = found.get((size, pair, CONCENTRATED), 0.0)
        if layout == BALANCED and concentrated:
            by_size.setdefault(size, []).append(per_s / concentrated)
    return by_size


def table(rates: Sequence[Rate]) -> str:
    """Medians of all pairs, and the ratios' median and spread."""
    head = ("message", "concentrated", "balanced", "ratio", "from - to", "pairs")
    lines = [_row(*head), "-" * 72]
    for size, of_pairs in sorted(ratios(rates).items()):
        per_s = {
            layout: median(
                one.measured.per_s
                for one in rates
                if (one.message_bytes, one.layout) == (size, layout)
            )
            for layout in (CONCENTRATED, BALANCED)
        }
        lines.append(
            _row(
                f"{size:,} B",
                f"{number(per_s[CONCENTRATED])}/s",
                f"{number(per_s[BALANCED])}/s",
                f"{median(of_pairs):.2f}",
                f"{min(of_pairs):.2f} - {max(of_pairs):.2f}",
                str(len(of_pairs)),
            )
        )
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"{cells[0]:>12}{cells[1]:>16}{cells[2]:>14}{cells[3]:>8}{cells[4]:>15}{cells[5]:>7}"


# --- moving the masters --------------------------------------------------------------------------


async def put_masters(spec: ClusterSpec, layout: str) -> None:
    """Have the balancer move them, and wait until they are where they belong.

    Raises:
        TargetError: if they do not get there.
    """
    wanted: Mapping[str, object] = {"even": True} if layout == BALANCED else {"all_on": ON_NODE}
    version = await health.place(spec.nodes[0].http, wanted)
    with trio.move_on_after(EVEN_S_MAX):
        while True:
            try:
                view = await status.collect(spec)
            except health.HealthError:
                view = None
            if view is not None and view.placement_version >= version and view.all_at_ideal:
                return
            await trio.sleep(LOOK_EVERY_S)
    raise TargetError(f"masters are not {layout} after {EVEN_S_MAX:.0f} s")


async def check_layout(target: Target, topic: str, layout: str) -> None:
    """What clients are told agrees with the layout that the samples will name.

    Raises:
        TargetError: if not.
    """
    find = partial(leaders_of, target.bootstrap, topic)
    leaders = await trio.to_thread.run_sync(find, abandon_on_cancel=True)
    counts = Counter({leader.port: len(leader.partitions) for leader in leaders})
    nodes = 1 if layout == CONCENTRATED else len(target.pids)
    if len(counts) != nodes or max(counts.values()) - min(counts.values()) > EVEN_WITHIN:
        told = ", ".join(map(str, sorted(counts.values(), reverse=True)))
        raise TargetError(f"masters are not {layout}: nodes lead {told} partitions of {topic}")


# --- measuring -----------------------------------------------------------------------------------


@attrs.define(kw_only=True)
class Placements:
    """What was asked for, and what has been measured so far."""

    options: argparse.Namespace
    samples: SampleFolder
    view: View
    rates: list[Rate] = attrs.Factory(list)
    failures: list[str] = attrs.Factory(list)

    async def measure(self) -> None:
        self.view.begin(f"starting a fresh cluster with {GROUPS} groups")
        cluster = fresh_cluster(groups=GROUPS, overrides=self.options.overrides, say=self.view.say)
        async with cluster as target:
            for phase in phases(self.options.pairs):
                await self.phase(phase, target)
                self.view.done()

    async def phase(self, phase: Phase, target: Target) -> None:
        """Put the masters where they belong, and measure every size."""
        assert target.spec is not None, "the cluster is ours"
        self.view.begin(f"pair {phase.pair + 1} of {self.options.pairs}: masters {phase.layout}")
        bench = Bench(
            target,
            _scale(self.options),
            self.view.say,
            benchmark="placements",
            samples=self.samples,
            layout=phase.layout,
            pair=phase.pair,
        )
        for size in self.options.sizes:
            failure = ""
            for _ in range(1 + RETRIES_MAX):
                try:
                    await put_masters(target.spec, phase.layout)
                    measured = await self._load(bench, target.spec, size)
                except (*NOT_MEASURABLE, health.HealthError) as error:
                    failure = f"{size:,} B, {phase.layout}, pair {phase.pair + 1}: {error}"
                    self.view.say(failure)
                    continue
                rate = Rate(
                    pair=phase.pair, layout=phase.layout, message_bytes=size, measured=measured
                )
                self.rates.append(rate)
                break
            else:
                self.failures.append(failure)

    async def _load(self, bench: Bench, spec: ClusterSpec, size: int) -> Measured:
        """One load on a topic of its own; the layout has to be the same before and after."""
        target, layout = bench.target, bench.layout
        if target.full:
            raise BenchmarkFailed("the cluster's data has outgrown its room: fewer pairs, please")
        async with target.topic(f"{layout}-{size}", spec.groups) as topic:
            await check_layout(target, topic, layout)
            measured = await bench.run(self._job(target, topic, spec.groups, size))
            await check_layout(target, topic, layout)
            await trio.to_thread.run_sync(delete_topic, target.bootstrap, topic)
        self.view.say(
            f"{size:,} B: {number(measured.per_s)} messages/s, {number(measured.mb_per_s)} MB/s, "
            f"others took {measured.usage.others_share:.0%} of the machine"
        )
        return measured

    def _job(self, target: Target, topic: str, partitions: int, size: int) -> Job:
        options = self.options
        if options.client == "producer":
            return ProduceJob(
                bootstrap=target.bootstrap,
                topic=topic,
                partitions=partitions,
                message_bytes=size,
                idempotent=False,
                warm_up_s=options.warm_up,
                window_s=options.seconds,
                pids=target.pids,
            )
        return RequestJob(
            bootstrap=target.bootstrap,
            topic=topic,
            connections=options.connections,
            in_flight=1,
            record_bytes=size,
            rate=options.rate,
            first_node=0,
            warm_up_s=options.warm_up,
            window_s=options.seconds,
            pids=target.pids,
        )


def _scale(options: argparse.Namespace) -> Scale:
    return attrs.evolve(QUICK, name="placements", warm_up_s=options.warm_up)


# --- the command ---------------------------------------------------------------------------------


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.placements",
        description="Acknowledged messages a second with all masters on one node, and with masters "
        "evenly spread, in alternating order, by message size.",
    )
    parser.add_argument(
        "--sizes", nargs="+", type=_whole(1, SIZE_MAX), default=SIZES, metavar="BYTES"
    )
    parser.add_argument(
        "--pairs", type=_whole(1, PAIRS_MAX), default=5, help="(default %(default)s)"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="measured of each load (default %(default)s); the report needs whole ones",
    )
    parser.add_argument(
        "--warm-up", type=float, default=1.0, help="seconds before that (default %(default)s)"
    )
    parser.add_argument(
        "--client",
        choices=("requests", "producer"),
        default="requests",
        help="one record per request over raw sockets, or confluent-kafka as fast as it goes",
    )
    parser.add_argument(
        "--connections",
        type=_whole(1, 10_000),
        default=48,
        help="of requests, shared evenly by the nodes that lead (default %(default)s)",
    )
    parser.add_argument(
        "--rate", type=float, default=0.0, help="requests a second; 0: the next when one is done"
    )
    parser.add_argument(
        "--samples", type=Path, default=SAMPLES, metavar="DIR", help="(default %(default)s)"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="SECTION.KEY=VALUE"
    )
    return parser.parse_args(arguments)


def _whole(least: int, most: int) -> "partial[int]":
    return partial(_within, least, most)


def _within(least: int, most: int, text: str) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
    return int(text)


def main(arguments: Sequence[str] | None = None) -> int:
    options = options_of(sys.argv[1:] if arguments is None else arguments)
    samples = SampleFolder.of(options.samples, environment.describe(state.DEFAULT_DATA_DIR))
    view = view_of(Console(), 2 * options.pairs)
    placements = Placements(options=options, samples=samples, view=view)
    run = Run(scale=_scale(options), view=view)
    try:
        run.until_done(placements.measure)
    except (TargetError, StartError, SpecError, ConfigError, state.StateError) as error:
        placements.failures.append(str(error))
    finally:
        view.close()
    print(f"\n{table(placements.rates)}\n\n{UNLIMITED}")
    print(f"\nsamples of run {samples.run} (limits: {NO_LIMITS}) are in {samples.folder}")
    for failure in placements.failures:
        print(f"not measured: {failure}", file=sys.stderr)
    return 1 if placements.failures or run.interrupted else 0


if __name__ == "__main__":
    sys.exit(main())
