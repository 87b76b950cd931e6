"""Batches in known damage leave the log early, until none is read from there any more."""

from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from broker.state_machine.batch_index import BatchIndex
from paxos.ids import GroupId
from runtime.upkeep.damaged_batches import LOOK_EVERY_NS, LOOKS_PER_TICK, DamagedBatches

SIZE: Final = 100
A, B = GroupId(1), GroupId(2)


def index(*positions: int) -> BatchIndex:
    """Batches of one offset each, at these positions of the log."""
    made = BatchIndex()
    for offset, position in enumerate(positions):
        made.append(offset, position, SIZE, 0)
    return made


class World:
    """Two groups of one partition each, and the requests to tiering."""

    def __init__(self, **indexes: BatchIndex) -> None:
        self.damage: set[tuple[int, int]] = set()
        self.learning: set[GroupId] = set()
        self.asked: list[tuple[GroupId, int, int]] = []
        self.indexes = dict(zip((A, B), indexes.values(), strict=False))
        self.now_ns = 0
        machines = {
            group: SimpleNamespace(partitions={10 * group: SimpleNamespace(index=one)})
            for group, one in self.indexes.items()
        }
        engine = SimpleNamespace(
            wal=SimpleNamespace(known_damage=self.damage),
            repairs=SimpleNamespace(learns_again=self.learning.__contains__),
        )
        tiering = SimpleNamespace(tier_early=lambda *asked: self.asked.append(asked))
        self.looks = DamagedBatches(cast(Any, engine), cast(Any, machines), cast(Any, tiering))

    def look(self) -> list[tuple[GroupId, int, int]]:
        self.asked.clear()
        self.now_ns += LOOK_EVERY_NS
        self.looks.tick(self.now_ns)
        return list(self.asked)


def test_they_leave_the_log_up_to_the_last_damage() -> None:
    world = World(a=index(1000, 2000, 3000), b=index(1500, 2500))
    assert world.look() == []
    world.damage |= {(1900, 2100), (2950, 3001), (4000, 5000)}
    assert world.look() == [(A, 10, 3001)]
    assert world.look() == [(A, 10, 3001)], "once more, until they are gone"
    world.indexes[A].drop_before(3)
    assert world.look() == []


def test_new_damage_is_looked_at_and_old_one_no_more() -> None:
    world = World(a=index(1000))
    world.damage.add((0, 1000))
    assert world.look() == [], "a batch begins behind it"
    world.damage.add((1000, 1001))
    assert world.look() == [(A, 10, 1001)]


def test_what_is_learned_again_by_its_slot_stays_in_the_log() -> None:
    world = World(a=index(1000), b=index(1010))
    world.damage.add((900, 1100))
    world.learning.add(A)
    assert world.look() == [(B, 20, 1100)]
    world.learning.clear()
    assert world.look() == [(A, 10, 1100), (B, 20, 1100)]


def test_much_damage_takes_many_ticks() -> None:
    """The loop has other things to do; the last place is still found."""
    world = World(a=index(1000), b=index(10**9))
    world.damage |= {(start, start + 1) for start in range(2000, 2000 + LOOKS_PER_TICK)}
    world.damage.add((10**9, 10**9 + 1))
    assert world.look() == []
    asked, ticks = [], 0
    while not asked:
        asked, ticks = world.look(), ticks + 1
    assert asked == [(B, 20, 10**9 + 1)]
    assert ticks == 2


def test_batches_that_were_relocated_are_not_in_order() -> None:
    one = index(1000, 2000, 3000)
    one.relocate(1000, 9000)
    assert not one.lies_within(900, 1100)
    assert one.lies_within(8000, 9001)
    assert one.lies_within(2000, 2001)
    assert not one.lies_within(2001, 3000)


@pytest.mark.parametrize(("start", "stop", "found"), [(0, 1000, False), (1000, 1001, True)])
def test_where_batches_lie(start: int, stop: int, found: bool) -> None:
    assert index(1000, 2000).lies_within(start, stop) is found
    assert not index().lies_within(start, stop)
