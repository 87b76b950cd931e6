"""Bare append and product under the same loads, in alternating rounds of one run.

Both run all the time. The side that is not being measured has nothing to do, and before each round
both have come to rest: otherwise the next round would pay for what the product still copies to its
cold segments. Two rounds, one of each side, are a pair; the order within pairs alternates (bare,
product, product, bare, ...), so that drift over time favours neither. The result is the product's
share of the bare append, pair by pair: rates of different minutes are not compared.

The bare append has one leader, so the product's masters are all on one node, unless told otherwise.
"""

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import trio

from benchmarks.limits import machine
from benchmarks.limits.bare import bare_append
from benchmarks.limits.loads import CONSUME_BAR, Load, Scale
from benchmarks.load import usage
from benchmarks.load.jobs import Measured, measured_to_json
from benchmarks.load.samples import BALANCED, CONCENTRATED
from benchmarks.placement.placements import check_layout, put_masters
from benchmarks.report.progress import View
from benchmarks.report.results import Figure, Outcome, latency_figures, number
from benchmarks.suites import suite
from benchmarks.suites.bench import FULL, QUICK, RETRIES_MAX, Bench
from benchmarks.suites.runs import NOT_MEASURABLE
from benchmarks.target import Target, delete_topic, fresh_cluster
from cluster import health

GROUPS: Final = 12
BARE: Final = "bare"
PRODUCT: Final = "product"
SIDES: Final = (BARE, PRODUCT)
CALM_S_MAX: Final = 15.0
CALM_LOOK_S: Final = 0.5
CALM_CORES: Final = 0.3
"""All servers of both sides together: an idle node takes some hundredths of a core."""
CONSUME: Final = next(one for one in suite.BENCHMARKS if one.name == "consume")
BARE_TOPIC: Final = "bare"
FAILURES: Final = (*NOT_MEASURABLE, health.HealthError, OSError)


def rounds(pairs: int) -> Iterator[tuple[int, str]]:
    """Bare, product, product, bare, bare, ...; each with the number of its pair."""
    for pair in range(pairs):
        for side in SIDES if pair % 2 == 0 else reversed(SIDES):
            yield pair, side


def shares(load: Load, measured: Sequence[dict[str, Measured]]) -> list[float]:
    """The product's value divided by the bare append's, pair by pair."""
    return [load.value(pair[PRODUCT]) / max(load.value(pair[BARE]), 1e-9) for pair in measured]


def outcome_of(
    load: Load, pairs: Sequence[dict[str, Measured]], settings: dict[str, Any], retried: list[str]
) -> Outcome:
    """All figures of one load; the bar is for the median of the pairs' shares."""
    figures = [
        Figure(
            name="share",
            values=shares(load, pairs),
            bar=load.bar,
            less_is_better=load.of_latency,
        )
    ]
    for side in SIDES:
        of_side = [pair[side] for pair in pairs]
        values = map(load.value, of_side)
        name = f"{side} {load.unit}"
        figures.append(Figure(name=name, values=values, less_is_better=load.of_latency))
        if not load.of_latency and all(one.latency_ns.count for one in of_side):
            figures += latency_figures(of_side, percents=(50,), prefix=f"{side} ")
        costs = map(load.cost, of_side)
        figures.append(Figure(name=f"{side} {load.cost_unit}", values=costs, less_is_better=True))
    return Outcome(
        name=load.name,
        title=load.title,
        figures=tuple(figures),
        settings=settings,
        repetitions=tuple(
            {"pair": number, "side": side, **measured_to_json(pair[side])}
            for number, pair in enumerate(pairs)
            for side in SIDES
        ),
        others_share=max(pair[side].usage.others_share for pair in pairs for side in SIDES),
        retried=tuple(retried),
    )


@attrs.define(kw_only=True)
class Limits:
    """The options, and what has been measured so far."""

    probes: Sequence[machine.Probe]
    loads: Sequence[Load]
    consume: bool
    scale: Scale
    partitions: int
    spread: bool
    overrides: Sequence[str]
    view: View
    outcomes: list[Outcome] = attrs.Factory(list)
    configurations: dict[str, Any] = attrs.Factory(dict)

    @property
    def layout(self) -> str:
        return BALANCED if self.spread else CONCENTRATED

    @property
    def steps(self) -> int:
        return len(self.probes) + len(self.loads) + self.consume

    async def measure(self) -> None:
        """The machine first, then all loads, on as few clusters as have room for their data."""
        for probe in self.probes:
            await self._probe(probe)
        waiting = deque(self.loads)
        if not waiting and not self.consume:
            return
        async with bare_append(self.partitions) as bare:
            self.configurations[BARE] = bare.target.configuration
            consume = self.consume
            while waiting or consume:
                self.view.say(f"a fresh cluster with {GROUPS} groups, masters {self.layout}")
                cluster = fresh_cluster(groups=GROUPS, overrides=self.overrides, say=self.view.say)
                async with cluster as product:
                    self.configurations[PRODUCT] = product.configuration
                    targets = {BARE: bare.target, PRODUCT: product}
                    while waiting and not product.full:
                        await self._load(waiting.popleft(), targets)
                    if consume and not waiting and not product.full:
                        await self._consume(product)
                        consume = False

    async def _probe(self, probe: machine.Probe) -> None:
        self.view.begin(f"{probe.name}: {probe.title}")
        repetitions = FULL.repetitions
        seconds = min(1.0, self.scale.window_s)
        try:
            outcome = await probe.measure(machine.Scale(repetitions=repetitions, seconds=seconds))
        except FAILURES as error:
            outcome = Outcome(name=probe.name, title=probe.title, failure=str(error))
        self._over(outcome)

    async def _load(self, load: Load, targets: dict[str, Target]) -> None:
        self.view.begin(f"{load.name}: {load.title}")
        product = targets[PRODUCT]
        retried: list[str] = []
        try:
            await self._put_masters(product)
            async with product.topic(load.name, self.partitions) as topic:
                pairs = await self._pairs(load, targets, topic, retried)
                await trio.to_thread.run_sync(delete_topic, product.bootstrap, topic)
            settings = {
                "scale": self.scale.name,
                "partitions": self.partitions,
                "masters": self.layout,
                "job": attrs.asdict(load.make(product, "", self.partitions, self.scale)),
            }
            outcome = outcome_of(load, pairs, settings, retried)
        except FAILURES as error:
            failed = Outcome(name=load.name, title=load.title, failure=str(error))
            outcome = attrs.evolve(failed, retried=tuple(retried))
        self._over(outcome)

    async def _pairs(
        self, load: Load, targets: dict[str, Target], topic: str, retried: list[str]
    ) -> list[dict[str, Measured]]:
        pairs: list[dict[str, Measured]] = [{} for _ in range(self.scale.pairs)]
        topics = {BARE: BARE_TOPIC, PRODUCT: topic}
        for pair, side in rounds(self.scale.pairs):
            await self._calm([pid for target in targets.values() for pid in target.pids])
            while side not in pairs[pair]:
                try:
                    pairs[pair][side] = await self._round(load, targets[side], topics[side])
                except FAILURES as error:
                    retried.append(str(error))
                    self.view.say(f"again, because: {error}")
                    if len(retried) > RETRIES_MAX:
                        raise
            self._tell(load, pair, side, pairs[pair])
        return pairs

    async def _round(self, load: Load, target: Target, topic: str) -> Measured:
        """One load on one side; the masters have to be in place before and after."""
        bench = Bench(target, QUICK, self.view.say)
        ours = target.spec is not None
        if ours:
            await self._put_masters(target)
            await self._check_layout(target, topic)
        measured = await bench.run(load.make(target, topic, self.partitions, self.scale))
        if ours:
            await self._check_layout(target, topic)
        return measured

    async def _put_masters(self, product: Target) -> None:
        assert product.spec is not None, "the cluster is ours"
        await put_masters(product.spec, self.layout)

    async def _check_layout(self, product: Target, topic: str) -> None:
        if not self.spread or self.partitions >= GROUPS:
            await check_layout(product, topic, self.layout, self.partitions)

    async def _calm(self, pids: Sequence[int]) -> None:
        """Wait until no server has work left, but with a limit: others use this disk too."""
        with trio.move_on_after(CALM_S_MAX):
            while True:
                before = usage.snapshot(pids)
                await trio.sleep(CALM_LOOK_S)
                spent = usage.between(before, usage.snapshot(pids))
                if sum(spent.nodes_s) < CALM_CORES * spent.seconds:
                    return
        self.view.say(f"the servers are still busy after {CALM_S_MAX:.0f} s")

    def _tell(self, load: Load, pair: int, side: str, measured: dict[str, Measured]) -> None:
        one = measured[side]
        line = f"{side} {number(load.value(one))} {load.unit}, {number(load.cost(one))}"
        line = f"pair {pair + 1} of {self.scale.pairs}: {line} {load.cost_unit}"
        if len(measured) == len(SIDES):
            line += f"; share {shares(load, [measured])[0]:.2f}"
        self.view.say(line)

    async def _consume(self, product: Target) -> None:
        """The same as in suite.py, with a bar, with the masters where they are here."""
        self.view.begin(f"{CONSUME.name}: {CONSUME.title}")
        scale = QUICK if self.scale.name == QUICK.name else FULL

        @asynccontextmanager
        async def at_rest() -> AsyncIterator[None]:
            await self._calm(product.pids)
            yield

        bench = Bench(
            *(product, scale, self.view.say),
            benchmark=CONSUME.name,
            layout=self.layout,
            turn=at_rest,
        )
        benchmark = attrs.evolve(CONSUME, partitions=self.partitions)
        try:
            await self._put_masters(product)
            outcome = await benchmark.measure(bench)
        except FAILURES as error:
            outcome = Outcome(name=CONSUME.name, title=CONSUME.title, failure=str(error))
        figures = [
            attrs.evolve(one, bar=CONSUME_BAR) if one.name == "MB/s" else one
            for one in outcome.figures
        ]
        self._over(attrs.evolve(outcome, figures=tuple(figures)))

    def _over(self, outcome: Outcome) -> None:
        if outcome.failure:
            self.view.say(f"failed: {outcome.failure}")
        self.outcomes.append(outcome)
        self.view.done()
