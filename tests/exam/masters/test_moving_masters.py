"""Exam row R12: masters of heavy and light groups move while nodes are killed, stopped, or away for
long. tests/cluster/test_steals.py has one deterministic course of it;
tests/exam/masters/test_moves_watched.py shows what the verdict objects to.

It also tests rule R14 of the protocol on real nodes. Every node is asked all the time where every
partition ends. So masters are asked at the very moment a steal takes the group from them, and none
may answer with what it knew before (tests/exam/nodes/test_standstills.py asks masters that stand
still).
"""

import logging
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import pytest
import trio

from cluster import health, workload
from cluster.launcher import Launcher, launch
from cluster.recorder import Recorder
from cluster.spec import plan
from cluster.status import ClusterView
from cluster.workload import SteadyProducer
from runtime.admin.balancer import NOT_KNOWN
from tests.cluster.scenery import (
    FULL,
    PARTITIONS,
    QUICK,
    TOPIC,
    acknowledged,
    in_thread,
    judge,
    load,
    until,
)
from tests.doses import ONLY_IN_FULL
from tests.exam.masters.moves_watched import Away, Notes, Steal, Watch, wall_ms
from tests.exam.prober import Prober
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster
LOG = logging.getLogger(__name__)

GROUPS: Final = 48 if FULL else 12
HEAVY, LIGHT = 4_000, 500
"""In thousandths of a usual group's weight."""
LEASE_MS, HOLD_DOWN_MS, COOL_DOWN_MS = 2_000, 500, 1_000
"""As in QUICK."""
HEARD_MS: Final = 1_500
BACK_S: Final = 180.0
"""It has missed up to five minutes and has to learn them on two busy cores."""
DEAD_AFTER_MS: Final = 2_000 if FULL else 500
LONG_S: Final = 300.0
RATE: Final = 300
A_FEW: Final = 5
MOVED_S: Final = 60.0
TURNS: Final = (0, 0, 0, 0, 1, 1, 1, 1, 2, 3, 4, 5)
"""The heavy partitions get most of the load."""
SETTINGS: Final = (
    *QUICK,
    f"balancer.dead_after_ms={DEAD_AFTER_MS}",
    "balancer.uneven_for_ms=1000",
    "balancer.uneven_pause_ms=3000",
)


@attrs.define
class Bench:
    cluster: Launcher
    producer: SteadyProducer
    watch: Watch
    chance: random.Random

    @property
    def notes(self) -> Notes:
        return self.watch.notes

    async def ask(self, path: str, body: dict[str, object]) -> Any:
        """Ask a node that is up. If the master was lost meanwhile, the answer is that nobody knows
        (503); asking again does no harm here."""
        away = {one.node for one in self.notes.aways if one.until_ms == float("inf")}
        node = next(node for node in self.cluster.spec.nodes if node.id not in away)
        call = partial(health.call_async, node.http, "POST", timeout_s=health.OPERATOR_S)
        with trio.fail_after(MOVED_S):
            while True:
                try:
                    return await call(path, body)
                except health.HealthError as error:
                    if NOT_KNOWN not in str(error):
                        raise

    @contextmanager
    def ordering(self) -> Iterator[None]:
        began_ms = wall_ms()
        try:
            yield
        finally:
            self.notes.orders.append((began_ms, wall_ms()))

    async def rebalance(self) -> None:
        """Different groups become the heavy ones, and masters are balanced by weight."""
        groups = list(range(GROUPS + 1))
        heavy = set(self.chance.sample(groups, GROUPS // 4))
        weights = {str(group): HEAVY if group in heavy else LIGHT for group in groups}
        told = {"source": "exam", "computed_wall_ms": int(wall_ms()), "weights": weights}
        with self.ordering():
            await self.ask("/admin/weights", told)
            await self.ask("/admin/plan", {"dry_run": False})

    async def turn_round(self) -> None:
        """Assign every master to another node, so that steals go on for a while."""
        view = await until(self.cluster, lambda view: bool(view.groups), "they answer")
        wanted: dict[str, object] = {
            str(row.group): row.ideal % 3 + 1 for row in view.groups if row.ideal is not None
        }
        with self.ordering():
            await self.ask("/admin/placement", {"placement": wanted})

    async def stealing(self, more: int = 1) -> Steal:
        """Wait until there were that many more steals; returns the last one."""
        wanted = len(self.notes.steals) + more
        with trio.fail_after(MOVED_S):
            while len(self.notes.steals) < wanted:  # noqa: ASYNC110 (the watch sets no event)
                await trio.sleep(0.02)
        return max(self.notes.steals.values(), key=lambda one: one.ended_ms)

    async def down(self, node: int, *, kill: bool) -> Away:
        away = Away(node, wall_ms(), killed=kill)
        self.notes.aways.append(away)
        await (self.cluster.kill(node) if kill else self.cluster.pause(node))
        return away

    async def back(self, away: Away) -> None:
        if away.killed:
            self.cluster.start(away.node)
            away.until_ms = wall_ms()
            await self.cluster.wait_ready(away.node, BACK_S)
        else:
            await self.cluster.resume(away.node)
            away.until_ms = wall_ms()

    async def home(self, without: int | None = None) -> ClusterView:
        """All masters are on their ideal nodes, none of them on that node, and a new plan would
        move nothing."""
        view = await until(
            self.cluster,
            lambda view: view.all_at_ideal and without not in view.masters().values(),
            f"all masters are where they belong (without {without})",
            within_s=MOVED_S,
        )
        assert len(view.groups) == GROUPS + 1
        return view

    async def even(self, without: int | None = None) -> None:
        """By weight, as well as the planner can: a new plan would move nothing."""
        with trio.fail_after(MOVED_S):
            while True:
                await self.home(without)
                shown = await self.ask("/admin/plan", {"dry_run": True})
                left = [one for one in shown["decisions"] if one["move"]]
                if not left:
                    assert shown["weights"] == "exam", "published weights, and they are believed"
                    return
                await trio.sleep(0.2)

    def verdict(self) -> None:
        found = self.notes.objections(
            hold_down_ms=HOLD_DOWN_MS,
            cool_down_ms=COOL_DOWN_MS,
            dead_after_ms=DEAD_AFTER_MS + HEARD_MS,
        )
        assert not found, "\n".join(found[:20])
        outcomes = [one.outcome for one in self.notes.steals.values()]
        told = {what: outcomes.count(what) for what in sorted(set(outcomes))}
        LOG.info("%s looks, steals: %s", len(self.notes.looks), told)


@asynccontextmanager
async def bench(tmp_path: Path, seed: str) -> AsyncIterator[Bench]:
    """Three nodes, heavy and light groups, and a watcher, whose notes are judged in the end."""
    spec, _ = plan(tmp_path / "data", node_count=3, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=SETTINGS) as cluster:
        await cluster.start_all()
        all_led = lambda view: (  # noqa: E731
            len(view.groups) == GROUPS + 1 and None not in view.masters().values()
        )
        await until(cluster, all_led, "every group has a master")
        await in_thread(
            partial(
                workload.create_topic, spec.bootstrap, TOPIC, partitions=PARTITIONS, replication=3
            )
        )
        watch = Watch(cluster, LEASE_MS + HEARD_MS)
        async with load(cluster, "p", rate=RATE, turns=TURNS) as producer:
            await acknowledged(producer, A_FEW)
            with Recorder(spec.data_dir / "history-probes.jsonl") as recorder:
                prober = Prober(spec, TOPIC, PARTITIONS, recorder)
                async with trio.open_nursery() as nursery:
                    one = Bench(cluster, producer, watch, random.Random(seed))
                    await one.ask("/admin/policy", {"evenness": "weight"})
                    nursery.start_soon(watch.run)
                    nursery.start_soon(prober.run)
                    yield one
                    nursery.cancel_scope.cancel()
        one.verdict()
        await judge(cluster, producer)
        for node in spec.nodes:
            answers = prober.answers[node.id]
            assert answers[ErrorCode.NONE], "it was asked as a master"
            assert answers[ErrorCode.NOT_LEADER_OR_FOLLOWER], "and as none"
        LOG.info("answers: %s", {node: dict(all_of) for node, all_of in prober.answers.items()})


async def test_R12_a_node_dies_while_heavy_and_light_groups_move(tmp_path: Path) -> None:
    """Masters spread evenly over the remaining two; in the full dose nodes come back."""
    async with bench(tmp_path, "taste") as one:
        await one.turn_round()
        last = await one.stealing()
        away = await one.down(last.target, kill=True)
        await one.rebalance()
        await one.even(without=away.node)
        await acknowledged(one.producer, A_FEW)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("half", [1, 2])
async def test_R12_kills_and_stops_while_masters_move(tmp_path: Path, half: int) -> None:
    """Ten rounds each: the node that steals, the one it steals from, or the third is killed or
    stopped, for less than a lease or until the others have its groups."""
    async with bench(tmp_path, f"half {half}") as one:
        for number in range(10):
            await one.turn_round()
            last = await one.stealing(one.chance.randrange(1, 6))
            third = 6 - last.source - last.target
            who = one.chance.choice([last.target, last.target, last.source, third])
            kill, short = one.chance.random() < 0.6, one.chance.random() < 0.4
            LOG.info("round %s: %s, %s of %s", number, who, "kill" if kill else "stop", last)
            away = await one.down(who, kill=kill)
            if short:
                await trio.sleep(one.chance.uniform(0.1, LEASE_MS / 1_000))
            else:
                await one.rebalance()
                await one.home(without=who)
            if away.killed:  # a client waits for a stopped node as long as it can
                await acknowledged(one.producer, A_FEW)
            await one.back(away)
            await one.rebalance()
            await one.even()
            await acknowledged(one.producer, A_FEW)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_R12_a_node_is_away_for_five_minutes(tmp_path: Path) -> None:
    """Meanwhile masters move among the other nodes, one of which is stopped now and then."""
    async with bench(tmp_path, "five minutes") as one:
        await one.turn_round()
        await one.rebalance()  # else an operator decides: no plans
        last = await one.stealing()
        away = await one.down(last.target, kill=True)
        ends = trio.current_time() + LONG_S
        while trio.current_time() < ends:
            await one.even(without=away.node)
            await acknowledged(one.producer, A_FEW)
            await one.rebalance()
            await trio.sleep(10.0)
        await one.even(without=away.node)
        await one.back(away)
        await one.rebalance()
        await one.even()
        view = await one.home()
        assert min(view.count_by_master().values()) > 0
        await acknowledged(one.producer, A_FEW)
