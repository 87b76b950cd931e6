"""A new cluster loses power in its first moments, when only some of its nodes have promised."""

import random
from collections.abc import Collection, Sequence
from typing import TypeVar

import pytest

from paxos.ids import MS
from simulator.whole.host import Host
from simulator.whole.hunts.hunting import small
from simulator.whole.world import World

S = 1_000 * MS
SLOW_NS = 2_000 * MS
"""So long the disks of the others need for their first promise."""
T = TypeVar("T")


class NothingSurvives(random.Random):
    """Of what is not durable."""

    def random(self) -> float:
        return 1.0

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override] # of a sequence
        return seq[0]


def without_power(*, nodes: int, replicas: int, promised: Collection[int]) -> World:
    """All nodes lose power as soon as those in `promised` have durable promises, and no others."""
    world = World(small(3, nodes=nodes, replicas=replicas, faults=frozenset()))
    world.begin()
    loop, hosts = world.loop, list(world.nodes.values())
    begun: dict[Host, int] = {}
    while len(begun) < nodes or any(
        not has_written(host, begun) for host in hosts if host.me in promised
    ):
        loop.run_until(loop.now_ns + MS)
        assert loop.now_ns < 10 * S
        for host in hosts:
            if host.node is not None and host not in begun:
                begun[host] = host.node.wal.reached
                host.disk.slow_ns = 0 if host.me in promised else SLOW_NS
    for host in hosts:
        host.disk.slow_ns = 0
        assert has_written(host, begun) == (host.me in promised)
        host.cut_power(NothingSurvives())
    return world


def has_written(host: Host, begun: dict[Host, int]) -> bool:
    assert host.node is not None
    return host.node.wal.reached > begun[host]


@pytest.mark.parametrize(
    ("nodes", "promised", "late", "late_ms"),
    [
        (3, (1,), 1, 0),
        (3, (1,), 1, 3_000),
        (3, (1,), 2, 3_000),
        (5, (1, 2), 3, 3_000),
    ],
)
def test_a_minority_has_promised(
    nodes: int, promised: tuple[int, ...], late: int, late_ms: int
) -> None:
    """The others have nothing to forget, whoever comes late."""
    world = without_power(nodes=nodes, replicas=3, promised=promised)
    for host in world.nodes.values():
        world.loop.after(late_ms * MS if host.me == late else 1, host.boot)
    world.go_on()
