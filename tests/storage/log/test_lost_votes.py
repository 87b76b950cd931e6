"""When a record is damaged and its entry lost, the ballot of its vote may survive
(paxos.testimony).

A wrong answer here makes others apply what was never chosen.
"""

from collections.abc import Mapping

from paxos.ids import GroupId
from paxos.step import AcceptRecord, LearnedRecord
from storage.disk.memory import MemoryDisk
from tests.storage.log.test_recovery import damaged
from tests.storage.log_maker import accept, learned, start, sync

GROUP = GroupId(1)


def recovered_lost(*records: AcceptRecord | LearnedRecord, damage: Mapping[int, bool]) -> object:
    """The lost slots whose ballot a restart knows, by round; `damage`: which records are damaged,
    and whether in the header too."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    places = [wal.stage(record) for record in records]
    sync(wal)
    for number, header in damage.items():
        disk = damaged(disk, places[number], header=header)
    _, recovered = start(disk)
    return {slot: ballot.round for slot, ballot in recovered.groups[GROUP].lost.items()}


def test_of_a_lost_entry_the_ballot_of_its_vote_is_left() -> None:
    """The last record of a slot that is proven to be chosen has the chosen entry."""
    votes = accept(1, b"one"), accept(2, b"old"), accept(2, b"new", round_=2, applied=1)
    proof = accept(3, b"three", round_=2, applied=2)
    assert recovered_lost(*votes, proof, damage={2: False}) == {2: 2}
    assert recovered_lost(*votes, proof, damage={1: False, 2: False}) == {2: 2}
    assert recovered_lost(*votes, proof, damage={1: False}) == {}, "a later one is there"
    assert recovered_lost(*votes, damage={2: False}) == {}, "who knows whether it was chosen"


def test_nothing_is_said_of_a_ballot_where_a_later_record_may_be_lost() -> None:
    """That record may have had another entry: then the first vote's was not chosen."""
    first, later = accept(1, b"old"), accept(1, b"new", round_=2)
    proof = accept(2, b"two", round_=2, applied=1)
    assert recovered_lost(first, later, proof, damage={0: False, 1: True}) == {}
    assert recovered_lost(first, learned(1, b"new"), proof, damage={0: False, 1: True}) == {}
    assert recovered_lost(first, learned(1, b"new"), proof, damage={0: False, 1: False}) == {}
    assert recovered_lost(first, proof, accept(3, b"3", round_=2), damage={0: False, 2: True}) == {
        1: 1
    }, "it was proven before the other damage"
