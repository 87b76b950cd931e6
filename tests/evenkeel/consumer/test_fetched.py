"""How a consumer handles fetched bytes: aborted transactions, seeks, damage."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.config import OffsetReset
from evenkeel.consumer.fetched import FetchedPartition
from evenkeel.errors import BrokerError, EvenkeelError
from wire.cluster_view import TopicPartition
from wire.messages.fetch import AbortedTransaction, PartitionData
from wire.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, Compression, Record
from wire.records.batch_writer import BatchWriter, build_batch
from wire.records.compression import compress

PLACE = TopicPartition("t", 0)
LIMIT = 1 << 20
ABORT, COMMIT = b"\0\0\0\0", b"\0\0\0\1"


def batch(
    first: int, *values: bytes, producer: int = -1, attributes: int = 0, key: bytes | None = None
) -> bytes:
    writer = BatchWriter()
    for value in values:
        writer.append(Record(value, key))
    return writer.seal(
        writer.payload,
        base_offset=first,
        producer_id=producer,
        producer_epoch=0,
        compression=attributes,  # type: ignore[arg-type]  # the lowest bits of the attributes
    )


def transactional(first: int, *values: bytes, producer: int) -> bytes:
    return batch(first, *values, producer=producer, attributes=TRANSACTIONAL_BIT)


def marker(at: int, kind: bytes, producer: int) -> bytes:
    return batch(at, b"", producer=producer, key=kind, attributes=TRANSACTIONAL_BIT | CONTROL_BIT)


def partition_at(offset: int) -> FetchedPartition:
    one = FetchedPartition(PLACE)
    one.seek(offset)
    return one


def answer(*batches: bytes, aborted: list[tuple[int, int]] | None = None) -> PartitionData:
    data = PartitionData(0, 0, 100, records=b"".join(batches))
    if aborted is not None:
        data.aborted_transactions = [AbortedTransaction(*one) for one in aborted]
    return data


def values_of(one: FetchedPartition) -> list[bytes | None]:
    values = []
    while one.has_records:
        records = one.hand_out(LIMIT)
        values += [record.value for record in records.records] if records is not None else []
    return values


def test_a_batch_that_begins_before_us_is_cut() -> None:
    """Brokers return whole batches, from the one that contains our offset."""
    one = partition_at(7)
    one.take(7, answer(batch(5, b"5", b"6", b"7", b"8"), batch(9, b"9")), True)
    assert values_of(one) == [b"7", b"8", b"9"]
    assert one.position == one.fetch_from == 10


def test_a_last_batch_that_is_cut_short_is_fetched_again() -> None:
    one = partition_at(0)
    one.take(0, answer(batch(0, b"whole"), batch(1, b"half" * 9)[:-5]), True)
    assert values_of(one) == [b"whole"]
    assert one.fetch_from == 1


def test_what_was_aborted_is_not_read() -> None:
    """Two producers' transactions interleave; one aborts, begins again and commits."""
    one = partition_at(0)
    one.take(
        0,
        answer(
            transactional(0, b"a1", producer=1),
            transactional(1, b"b1", producer=2),
            batch(2, b"plain"),
            marker(3, ABORT, 1),
            transactional(4, b"a2", producer=1),
            marker(5, COMMIT, 2),
            marker(6, COMMIT, 1),
            aborted=[(1, 0)],
        ),
        True,
    )
    assert values_of(one) == [b"b1", b"plain", b"a2"]
    assert one.position == 7, "markers have offsets too"


def test_an_abort_is_remembered_between_two_fetches() -> None:
    one = partition_at(0)
    one.take(0, answer(transactional(0, b"x", producer=1), aborted=[(1, 0)]), True)
    one.take(1, answer(transactional(1, b"y", producer=1), marker(2, ABORT, 1)), True)
    one.take(3, answer(transactional(3, b"z", producer=1)), True)
    assert values_of(one) == [b"z"]


def test_an_answer_to_where_we_no_longer_are_is_dropped() -> None:
    one = partition_at(0)
    asked_from = one.fetch_from
    one.seek(50)
    one.take(asked_from, answer(batch(0, b"old")), True)
    assert not one.has_records
    one.seek_to(OffsetReset.LATEST)
    one.take(50, answer(batch(50, b"old")), True)
    assert (one.has_records, one.position) == (False, None)


@pytest.mark.parametrize("at", [17, 30, 60, 65])
def test_damage_is_told_with_its_place(at: int) -> None:
    """The batch before it is still handed out, but nothing of the damaged one."""
    bad = bytearray(batch(1, b"bad"))
    bad[at] ^= 0x10
    one = partition_at(0)
    with pytest.raises(BrokerError, match=r"t/0 at offset 1 cannot be read: CORRUPT_MESSAGE"):
        one.take(0, answer(batch(0, b"good"), bytes(bad)), True)
    assert values_of(one) == [b"good"]
    assert one.position == 1


def test_damage_below_the_checksum_is_found_when_it_is_handed_out() -> None:
    """Without checksums, or from a producer that has written nonsense."""
    bad = bytearray(build_batch([Record(b"bad")]))
    bad[61] = 0x7F
    one = partition_at(0)
    one.take(0, answer(bytes(bad)), False)
    for _ in range(2):
        with pytest.raises(BrokerError, match="CORRUPT_MESSAGE"):
            one.hand_out(LIMIT)
    assert one.position == 0
    one.seek(1)
    assert not one.has_records


@settings(max_examples=300, deadline=None, database=None)
@given(st.integers(0, 1 << 32))
def test_a_hostile_broker(seed: int) -> None:
    """Whatever it sends, with or without checksums: records, or an EvenkeelError; offsets never go
    back."""
    dice = Random(seed)
    batches = []
    for number in range(dice.randint(1, 3)):
        writer = BatchWriter()
        for _ in range(dice.randint(1, 4)):
            writer.append(Record(b"v" * dice.randint(0, 9), b"k", 5, (("h", b"x"),)))
        codec = dice.choice(list(Compression))
        payload = compress(writer.payload, codec)
        batches.append(writer.seal(payload, base_offset=4 * number, compression=codec))
    data = bytearray(b"".join(batches))
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    one = partition_at(0)
    refusals = []
    try:
        one.take(0, answer(bytes(data)), dice.random() < 0.2)
        while one.has_records:
            before = one.position
            one.hand_out(LIMIT)
            assert one.position is not None
            assert before is not None
            assert one.position > before
    except EvenkeelError as error:
        refusals.append(error)
    assert all("t/0 at offset" in str(error) for error in refusals)
