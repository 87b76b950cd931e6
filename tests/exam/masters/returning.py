"""How long clients wait while a node comes back that was away: measured with real processes.

    python -m tests.exam.masters.returning --groups 48 --slots 500

Three nodes with a core each, a topic with a partition in every group, and a steady load. One node
is killed, misses that many slots of every group, and is started again. The usual gap is the longest
time without an acknowledgement in any partition before that. The hole is the longest one from the
start until a while after the node is ready.
"""

import argparse
import json
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from cluster import health, status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from cluster.status import ClusterView
from cluster.workload import SteadyProducer, longest_gap_ns
from tests.cluster.scenery import SOON_BACK, in_thread
from tests.exam.masters.one_core import one_core

AWAY: Final = 3
TOPIC: Final = "returning"
CALM_S: Final = 10.0
AFTER_S: Final = 5.0
AGAIN: Final = 5
"""After that many acknowledgements in every partition it counts as served again."""
SETTLED_S: Final = 3.0
PATIENCE_S: Final = 280.0
LOOK_S: Final = 0.25
MS: Final = 1e6
LATER: Final = 100.0
"""How many milliseconds a hole may be longer than twice the usual gap."""


@attrs.frozen(kw_only=True)
class Found:
    groups: int
    slots_missed: int
    usual_ms: float
    hole_ms: float
    ready_s: float
    level_s: float
    """From the start until the node was ready, and until it had applied what the others had."""
    acknowledged: int
    errors: tuple[str, ...]

    @property
    def allowed_ms(self) -> float:
        return 2 * self.usual_ms + LATER


async def measured(
    folder: Path,
    *,
    groups: int,
    slots: int,
    rate: int,
    calm_s: float = CALM_S,
    after_s: float = AFTER_S,
) -> tuple[Found, str]:
    """The measurements, and why the nodes do not have a core each ("" if they have)."""
    spec, _ = plan(folder / "data", node_count=3, groups=groups, fixed_ports=False)
    with one_core() as cores:
        async with launch(spec, command=cores.command) as cluster:
            await cluster.start_all()
            await _until(cluster, lambda view: None not in view.masters().values())
            create = partial(workload.create_topic, partitions=groups, replication=3)
            await in_thread(partial(create, spec.bootstrap, TOPIC))
            producer = SteadyProducer(
                spec.bootstrap,
                TOPIC,
                partitions=groups,
                rate=rate,
                name="p",
                settings=SOON_BACK,
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(in_thread, producer.run)
                try:
                    found = await _returned(cluster, producer, slots, calm_s, after_s)
                    return found, cores.why_not
                finally:
                    producer.stop()


async def _returned(
    cluster: Launcher, producer: SteadyProducer, slots: int, calm_s: float, after_s: float
) -> Found:
    groups = len(producer.acks_ns)
    await _until(cluster, lambda _: min(map(len, producer.acks_ns)) > 2)
    await cluster.kill(AWAY)
    left_at = await _until(cluster, lambda view: not {AWAY, None} & {*view.masters().values()})
    begun = _applied(left_at)
    counts = [len(acks) for acks in producer.acks_ns]
    await _until(cluster, lambda _: _all_more(producer, counts, AGAIN))
    await trio.sleep(min(SETTLED_S, calm_s))
    calm_ns = time.monotonic_ns()
    await trio.sleep(calm_s)
    usual_ns = _longest(producer, calm_ns, time.monotonic_ns())
    view = await _until(cluster, lambda view: _missed(begun, _applied(view)) >= slots)
    missed = _missed(begun, _applied(view))
    back_ns = time.monotonic_ns()
    cluster.start(AWAY)
    with trio.fail_after(PATIENCE_S):
        while not await health.is_ready_async(cluster.spec.node(AWAY).http):  # noqa: ASYNC110
            await trio.sleep(LOOK_S)
    ready_ns = time.monotonic_ns()
    await _until(cluster, partial(_is_near, goal=_applied(view)))
    level_ns = time.monotonic_ns()
    await trio.sleep(after_s)
    return Found(
        groups=groups,
        slots_missed=missed,
        usual_ms=usual_ns / MS,
        hole_ms=_longest(producer, back_ns, time.monotonic_ns()) / MS,
        ready_s=(ready_ns - back_ns) / 1e9,
        level_s=(level_ns - back_ns) / 1e9,
        acknowledged=producer.acknowledged,
        errors=tuple(producer.errors[:5]),
    )


async def _until(cluster: Launcher, condition: Any) -> ClusterView:
    """The first view that satisfies the condition."""
    with trio.move_on_after(PATIENCE_S):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if condition(view):
                return view
            await trio.sleep(LOOK_S)
    raise TimeoutError(f"not within {PATIENCE_S:.0f} s; last seen:\n{status.render(view)}")


def _applied(view: ClusterView) -> dict[int, int]:
    """The most advanced node's position in each group."""
    found: dict[int, int] = {}
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            at = found.get(group["group"], 0)
            found[group["group"]] = max(at, group["applied"])
    return found


def _missed(before: dict[int, int], now: dict[int, int]) -> int:
    """How many slots the typical group has chosen since: the median, as no two groups are alike."""
    grown = sorted(now.get(group, at) - at for group, at in before.items())
    return grown[len(grown) // 2]


def _is_near(view: ClusterView, goal: dict[int, int]) -> bool:
    rows = [row.status for row in view.nodes if row.spec.id == AWAY and row.status is not None]
    return bool(rows) and all(one["applied"] >= goal[one["group"]] for one in rows[0]["groups"])


def _all_more(producer: SteadyProducer, counts: list[int], more: int) -> bool:
    pairs = zip(producer.acks_ns, counts, strict=True)
    return all(len(acks) >= before + more for acks, before in pairs)


def _longest(producer: SteadyProducer, from_ns: int, to_ns: int) -> int:
    return max(longest_gap_ns(list(acks), from_ns, to_ns) for acks in producer.acks_ns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=48)
    parser.add_argument("--slots", type=int, default=500)
    parser.add_argument("--rate", type=int, default=1000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = partial(
            measured, Path(folder), groups=asked.groups, slots=asked.slots, rate=asked.rate
        )
        found, why_not = trio.run(run)
    print(json.dumps({**attrs.asdict(found), "allowed_ms": found.allowed_ms, "cores": why_not}))  # noqa: T201


if __name__ == "__main__":
    main()
