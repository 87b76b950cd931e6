"""The thread that compacts, over real cold files: what is left of them, and when it pauses."""

import io
import threading
from random import Random

import attrs

from broker.lifecycle.compaction_plan import Compacted
from broker.topic_configs import CompactionRules
from runtime.system.journal import Journal
from runtime.upkeep.compactor import Compactor
from storage.cold.format import cold_name
from storage.cold.store import ColdStore
from storage.disk.memory import MemoryDisk
from tests.broker.lifecycle.test_compaction import Table, batch_of, learn, records_of
from tests.storage.cold.test_cold import OWNER
from wire.records.batch import Compression, Record, parse_header, split

NEVER = (1 << 63) - 1
FILE_BYTES = 2_000
UID = 7


@attrs.define(slots=False)
class World:
    """One partition, as its producers see it, and as it is in the cold store."""

    disk: MemoryDisk = attrs.field(factory=MemoryDisk)
    written: list[Record] = attrs.field(factory=list)
    now_ms: int = 1_000_000
    keys_max: int = 1_000
    dirty_ratio: float = 0.5

    def __attrs_post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.disk.kill()
        self.store = ColdStore(self.disk, OWNER)
        self.compactor = Compactor(
            self.store,
            lambda: self.now_ms,
            Journal("error", io.StringIO()),
            bytes_per_s=0,
            every_s=0.001,
            keys_max=self.keys_max,
            rest_factor=0,
        )
        rules = CompactionRules(1_000, 0, NEVER, self.dirty_ratio)
        self.compactor.assign({UID: Compacted(rules, FILE_BYTES)})

    def append(self, *records: tuple[bytes, bytes | None]) -> None:
        base = len(self.written)
        timed = [Record(value, key, self.now_ms) for key, value in records]
        batch = batch_of(timed, base, list(Compression)[base % 5])
        self.written += records_of([batch])
        header = batch.header
        row = (base, header.last_offset + 1, header.max_timestamp_ms, (batch.data,))
        self.store.append(UID, [row], segment_bytes=FILE_BYTES)

    def fill(self, count: int, keys: int, dice: Random) -> None:
        for _ in range(count):
            key = b"key-%d" % dice.randrange(keys)
            value = None if dice.random() < 0.1 else dice.randbytes(200)
            self.append((key, value), (b"other", b"%d" % self.now_ms))

    def left(self) -> list[Record]:
        records: list[Record] = []
        offset = 0
        while batches := self.store.batches(UID, offset, 10_000):
            for batch in batches:
                header = parse_header(batch.data)
                assert (header.base_offset, header.last_offset + 1) == (batch.base, batch.end)
                assert header.max_timestamp_ms == batch.max_timestamp_ms
                records += records_of(split(batch.data))
            offset = batches[-1].end
        assert offset == len(self.written), "the end never moves"
        return records

    def check(self) -> list[Record]:
        left = self.left()
        assert all(record == self.written[record.offset] for record in left)
        assert learn(Table(), left) == learn(Table(), self.written)
        return left


def test_a_partition_shrinks_to_what_its_keys_are_worth() -> None:
    world, dice = World(), Random(1)
    world.fill(300, 20, dice)
    before = world.store.held()[UID]
    world.compactor.look()
    assert len(world.check()) < 50
    assert world.store.held()[UID] < before / 5
    statistics = world.compactor.statistics
    assert statistics.rounds == 1
    assert statistics.records_removed > 500
    assert statistics.bytes_removed > 40_000
    assert statistics.dirty_ratio_max == 0.0
    world.restart()
    world.compactor.look()
    assert world.compactor.statistics.rounds == 0, "how far it came stands in the files"
    world.check()


def test_a_tombstone_goes_when_its_time_is_over() -> None:
    world, dice = World(), Random(2)
    world.append((b"gone", b"value"))
    world.append((b"gone", None))
    world.fill(30, 3, dice)
    world.compactor.look()
    assert [one.value for one in world.check() if one.key == b"gone"] == [None]
    for _ in range(2):
        world.now_ms += 600
        world.restart()
        world.fill(60, 3, dice)
        world.compactor.look()
    assert not [one for one in world.check() if one.key == b"gone"]
    assert world.compactor.statistics.tombstones_removed >= 1


def test_little_memory_means_many_rounds() -> None:
    world = World(keys_max=3, dirty_ratio=0.0)
    world.fill(120, 12, Random(3))
    world.compactor.look()
    assert world.compactor.statistics.rounds > 10
    sealed = world.store.facts(UID)[-1].base
    last = {one.key: one.offset for one in world.written if one.offset < sealed}
    assert [one.offset for one in world.check() if one.offset < sealed] == sorted(last.values())


def test_lives_of_a_partition() -> None:
    """With appends, retention, kills and restarts in any order."""
    for seed in range(8):
        dice = Random(seed)
        world = World(keys_max=dice.choice([9, 1_000, 1_000]))
        for _ in range(10):
            world.fill(dice.randrange(25), dice.choice([2, 9, 40]), dice)
            world.now_ms += dice.choice([0, 1, 400, 1_500])
            fails = dice.random() < 0.3
            if fails:
                world.disk.fail(dice.choice(["write", "fdatasync"]), 28, after=dice.randrange(30))
            world.compactor.look()
            if fails or dice.random() < 0.3:
                world.restart()
            if world.written:
                world.check()


def test_damage_is_told_and_waits_for_somebody_to_mend_it() -> None:
    world = World()
    world.fill(60, 5, Random(4))
    whole = {
        file.base: world.store.batches(UID, file.base, 1)[0] for file in world.store.facts(UID)
    }
    second = world.store.facts(UID)[1]
    world.disk.corrupt(cold_name(UID, second.base), 300, 1)
    world.restart()
    world.compactor.look()
    (damage,) = world.compactor.take_damaged()
    assert damage.uid == UID
    assert second.base <= damage.base < damage.end <= second.end
    assert world.compactor.statistics.gave_way == 1
    assert world.compactor.take_damaged() == []
    assert world.compactor.statistics.rounds == 0
    assert len(whole) == len(world.store.facts(UID))


def test_it_stops_in_the_middle_of_a_round_and_nothing_is_lost() -> None:
    world = World()
    world.fill(200, 20, Random(5))
    looked = threading.Event()
    batches = world.store.batches

    def watched(uid: int, offset: int, bytes_max: int) -> list[object]:
        if offset > 50:
            looked.set()
        return batches(uid, offset, 300)

    world.store.batches = watched  # type: ignore[method-assign,assignment]
    world.compactor.start()
    assert looked.wait(30)
    assert world.compactor.stop()
    assert world.compactor.take_damaged() == []
    world.restart()
    assert [name for name in world.disk.names() if not name.endswith(".seg")] == []
    world.check()
