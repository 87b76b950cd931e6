"""Cold data: appended data is read back, or damage is reported; a peer's data repairs it."""

import errno
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from paxos.ids import Incarnation, NodeId
from storage.cold import cache as cold_cache
from storage.cold import reading as cold_reading
from storage.cold import rewrite as cold_rewrite
from storage.cold.file import ColdFile
from storage.cold.format import BLOCK_BYTES, HEADER_BYTES, Written, cold_name
from storage.cold.store import ColdStore
from storage.disk.descriptors import KEPT_OPEN_MAX
from storage.disk.files import Disk, RealDisk
from storage.disk.memory import MemoryDisk, PowerCut
from storage.errors import (
    ColdDamaged,
    DirectoryRefused,
    DiskFull,
    NotInLog,
    StorageFailed,
)
from storage.identity import Identity
from tests.storage.crash_points import every_crash

LONG = 1 << 20
OWNER = Identity("cluster", NodeId(7), Incarnation(1))
GOLDEN = Path(__file__).parent / "golden" / "cold-1.hex"
STEP = 3
"""Offsets per batch."""


@pytest.fixture(params=["real", "memory"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path) if request.param == "real" else MemoryDisk(write_bytes_max=10_000)


def content(base: int, size: int) -> bytes:
    return (b"%d." % base * size)[:size]


def made(start: int, end: int, size: int = 100) -> list[Written]:
    """The batches of these offsets: the same on every node."""
    return [
        (base, base + STEP, 10 * base, (content(base, size)[:5], content(base, size)[5:]))
        for base in range(start, end, STEP)
    ]


def everything(store: ColdStore, uid: int = 1, offset: int | None = None) -> dict[int, bytes]:
    """All batches from an offset on, with as many reads as necessary."""
    found: dict[int, bytes] = {}
    at = store.start(uid) if offset is None else offset
    while at is not None and (batches := store.batches(uid, at, 1000)):
        for batch in batches:
            found[batch.base] = bytes(batch.data)
            assert batch.end == batch.base + STEP
            assert batch.max_timestamp_ms == 10 * batch.base
        at = batches[-1].end
    return found


def expected(start: int, end: int, size: int = 100) -> dict[int, bytes]:
    return {base: content(base, size) for base in range(start, end, STEP)}


def test_what_was_appended_is_read_from_any_offset_on(disk: Disk) -> None:
    store = ColdStore(disk, OWNER)
    assert (store.uids(), store.start(1), store.end(1)) == ([], None, None)
    assert store.append(1, made(30, 3030), segment_bytes=50_000) == 3030
    assert store.append(1, made(3030, 6030), segment_bytes=50_000) == 6030
    assert store.append(1, made(6030, 6060), segment_bytes=50_000) == 6060
    assert store.append(2, made(0, 3)) == 3
    with pytest.raises(AssertionError, match="gap"):
        store.append(2, made(6, 9))
    for one in (store, ColdStore(disk, OWNER)):
        assert one.uids() == [1, 2]
        assert (one.start(1), one.end(1), one.end(2)) == (30, 6060, 3)
        assert everything(one) == expected(30, 6060)
        for offset in (30, 31, 4000, 6058, 6059):
            (first,) = one.batches(1, offset, 1)
            assert first.base == offset - offset % STEP
        assert one.read(1, 6060, 1) == one.read(2, 999, 1) == []
        with pytest.raises(NotInLog):
            one.read(1, 29, 1)
        with pytest.raises(NotInLog):
            one.read(3, 0, 1)
        several = one.read(1, 33, 1000)
        assert 900 < sum(map(len, several)) <= 1000
        segments = one.segments(1)
        assert len(segments) == 3
        assert [part.base for part in segments[1:]] == [part.end for part in segments[:-1]]
        assert (segments[0].base, segments[-1].end) == (30, 6060)
        assert [part.max_timestamp_ms for part in segments] == [
            10 * (part.end - STEP) for part in segments
        ]
        sizes = disk.sizes()
        assert [part.bytes for part in segments] == [
            sizes[cold_name(1, part.base)] for part in segments
        ]
        assert one.bytes_held == sum(one.held().values())
        assert one.held()[1] == sum(part.bytes for part in segments)
        assert one.bytes_from(1, 0) >= one.bytes_from(1, 40) > one.bytes_from(1, 6059) > 0
        assert one.bytes_from(1, 6060) == one.bytes_from(9, 0) == 0
        for since in (0, 30, 100, 5000):
            for moment in (-5, 300, 3001, 45_000, 60_570):
                base = max(-(-moment // 30) * STEP, since - since % STEP, 30)
                assert one.find_time(1, moment, since) == base
        assert one.find_time(1, 60_571) is None
        for uid, base in one.files():
            assert one.check(uid, base) == []


def test_a_file_is_full_by_size_or_by_time(disk: Disk) -> None:
    store = ColdStore(disk, OWNER)
    for start in range(0, 300, STEP):
        store.append(1, made(start, start + STEP), segment_ms=1000)
    assert [part.base for part in store.segments(1)] == [0, 102, 204], "100 offsets are 1000 ms"
    store.append(2, made(0, 3, BLOCK_BYTES * 3), segment_bytes=1000)
    store.append(2, made(3, 9, 10), segment_bytes=1000)
    assert [part.base for part in store.segments(2)] == [0, 3]
    assert everything(store, 2, 3) == expected(3, 9, 10)
    assert len(store.read(2, 0, 1)[0]) > BLOCK_BYTES


def test_files_below_an_offset_go_and_whoever_reads_them_keeps_his_bytes(disk: Disk) -> None:
    store = ColdStore(disk, OWNER)
    for start in range(0, 6000, 600):
        store.append(1, made(start, start + 600), segment_bytes=10_000)
    segments = store.segments(1)
    assert len(segments) == 10
    held = store.read(1, 0, 500)
    assert store.drop_before(1, segments[1].base - 1) == 0
    assert store.drop_before(1, segments[3].base + 1) == sum(part.bytes for part in segments[:3])
    assert store.start(1) == segments[3].base
    assert b"".join(map(bytes, held))[:100] == content(0, 100)
    with pytest.raises(NotInLog):
        store.read(1, 0, 500)
    assert everything(ColdStore(disk, OWNER)) == expected(segments[3].base, 6000)
    assert store.drop_before(1, 6000) == sum(part.bytes for part in segments[3:])
    assert (store.uids(), store.end(1), disk.names()) == ([], None, [])
    assert store.append(1, made(9000, 9030)) == 9030, "anywhere"
    store.drop(1)
    assert (store.drop(1), store.bytes_held, disk.names()) == (0, 0, [])


def test_compacted_offsets_are_told_from_lost_ones(disk: Disk) -> None:
    """Readers skip compacted offsets; lost ones must not be skipped."""
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 6000), segment_bytes=50_000)
    parts = store.segments(1)
    kept = [one for one in made(0, parts[1].end) if one[0] % 60 == 30]
    store.replace(1, 0, parts[1].end, kept)
    assert store.segments(1)[0].bytes < parts[0].bytes / 5
    for one in (store, ColdStore(disk, OWNER)):
        found = everything(one)
        early = {base: data for base, data in found.items() if base < parts[1].end}
        assert sorted(early) == [each[0] for each in kept]
        assert {base: found[base] for base in found if base >= parts[1].end} == expected(
            parts[1].end, 6000
        )
        assert one.batches(1, 31 + STEP, 1)[0].base == 90
        assert [one.check(uid, base) for uid, base in one.files()] == [[]] * len(parts)
    assert store.append(1, made(6030, 6060), gaps=True) == 6060
    assert store.batches(1, 6000, 1)[0].base == 6030
    store.replace(1, 0, parts[0].end, [])
    assert store.batches(1, 0, 1)[0].base >= parts[0].end


def test_thousands_of_partitions_cost_a_start_nothing_but_their_names() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for uid in range(3000):
        store.append(uid, made(uid * STEP, (uid + 2) * STEP, 10))
    disk.fail("open", errno.EIO)
    store = ColdStore(disk, OWNER)
    assert len(store.uids()) == 3000
    assert store.bytes_held == sum(disk.sizes().values())
    with pytest.raises(StorageFailed):
        store.end(5)
    for uid in range(3000):
        assert store.end(uid) == (uid + 2) * STEP
        assert everything(store, uid) == expected(uid * STEP, (uid + 2) * STEP, 10)
    statistics = store.statistics()
    assert (statistics.partitions, statistics.files) == (3000, 3000)
    assert statistics.files_open <= KEPT_OPEN_MAX


def test_indexes_in_memory_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_cache, "INDEX_BLOCKS_MAX", 10)
    store = ColdStore(MemoryDisk(), OWNER)
    for uid in range(6):
        for start in range(0, 24, STEP):
            store.append(uid, made(start, start + STEP))
    for uid in (0, 5, 3, 1, 2, 4, 0):
        assert everything(store, uid) == expected(0, 24)
        assert store.statistics().index_blocks <= 10


# ---- crashes ------------------------------------------------------------------------------------


def grown() -> MemoryDisk:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 12), segment_bytes=700)
    store.append(1, made(12, 18), segment_bytes=700)
    disk.kill()
    return disk


def test_a_crash_at_any_step_keeps_what_was_durable_and_a_beginning_of_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before and after each operation of an append that fills a file and begins the next one."""
    monkeypatch.setattr(cold_rewrite, "BLOCK_BYTES", 1)
    ends = set()
    for where, disk in every_crash(
        grown, lambda one: ColdStore(one, OWNER).append(1, made(18, 27, 500), segment_bytes=700)
    ):
        store = ColdStore(disk, OWNER)
        end = store.end(1)
        assert end is not None, where
        assert 18 <= end <= 27, where
        ends.add(end)
        assert everything(store) == expected(0, 18) | expected(18, end, 500), where
        assert [store.check(*one) for one in store.files()] == [[]] * len(store.files()), where
        assert store.append(1, made(end, end + 30)) == end + 30, where
        disk.crash(lambda: False)
        again = ColdStore(disk, OWNER)
        assert again.end(1) == end + 30, f"{where}: what is behind the torn tail is durable, too"
        assert everything(again, 1, end) == expected(end, end + 30)
    assert ends == {18, 21, 24, 27}


def test_a_crash_while_a_file_is_replaced_leaves_the_old_or_the_new_one() -> None:
    def mend(disk: MemoryDisk) -> None:
        ColdStore(disk, OWNER).replace(1, 3, 6, made(3, 6, 300))

    sizes = set()
    for where, disk in every_crash(grown, mend):
        found = everything(ColdStore(disk, OWNER))
        sizes.add(len(found[3]))
        assert found == expected(0, 18) | {3: found[3]}, where
    assert sizes == {len(content(3, 100)), len(content(3, 300))}


@pytest.mark.parametrize("seed", range(40))
def test_lives_with_power_cuts_failing_disks_and_dropped_files(seed: int) -> None:
    dice = Random(seed)
    disk = MemoryDisk(write_bytes_max=dice.choice([None, 97, 1500]))
    survival = dice.choice([0.0, 0.3, 0.7, 1.0])
    acknowledged, dropped, size = 0, 0, dice.choice([20, 300, 2000])
    for _ in range(12):
        store = ColdStore(disk, OWNER)
        end = store.end(1)
        assert acknowledged <= (end or acknowledged)
        assert (store.start(1) or 0) <= dropped
        assert everything(store) == expected(store.start(1) or 0, end or 0, size)
        disk.stop(dice.choice(["write", "fdatasync", "rename", "fsync"]), after=dice.randrange(12))
        if dice.random() < 0.3:
            disk.fail(dice.choice(["write", "fdatasync"]), errno.EIO, after=dice.randrange(9))
        try:
            while True:
                start = store.end(1)
                start = acknowledged if start is None else start
                stop = start + STEP * dice.randrange(1, 8)
                acknowledged = store.append(1, made(start, stop, size), segment_bytes=3 * size)
                if dice.random() < 0.2:
                    dropped = max(dropped, dice.randrange(max(1, acknowledged - 30)))
                    store.drop_before(1, dropped)
        except PowerCut:
            disk.crash(lambda: dice.random() < survival)
        except StorageFailed:
            disk.kill() if dice.random() < 0.5 else disk.crash(lambda: dice.random() < survival)


def test_a_full_disk_is_a_pause() -> None:
    disk = MemoryDisk(capacity_bytes=30_000)
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 90))
    with pytest.raises(DiskFull):
        store.append(1, made(90, 900))
    assert store.end(1) == 90
    assert everything(store) == expected(0, 90)
    disk.capacity_bytes = None
    assert store.append(1, made(90, 900)) == 900
    assert everything(ColdStore(disk, OWNER)) == expected(0, 900)


# ---- damage -------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found_and_mended_with_a_peers_data() -> None:
    """In the header, in blocks and in the seal, of a full file and of the last one. Only the end of
    the last append, cut off as torn, has to be requested by whoever knows how far it went."""
    whole = grown()
    last = max(base for _, base in ColdStore(whole, OWNER).files())
    for name in whole.names():
        for byte in range(len(whole.content(name))):
            disk = whole.clone()
            disk.corrupt(name, byte, 1 << byte % 8)
            before = disk.content(name)
            store = ColdStore(disk, OWNER)
            end = store.end(1)
            assert end is not None
            wrong: dict[tuple[int, int], ColdDamaged] = {}
            for uid, base in store.files():
                wrong |= {(one.base, one.end): one for one in store.check(uid, base)}
            torn = end < 18
            assert wrong or torn or disk.content(name) != before, f"{name}, byte {byte}: not found"
            assert not torn or name == cold_name(1, last)
            for offset in range(0, end, STEP):
                if any(start <= offset < stop for start, stop in wrong):
                    with pytest.raises(ColdDamaged) as caught:
                        store.read(1, offset, 1)
                    assert caught.value.base <= offset < caught.value.end
                else:
                    assert bytes(store.read(1, offset, 1)[0]) == content(offset, 100)
            for start, stop in wrong:
                store.replace(1, start, stop, made(start, stop))
            if torn:
                store.append(1, made(end, 18))
            for one in (store, ColdStore(disk, OWNER)):
                assert everything(one) == expected(0, 18)
                assert [one.check(*file) for file in one.files()] == [[]] * len(one.files())


def test_what_is_damaged_elsewhere_in_a_file_stays_damaged() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for start in range(0, 60, STEP):
        store.append(1, made(start, start + STEP))
    name = cold_name(1, 0)
    size = (disk.sizes()[name] - HEADER_BYTES) // 20
    for number, byte in ((2, 10), (5, 100), (9, 2), (10, 2)):  # a header, a payload, two magics
        disk.corrupt(name, HEADER_BYTES + number * size + byte, 8)
    store = ColdStore(disk, OWNER)
    ranges = [(one.base, one.end) for one in store.check(1, 0)]
    assert ranges == [(6, 9), (15, 18), (27, 33)]
    while ranges:
        start, end = ranges.pop()
        store.replace(1, start, end, made(start, end))
        for one in (store, ColdStore(disk, OWNER)):
            assert [(bad.base, bad.end) for bad in one.check(1, 0)] == ranges
    assert everything(store) == expected(0, 60)
    assert store.statistics().damaged >= 3


def test_a_time_is_not_looked_for_behind_a_block_that_is_missing() -> None:
    """Its header is damaged, so its times are unknown (whole worlds, seed 606)."""
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for start in range(0, 30, STEP):
        store.append(1, made(start, start + STEP))
    name = cold_name(1, 0)
    size = (disk.sizes()[name] - HEADER_BYTES) // 10
    for number in (2, 6):
        disk.corrupt(name, HEADER_BYTES + number * size + 10, 8)
    store = ColdStore(disk, OWNER)
    assert store.find_time(1, 30) == 3, "what lies before it is known"
    for search in (
        lambda: store.find_time(1, 60),
        lambda: store.find_time(1, 120),
        lambda: store.next_latest(1, 0, 30),
    ):
        with pytest.raises(ColdDamaged) as caught:
            search()
        assert (caught.value.base, caught.value.end) == (6, 9)
    assert store.find_time(1, 150, 12) == 15, "nothing is missing from there on"
    assert store.next_latest(1, 21, 30) == (270, 27)
    (segment,) = store.segments(1)
    assert segment.max_timestamp_ms > 270, "it may have what is as late as anything"
    store.replace(1, 6, 9, made(6, 9))
    store.replace(1, 18, 21, made(18, 21))
    assert store.find_time(1, 60) == 6
    assert store.segments(1)[0].max_timestamp_ms == 270


def test_a_time_is_not_said_to_be_nowhere_where_the_last_block_is_missing() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 9))
    store.append(1, made(9, 12))
    assert store.end(1) == 12
    disk.corrupt(cold_name(1, 0), 540 + 10, 8)  # the header of the second block
    assert store.find_time(1, 60) == 6
    for search in (lambda: store.find_time(1, 90), lambda: store.next_latest(1, 0, 12)):
        with pytest.raises(ColdDamaged) as caught:
            search()
        assert (caught.value.base, caught.value.end) == (9, 12)
    assert store.next_latest(1, 0, 9) == (60, 6)


def test_a_lost_file_in_the_middle_is_damage() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for start in range(0, 60, 30):
        store.append(1, made(start, start + 30), segment_bytes=100)
    store.append(1, made(60, 90), segment_bytes=100)
    disk.remove(cold_name(1, 30))
    store = ColdStore(disk, OWNER)
    with pytest.raises(ColdDamaged) as caught:
        everything(store)
    assert (caught.value.base, caught.value.end) == (30, 60)
    assert [(bad.base, bad.end) for bad in store.check(1, 0)] == [(30, 60)]
    store.replace(1, 30, 60, made(30, 60))
    assert everything(store) == expected(0, 90)


def test_lost_blocks_of_the_disk_are_damage_and_other_failures_are_not() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 12, 5000))
    store.append(1, made(12, 18, 5000))
    disk.lose_block(cold_name(1, 0), 5000)
    for one in (store, ColdStore(disk, OWNER)):
        with pytest.raises(ColdDamaged) as caught:
            one.read(1, 0, 1)
        assert (caught.value.base, caught.value.end) == (0, 12)
        assert everything(one, 1, 12) == expected(12, 18, 5000)
    disk.fail("read", errno.EACCES)
    with pytest.raises(StorageFailed):
        ColdStore(disk, OWNER).end(1)


@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_file_whose_end_the_disk_has_lost_is_not_appended_to(
    restarts: bool, batches: int, ends: bool
) -> None:
    """Nothing can be written there: every start would fail at it (whole worlds, seed 1001)."""
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for base in range(0, batches * STEP, STEP):
        store.append(1, made(base, base + STEP, 1700))
    disk.lose_block(cold_name(1, 0), disk.sizes()[cold_name(1, 0)] - 1)
    if restarts:
        store = ColdStore(disk, OWNER)
        store.secure([1])
    if ends:
        store.end_file(1)
    end = store.end(1)
    assert end is not None
    assert store.append(1, made(end, 15, 1700)) == 15
    assert [one.base for one in store.segments(1)] == [base for _, base in store.files()]
    for one in (store, ColdStore(disk, OWNER)):
        for bad in one.check(1, 0):
            one.replace(1, bad.base, bad.end, made(bad.base, bad.end, 1700))
        assert everything(one) == expected(0, 15, 1700)


def test_files_of_another_cluster_or_version_are_refused() -> None:
    disk = grown()
    with pytest.raises(DirectoryRefused, match="two clusters"):
        ColdStore(disk, Identity("other", NodeId(7), Incarnation(1))).end(1)


def test_the_bytes_of_a_cold_segment_do_not_change() -> None:
    """The golden file was written by the first version and must stay readable for ever."""
    disk = MemoryDisk()
    store = ColdStore(disk, Identity("golden", NodeId(2), Incarnation(3)))
    store.append(4, [(10, 12, 1000, (b"first ", b"batch")), (12, 13, 999, (b"second",))])
    store.append(4, [(20, 21, 2000, (b"third",))], gaps=True)
    store.append(4, [(21, 22, 3000, (b"next file",))], segment_bytes=1)
    golden = bytes.fromhex(GOLDEN.read_text())
    assert disk.content(cold_name(4, 10)) == golden


# ---- threads ------------------------------------------------------------------------------------


def test_readers_are_right_while_another_thread_writes_replaces_and_drops(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 300), segment_bytes=20_000)
    wrong: list[BaseException] = []
    done = threading.Event()

    def reads(seed: int) -> None:
        dice = Random(seed)
        while not done.is_set():
            try:
                start, end = store.start(1), store.end(1)
                assert start is not None
                assert end is not None
                at = dice.randrange(start, end)
                for base, data in everything(store, 1, max(at, end - 600)).items():
                    assert data == content(base, 100)
                batches = store.batches(1, at, 3000)
                assert batches[0].base <= at < batches[0].end
                store.segments(1)
            except NotInLog:
                continue  # removed since
            except Exception as error:  # noqa: BLE001  told on the test's own thread
                wrong.append(error)
                return

    threads = [threading.Thread(target=reads, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    end = 300
    dice = Random(9)
    for number in range(60):
        if wrong:
            break
        end = store.append(1, made(end, end + 3 * dice.randrange(1, 60)), segment_bytes=20_000)
        if number % 10 == 9:
            store.drop_before(1, end - 3000)
        if number % 10 == 4:
            base = dice.choice(store.segments(1)).base
            store.replace(1, base, base + STEP, made(base, base + STEP))
    done.set()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert everything(store, 1, end - 600) == expected(end - 600, end)


def test_a_file_that_is_ended_while_it_is_opened_is_not_remembered_as_it_was(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise everything appended in between would look damaged: for good, if the file alone were
    used to repair it."""
    store = ColdStore(disk, OWNER)
    store.append(1, made(0, 3000))
    opened = cold_reading.open_cold

    def slowly(*args: Any) -> ColdFile:
        found = opened(*args)
        monkeypatch.setattr(cold_reading, "open_cold", opened)
        for at in (3000, 6000):  # by another thread
            store.append(1, made(at, at + 3000), segment_bytes=130_000)
        return found

    monkeypatch.setattr(cold_reading, "open_cold", slowly)
    assert store.batches(1, 0, 1000)
    for one in (store, ColdStore(disk, OWNER)):
        assert everything(one) == expected(0, 9000)
        assert one.check(1, 0) == []


def test_a_partition_that_is_dropped_while_it_is_opened_ends_nowhere(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ColdStore(disk, OWNER).append(1, made(0, 3000))
    store = ColdStore(disk, OWNER)
    opened = cold_reading.open_cold

    def slowly(*args: Any) -> ColdFile:
        found = opened(*args)
        monkeypatch.setattr(cold_reading, "open_cold", opened)
        store.drop(1)  # by another thread
        return found

    monkeypatch.setattr(cold_reading, "open_cold", slowly)
    assert store.end(1) is None
    assert store.append(1, made(6000, 6300)) == 6300
    assert everything(store) == expected(6000, 6300)
