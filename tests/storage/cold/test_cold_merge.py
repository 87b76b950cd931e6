"""Several cold files become one with all remaining batches, whatever happens, while readers
continue."""

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from storage.cold import rewrite as cold_rewrite
from storage.cold.format import ColdFacts, Written
from storage.cold.merge import MARK_SUFFIX, MERGE_NAME
from storage.cold.reading import ColdReading
from storage.cold.store import ColdStore
from storage.disk.files import RealDisk
from storage.disk.memory import MemoryDisk
from storage.errors import DiskFull, NotInLog, StorageFailed
from tests.storage.cold.test_cold import OWNER, STEP, content, everything, expected, made
from tests.storage.crash_points import every_crash

FILE_BYTES = 200
"""One block and a little."""

ENDS_AT = 240


def left(start: int, end: int) -> list[Written]:
    """Every other batch, and the last one."""
    all_of_them = made(start, end)
    return [one for at, one in enumerate(all_of_them) if at % 2 or one is all_of_them[-1]]


def compacted(start: int, end: int) -> dict[int, bytes]:
    return {one[0]: content(one[0], 100) for one in left(start, end)}


def grown(files: int = 5) -> MemoryDisk:
    """Files of 6 offsets each; the last one may still be appended to."""
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for number in range(files):
        store.append(1, made(6 * number, 6 * number + 6), segment_bytes=FILE_BYTES)
    store.append(2, made(0, 6))
    disk.kill()
    return disk


def merged(store: ColdStore, first: int, last: int, clean_to: int) -> tuple[int, int]:
    """Merge files `first` to `last` - 1."""
    files = store.facts(1)[first:last]
    start, end = files[0].base, files[-1].end
    assert store.merge(1, files, left(start, end), clean_to)
    return start, end


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cold_rewrite, "BLOCK_BYTES", 1)


def test_one_file_stands_for_all_their_offsets() -> None:
    disk = grown()
    store = ColdStore(disk, OWNER)
    before = store.facts(1)
    assert [(one.clean_to, one.sealed) for one in before] == [(0, True)] * 4 + [(0, False)]
    held = store.batches(1, 7, 1)
    start, end = merged(store, 1, 4, 20)
    assert bytes(held[0].data) == content(6, 100)
    for one in (store, ColdStore(disk, OWNER)):
        facts = one.facts(1)
        assert [(fact.base, fact.end, fact.clean_to) for fact in facts] == [
            (0, 6, 0),
            (start, end, 20),
            (end, 30, 0),
        ]
        assert facts[1].first_timestamp_ms == before[1].first_timestamp_ms
        assert facts[1].bytes < sum(fact.bytes for fact in before[1:4])
        assert (one.start(1), one.end(1)) == (0, 30)
        assert everything(one) == expected(0, 6) | compacted(start, end) | expected(end, 30)
        (next_one,) = one.batches(1, 7, 1)
        assert next_one.base == 9, "a fetch of what is gone gets what follows"
        assert one.find_time(1, 60) == 9
        assert [one.check(*file) for file in one.files()] == [[]] * 4
    assert store.bytes_held == sum(disk.sizes().values())
    assert store.append(1, made(30, 36)) == 36


def test_a_file_that_was_mended_is_not_clean_any_more() -> None:
    """A peer may have more of it left than we had."""
    store = ColdStore(grown(), OWNER)
    merged(store, 0, 2, 12)
    store.replace(1, 3, 6, made(3, 6))
    assert store.facts(1)[0].clean_to == 0


def test_nothing_is_merged_that_has_changed_meanwhile() -> None:
    disk = grown()
    store = ColdStore(disk, OWNER)
    files = store.facts(1)[:2]

    def dropping() -> Iterator[Written]:
        yield from left(0, 12)
        store.drop_before(1, 6)

    assert not store.merge(1, files, dropping(), 12)
    files = store.facts(1)[:2]
    assert not store.merge(1, files, left(6, 18), 12, lambda: False)
    with pytest.raises(ZeroDivisionError):
        store.merge(1, files, (made(6, 9)[1 // 0] for _ in "x"), 12)
    assert everything(ColdStore(disk, OWNER)) == expected(6, 30)
    assert MERGE_NAME not in disk.names()


def test_a_crash_at_any_step_leaves_all_of_the_old_or_the_new_one() -> None:
    """Also a crash at any step of the start that follows."""

    def merge(disk: MemoryDisk) -> None:
        merged(ColdStore(disk, OWNER), 1, 4, 24)

    def check(where: str, disk: MemoryDisk) -> str:
        store = ColdStore(disk, OWNER)
        old, new = expected(0, 30), expected(0, 6) | compacted(6, 24) | expected(24, 30)
        found = everything(store)
        assert found in (old, new), where
        assert len(store.facts(1)) == (5 if found == old else 3), where
        assert everything(store, 2) == expected(0, 6), where
        assert [store.check(*one) for one in store.files()] == [[]] * len(store.files()), where
        assert not [name for name in disk.names() if not name.endswith(".seg")], where
        return "old" if found == old else "new"

    seen = set()
    for where, disk in every_crash(grown, merge):
        marked = [name for name in disk.names() if name.endswith(MARK_SUFFIX)]
        if marked:
            for again, later in every_crash(disk.clone, lambda one: ColdStore(one, OWNER)):
                check(f"{where}, then {again}", later)
        seen.add((check(where, disk), bool(marked)))
    assert seen == {("old", False), ("old", True), ("new", True), ("new", False)}


@pytest.mark.parametrize("operation", ["open", "write", "fdatasync", "rename", "remove", "fsync"])
def test_a_full_disk_costs_the_merge_only(operation: str) -> None:
    """Wherever it happens; after the marker file there is no way back, and the node ends."""
    outcomes = set()
    for after in range(40):
        disk = grown()
        store = ColdStore(disk, OWNER)
        files = store.facts(1)[1:4]
        disk.fail(operation, errno.ENOSPC, after=after)
        try:
            assert store.merge(1, files, left(6, 24), 24)
            outcomes.add("merged")
            break
        except DiskFull:
            outcomes.add("gave way")
            assert [name for name in disk.names() if not name.endswith(".seg")] == []
            assert everything(store) == expected(0, 30)
            merged(store, 1, 4, 24)
        except StorageFailed:
            outcomes.add("ended")
            disk.kill()
            found = everything(ColdStore(disk, OWNER))
            assert found in (expected(0, 30), expected(0, 6) | compacted(6, 24) | expected(24, 30))
    assert "merged" in outcomes
    assert outcomes > {"merged"}


def test_readers_go_on_while_files_are_merged(tmp_path: Path) -> None:
    store = ColdStore(RealDisk(tmp_path), OWNER)
    for start in range(0, ENDS_AT, 6):
        store.append(1, made(start, start + 6), segment_bytes=FILE_BYTES)
    wrong: list[BaseException] = []
    rounds = [0, 0]
    done = threading.Event()

    def reads(number: int) -> None:
        dice = Random(number)
        while not done.is_set():
            try:
                at = dice.randrange(ENDS_AT - 10)
                found = everything(store, 1, at)
                assert all(data == content(base, 100) for base, data in found.items())
                assert set(found) >= {
                    base for base in expected(at - at % 6 + 6, ENDS_AT) if base % 6 == STEP
                }
                assert store.find_time(1, 10 * at) is not None
                rounds[number] += 1
            except Exception as error:  # noqa: BLE001  told on the test's own thread
                wrong.append(error)
                return

    threads = [threading.Thread(target=reads, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    dice = Random(5)

    def odd(files: list[ColdFacts]) -> list[Written]:
        return [one for one in made(files[0].base, files[-1].end) if one[0] % 6 == STEP]

    while not wrong and (len(store.facts(1)) > 2 or min(rounds) < 3):
        facts = store.facts(1)
        first = dice.randrange(len(facts) - 1)
        files = facts[first : min(len(facts) - 1, first + dice.randrange(1, 6))]
        assert store.merge(1, files, odd(files), 0)
    done.set()
    for thread in threads:
        thread.join(30)
    assert wrong == []
    assert min(rounds) >= 3
    with pytest.raises(NotInLog):
        store.batches(3, 0, 1)


class HungRename(RealDisk):
    """The directory has the new name, but the call returns only when the test allows it."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.hangs = False
        self.renamed, self.go_on = threading.Event(), threading.Event()

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        if self.hangs:
            self.renamed.set()
            assert self.go_on.wait(30)


def merges(store: ColdStore) -> dict[int, bytes]:
    start, end = merged(store, 1, 4, 20)
    return expected(0, 6) | compacted(start, end) | expected(end, 30)


def mends(store: ColdStore) -> dict[int, bytes]:
    store.replace(1, 24, 30, made(24, 30, 300))
    return expected(0, 24) | expected(24, 30, 300)


@pytest.mark.parametrize("changes", [merges, mends])
def test_a_rename_that_hangs_stops_nobody_who_needs_no_disk(
    tmp_path: Path, changes: Callable[[ColdStore], dict[int, bytes]]
) -> None:
    """The event loop goes on. A reader finds the old batches or the new ones, and no damage."""
    disk = HungRename(tmp_path)
    for number in range(5):
        store = ColdStore(disk, OWNER)
        store.append(1, made(6 * number, 6 * number + 6), segment_bytes=FILE_BYTES)
    store = ColdStore(disk, OWNER)
    store.learn([1])
    held = store.bytes_held
    disk.hangs = True
    with ThreadPoolExecutor(2) as threads:
        changed = threads.submit(changes, store)
        assert disk.renamed.wait(30)
        reader = threads.submit(everything, store)
        assert store.knows(1)
        assert (store.start(1), store.end(1), store.known_end(1)) == (0, 30, 30)
        assert (store.bytes_held, len(store.segments(1))) == (held, 5)
        store.read_now(1, 7, 1000)
        store.read_soon(1, 7, 1000)
        assert store.statistics().files == 5
        disk.go_on.set()
        wanted = changed.result(30)
        found = reader.result(30)
    assert everything(store) == wanted
    before = expected(0, 30)
    assert found.keys() >= wanted.keys()
    assert all(data in (before[base], wanted.get(base)) for base, data in found.items())
    assert store.statistics().damaged == 0


def test_looking_at_a_directory_finishes_no_merge() -> None:
    """`evenkeel data show` reports what a start would find, and changes nothing."""
    told = set()
    for where, disk in every_crash(grown, lambda one: merged(ColdStore(one, OWNER), 1, 4, 24)):
        before = {name: disk.content(name) for name in disk.names()}
        looked = ColdReading(disk, OWNER)
        files, held = looked.files(), looked.bytes_held
        problems = [looked.survey(*one) for one in files]
        assert problems == [([], True)] * len(files), where
        assert {name: disk.content(name) for name in disk.names()} == before, where
        store = ColdStore(disk, OWNER)
        assert (store.files(), store.bytes_held) == (files, held), where
        told.add(len(files))
    assert told == {4, 6}
