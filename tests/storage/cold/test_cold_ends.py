"""A file of cold data is ended before it is full, and then treated as a full one."""

from storage.cold.format import Written
from storage.cold.store import ColdStore
from storage.disk.memory import MemoryDisk
from tests.storage.cold.test_cold import OWNER, everything, expected, made
from tests.storage.crash_points import every_crash


def shape(store: ColdStore) -> list[tuple[int, int, bool]]:
    return [(one.base, one.end, one.sealed) for one in store.facts(1)]


def test_what_comes_next_begins_a_new_file() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    assert not store.end_file(1), "there is none"
    store.append(1, made(0, 9))
    assert shape(store) == [(0, 9, False)]
    assert store.written_since_ms(1) == 0
    assert store.end_file(1)
    assert not store.end_file(1), "it is at its end"
    assert shape(store) == [(0, 9, True)]
    assert store.written_since_ms(1) is None
    assert everything(store) == expected(0, 9)
    disk.kill()
    store = ColdStore(disk, OWNER)
    assert shape(store) == [(0, 9, True)], "that stands in the file"
    store.append(1, made(9, 12))
    assert store.written_since_ms(1) == 90
    assert shape(store) == [(0, 9, True), (9, 12, False)]
    assert everything(store) == expected(0, 12)


def test_the_last_file_is_merged_and_appended_to_behind_it() -> None:
    """Compaction may remove its records, even all but its last batch; its end stays where it is."""
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for start in (0, 9):
        store.append(1, made(start, start + 9))
        store.end_file(1)

    def last() -> list[Written]:
        return [one for one in made(0, 18) if one[0] in (3, 15)]

    assert store.merge(1, store.facts(1), last(), 18)
    assert shape(store) == [(0, 18, True)]
    assert store.end(1) == 18
    left = {base: data for base, data in expected(0, 18).items() if base in (3, 15)}
    assert everything(store) == left
    assert not store.end_file(1)
    store.append(1, made(18, 21))
    assert everything(store) == left | expected(18, 21)
    disk.kill()
    store = ColdStore(disk, OWNER)
    assert shape(store) == [(0, 18, True), (18, 21, False)]
    assert everything(store) == left | expected(18, 21)


def test_a_crash_while_it_is_ended_loses_nothing() -> None:
    def prepare() -> MemoryDisk:
        disk = MemoryDisk()
        ColdStore(disk, OWNER).append(1, made(0, 30))
        return disk

    def run(disk: MemoryDisk) -> None:
        store = ColdStore(disk, OWNER)
        store.secure([1])
        store.end_file(1)

    for where, disk in every_crash(prepare, run):
        store = ColdStore(disk, OWNER)
        assert everything(store) == expected(0, 30), where
        store.append(1, made(30, 33))
        assert everything(store) == expected(0, 33)
