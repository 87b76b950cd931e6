"""Stories about records: Produce, Fetch, ListOffsets, epochs, producers, DeleteRecords."""

import struct
from collections.abc import Sequence
from contextlib import suppress
from time import sleep
from typing import Any, Final

from tests.broker.batches import START_MS, batch, timed
from tests.compat.side_by_side.peer import Peer, Which
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.logs import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.producer_ids import InitProducerIdRequest
from wire.records.batch import HEADER_BYTES, BatchError, Compression, parse_header
from wire.records.spans import rebuilt

NOWHERE: Final = b"\x07" * 16
"""A topic id that nobody has."""
GAP_S: Final = 4.0
"""Longer than we wait for a batch whose predecessor is missing."""
MAGIC_AT: Final = 16
CRC_AT: Final = 17
ATTRIBUTES_AT: Final = 21


def produce(
    topic: str, *batches: bytes | None, acks: int = -1, tx: str | None = None, partition: int = 0
) -> ProduceRequest:
    data = [
        PartitionProduceData(partition, None if one is None else memoryview(one)) for one in batches
    ]
    return ProduceRequest(tx, acks, 5_000, [TopicProduceData(topic, data)])


def fetch(topic: str, topic_id: bytes, *wanted: FetchPartition, **options: Any) -> FetchRequest:
    asked = FetchTopic(topic, topic_id, list(wanted))
    return FetchRequest(**{"max_wait_ms": 0, "topics": [asked], **options})


def at(offset: int, partition: int = 0, **fields: int) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, **{"partition_max_bytes": 1 << 20, **fields}
    )


def producing(peer: Peer) -> None:
    peer.loosely("base_offset")  # what one side accepts and the other refuses moves all after it
    peer.topic("p", partitions=2)
    for acks in (-1, 1):
        peer.ask(f"acks={acks}", produce("p", batch("a", "b"), acks=acks))
    peer.ask("acks=2", produce("p", batch("a"), acks=2))
    peer.ask("acks=-2", produce("p", batch("a"), acks=-2))
    peer.ask("unknown topic", produce("nobody", batch("a")))
    peer.ask("an empty topic name", produce("", batch("a")))
    peer.ask("an illegal topic name", produce("a/b", batch("a")))
    peer.ask("unknown partition", produce("p", batch("a"), partition=9))
    peer.ask("a negative partition", produce("p", batch("a"), partition=-1))
    peer.ask("null records", produce("p", None), Which.NEWEST)  # Kafka never answers
    peer.ask("no bytes", produce("p", b""))
    peer.ask("two batches at once", produce("p", batch("a") + batch("b")))
    peer.ask("a partition twice", produce("p", batch("a"), batch("b")))
    twice = ProduceRequest(
        None,
        -1,
        5_000,
        [TopicProduceData("p", [PartitionProduceData(1, memoryview(batch("a")))])] * 2,
    )
    peer.ask("a topic twice", twice)
    peer.ask("no topics", ProduceRequest(None, -1, 5_000, []))
    peer.ask(
        "a topic without partitions", ProduceRequest(None, -1, 5_000, [TopicProduceData("p", [])])
    )
    peer.ask(
        "a negative timeout", ProduceRequest(None, -1, -5, produce("p", batch("a")).topic_data)
    )
    peer.ask(
        "an empty topic without partitions",
        ProduceRequest(None, -1, 5_000, [TopicProduceData("", [])]),
    )
    peer.ask("a timeout of 0", ProduceRequest(None, -1, 0, produce("p", batch("a")).topic_data))
    for name in Compression:
        with suppress(BatchError):  # its library is not installed here
            peer.ask(f"codec {name.name}", produce("p", batch("a", "b", compression=name)))


def changed(data: bytes, where: int, fmt: str, value: int) -> bytes:
    """Other bytes at this place, under a checksum that is right again."""
    out = bytearray(data)
    struct.pack_into(fmt, out, where, value)
    if where <= CRC_AT:
        return bytes(out)
    header = parse_header(memoryview(bytes(out)))
    return rebuilt(header, bytearray(out[HEADER_BYTES:]))


def wrong_batches(peer: Peer) -> None:
    peer.loosely("base_offset")
    peer.topic("wrong")
    good = batch("a", "b")
    peer.ask("a wrong checksum", produce("wrong", changed(good, CRC_AT, ">I", 1)))
    for magic in (0, 1, 3):
        peer.ask(f"format {magic}", produce("wrong", changed(good, MAGIC_AT, ">b", magic)))
    peer.ask("cut short", produce("wrong", good[:-3]))
    peer.ask("only a head", produce("wrong", good[:40]))
    peer.ask("a base offset of 7", produce("wrong", changed(good, 0, ">q", 7)))
    peer.ask("codec 5", produce("wrong", changed(good, ATTRIBUTES_AT, ">h", 5)))
    peer.ask("gzip, but is not", produce("wrong", changed(good, ATTRIBUTES_AT, ">h", 1)))
    peer.ask("a control batch", produce("wrong", changed(good, ATTRIBUTES_AT, ">h", 0x20)))
    peer.ask("of a transaction", produce("wrong", changed(good, ATTRIBUTES_AT, ">h", 0x10)))
    peer.ask("claims the log's time", produce("wrong", changed(good, ATTRIBUTES_AT, ">h", 0x08)))
    peer.ask("an unused attribute", produce("wrong", changed(good, ATTRIBUTES_AT, ">h", 0x80)))
    peer.ask("a wrong count of records", produce("wrong", changed(good, 57, ">i", 3)))
    peer.ask("a wrong last offset", produce("wrong", changed(good, 23, ">i", 5)))
    peer.ask("no records", produce("wrong", changed(good, 57, ">i", 0)))
    peer.ask("a transactional id", produce("wrong", good, tx="x"))
    peer.ask("an empty transactional id", produce("wrong", good, tx=""))


def limits(peer: Peer) -> None:
    peer.topic("small", max_message_bytes="1000")
    peer.ask("larger than max.message.bytes", produce("small", batch("a", pad=2_000)))
    peer.ask("just right", produce("small", batch("a", pad=500)))
    peer.topic("compacted", cleanup_policy="compact")
    peer.ask("no key in a compacted topic", produce("compacted", batch("a")))
    peer.topic("stamped", message_timestamp_type="LogAppendTime")
    peer.ask("LogAppendTime", produce("stamped", batch("a")))
    peer.topic("recent", message_timestamp_before_max_ms="1000")
    peer.ask("too old", produce("recent", batch("a")))
    peer.topic("never-ahead", message_timestamp_after_max_ms="1000")
    ahead = timed([10**12])
    peer.ask("from the future", produce("never-ahead", ahead))
    peer.ask("from the future, by default", produce("recent", ahead))


def idempotence(peer: Peer) -> None:
    peer.topic("i", partitions=3)
    pid = peer.ask("a producer id", InitProducerIdRequest(None, 60_000)).producer_id
    new = lambda *values, **fields: produce("i", batch(*values, pid=pid, **fields))  # noqa: E731
    newest = Which.NEWEST
    peer.ask("the first batch", new("a", "b"), newest)
    peer.ask("the same again", new("a", "b"), newest)
    peer.ask("the next", new("c", seq=2), newest)
    peer.ask("a gap", new("d", seq=9), newest)
    sleep(GAP_S)
    peer.ask("a gap, and what was missing has not come", new("d", seq=9), newest)
    peer.ask("an overlap", new("b", "c", "d", seq=1), newest)
    peer.ask("the first again, after others", new("a", "b"), newest)
    peer.ask("a higher epoch, not from 0", new("e", seq=4, epoch=1), newest)
    peer.ask("a higher epoch", new("e", epoch=1), newest)
    peer.ask("the old epoch", new("f", seq=3), newest)
    stranger = lambda **fields: produce("i", batch("a", pid=pid + 500, **fields), partition=1)  # noqa: E731
    peer.ask("an id that nobody gave, not from 0", stranger(seq=5), newest)
    peer.ask("an id that nobody gave", produce("i", batch("a", pid=pid + 501), partition=2), newest)
    peer.ask("negative epoch", produce("i", batch("a", pid=pid, epoch=-1), partition=2), newest)
    peer.ask("negative sequence", produce("i", batch("a", pid=pid, seq=-1), partition=2), newest)
    peer.ask("acks=1", produce("i", batch("x", pid=pid + 502), acks=1, partition=2), newest)


def producer_ids(peer: Peer) -> None:
    peer.ask("an id with an epoch", InitProducerIdRequest(None, 60_000, 5, 0), least=3)
    peer.ask("an epoch without an id", InitProducerIdRequest(None, 60_000, -1, 3), least=3)
    peer.ask("an id without an epoch", InitProducerIdRequest(None, 60_000, 5, -1), least=3)
    peer.ask("a timeout of 0", InitProducerIdRequest(None, 0))
    peer.ask("a negative timeout", InitProducerIdRequest(None, -5))
    peer.ask("a transaction", InitProducerIdRequest("tx", 60_000))
    peer.ask("an empty transactional id", InitProducerIdRequest("", 60_000))
    peer.ask("a transaction of 0 ms", InitProducerIdRequest("tx", 0))


def fetching(peer: Peer) -> None:
    topic_id = peer.topic("f", partitions=2)
    for value in ("a", "b", "c"):
        peer.write(produce("f", batch(value)))
    ask = lambda what, *wanted, **options: peer.ask(what, fetch("f", topic_id, *wanted, **options))  # noqa: E731
    ask("from 0", at(0))
    ask("from the middle", at(1))
    ask("from the end", at(3))
    ask("beyond the end", at(4))
    ask("a negative offset", at(-1))
    ask("unknown partition", at(0, partition=9))
    ask("a negative partition", at(0, partition=-1))
    ask("two partitions", at(0), at(0, partition=1))
    ask("a partition twice", at(0), at(1))
    ask("no partitions")
    ask("max_bytes 0", at(0), max_bytes=0)
    ask("partition_max_bytes 0", at(0, partition_max_bytes=0))
    ask("partition_max_bytes 0, not the first", at(3, partition=1), at(0, partition_max_bytes=0))
    ask("negative max_bytes", at(0), max_bytes=-1)
    ask("min_bytes, waits 50 ms", at(3), min_bytes=1, max_wait_ms=50)
    ask("a negative wait", at(0), max_wait_ms=-1)
    ask("read_committed", at(0), isolation_level=1)
    ask("isolation level 7", at(0), isolation_level=7)
    ask("an old leader epoch", at(0, current_leader_epoch=-5))
    ask("a leader epoch of the future", at(0, current_leader_epoch=1_000_000))
    ask("a last epoch of the future", at(1, last_fetched_epoch=1_000_000))
    ask("a rack", at(0), rack_id="r1")
    ask("a negative partition_max_bytes", at(0, partition_max_bytes=-1))
    ask("negative min_bytes", at(3), min_bytes=-1)
    ask("a negative log start", at(0, log_start_offset=-9))
    ask("a leader epoch of -2", at(0, current_leader_epoch=-2))
    ask("an old last epoch", at(1, last_fetched_epoch=-7))
    three = [at(0), at(1), at(2, partition=9)]
    ask("a partition twice, and one that is not there", *three)
    peer.ask("unknown topic", fetch("nobody", NOWHERE, at(0)))
    peer.ask("no id", fetch("f", bytes(16), at(0)), least=13)
    peer.ask("no topics", FetchRequest(max_wait_ms=0, topics=[]))
    asked = FetchTopic("f", topic_id, [at(0)])
    peer.ask("a topic twice", FetchRequest(max_wait_ms=0, topics=[asked, asked]))


def sessions(peer: Peer) -> None:
    topic_id = peer.topic("s")
    peer.write(produce("s", batch("a")))
    ask = lambda what, **options: peer.ask(what, fetch("s", topic_id, at(0), **options), least=7)  # noqa: E731
    ask("a new session", session_epoch=0)
    ask("no session", session_epoch=-1)
    ask("a session that is not there", session_id=77, session_epoch=1)
    ask("to close one that is not there", session_id=77, session_epoch=-1)
    ask("an id that begins", session_id=77, session_epoch=0)
    ask("an epoch without an id", session_epoch=5)
    ask("forgotten topics", forgotten_topics_data=[ForgottenTopic("s", topic_id, [0])])


def listing(peer: Peer) -> None:
    peer.topic("l", partitions=2)
    peer.write(produce("l", timed([0, 1_000, 500])))
    peer.write(produce("l", timed([2_000, 1_500])))

    def ask(what: str, *wanted: ListOffsetsPartition, topic: str = "l", **options: Any) -> None:
        topics = [ListOffsetsTopic(topic, list(wanted))]
        peer.ask(what, ListOffsetsRequest(-1, topics=topics, **options))

    for time in (-1, -2, -3, -4, -5, -6, -7, 0):
        ask(f"time {time}", ListOffsetsPartition(0, timestamp=time))
    for after in (0, 600, 1_000, 1_700, 2_000, 2_001):
        ask(f"{after} ms in", ListOffsetsPartition(0, timestamp=START_MS + after))
    for time in (-1, -2, -3, -4, -5, START_MS):
        ask(f"an empty partition, {time}", ListOffsetsPartition(1, timestamp=time))
    end = ListOffsetsPartition(0, timestamp=-1)
    ask("unknown topic", end, topic="nobody")
    ask("an illegal name", end, topic="a/b")
    ask("unknown partition", ListOffsetsPartition(9, timestamp=-1))
    ask("a negative partition", ListOffsetsPartition(-1, timestamp=-1))
    ask("a partition twice", end, end)
    ask("a partition twice, two questions", end, ListOffsetsPartition(0, timestamp=-2))
    ask("no partitions")
    ask("an epoch of the future", ListOffsetsPartition(0, 1_000_000, -1))
    ask("a negative epoch", ListOffsetsPartition(0, -5, -1))
    ask("read_committed", end, isolation_level=1)
    ask("isolation level 7", end, isolation_level=7)
    ask("time -8", ListOffsetsPartition(0, timestamp=-8))
    ask("the earliest of times", ListOffsetsPartition(0, timestamp=-(2**63)))
    ask("the latest of times", ListOffsetsPartition(0, timestamp=2**63 - 1))
    ask("a partition three times", end, end, end)
    ask("a partition twice, and another", end, end, ListOffsetsPartition(1, timestamp=-1))
    ask("an unknown partition twice", *[ListOffsetsPartition(9, timestamp=-1)] * 2)
    named = [ListOffsetsTopic("l", [end]), ListOffsetsTopic("l", [end])]
    peer.ask("a topic twice", ListOffsetsRequest(-1, topics=named))
    peer.ask("no topics", ListOffsetsRequest(-1, topics=[]))
    peer.ask("as a replica", ListOffsetsRequest(1, topics=[ListOffsetsTopic("l", [end])]))


def epochs(peer: Peer) -> None:
    peer.topic("e")
    peer.write(produce("e", batch("a", "b")))

    def ask(what: str, topic: str, *wanted: OffsetForLeaderPartition) -> None:
        topics = [OffsetForLeaderTopic(topic, list(wanted))]
        peer.ask(what, OffsetForLeaderEpochRequest(-1, topics))

    ask("an epoch of the future", "e", OffsetForLeaderPartition(0, -1, 1_000_000))
    ask("a negative epoch", "e", OffsetForLeaderPartition(0, -1, -1))
    ask("the client is ahead", "e", OffsetForLeaderPartition(0, 1_000_000, 0))
    ask("unknown topic", "nobody", OffsetForLeaderPartition(0, -1, 0))
    ask("unknown partition", "e", OffsetForLeaderPartition(9, -1, 0))
    ask("twice", "e", OffsetForLeaderPartition(0, -1, -1), OffsetForLeaderPartition(0, -1, -1))
    ask("an epoch of -2", "e", OffsetForLeaderPartition(0, -1, -2))
    ask("the client's is -2", "e", OffsetForLeaderPartition(0, -2, 0))
    ask("a negative partition", "e", OffsetForLeaderPartition(-1, -1, 0))
    ask("an illegal topic", "a/b", OffsetForLeaderPartition(0, -1, 0))
    ask("no partitions", "e")
    peer.ask("no topics", OffsetForLeaderEpochRequest(-1, []))


def deleting(peer: Peer) -> None:
    peer.topic("d", partitions=2)
    for value in "abcdef":
        peer.write(produce("d", batch(value)))

    def ask(what: str, *pairs: tuple[int, int], topic: str = "d") -> None:
        rows = [DeleteRecordsPartition(partition, offset) for partition, offset in pairs]
        topics = [DeleteRecordsTopic(topic, rows)]
        peer.ask(what, DeleteRecordsRequest(topics, 5_000))

    ask("up to 2", (0, 2))
    ask("up to 1, which is gone", (0, 1))
    ask("beyond the end", (0, 100))
    ask("a negative offset", (0, -2))
    ask("an empty partition", (1, 0))
    ask("unknown topic", (0, 0), topic="nobody")
    ask("an illegal name", (0, 0), topic="a/b")
    ask("unknown partition", (9, 0))
    ask("a partition twice", (0, 2), (0, 3))
    ask("all there is", (0, -1))
    ask("no partitions")
    peer.ask("no topics", DeleteRecordsRequest([], 5_000))
    peer.topic("kept", cleanup_policy="compact")
    ask("a compacted topic", (0, 0), topic="kept")
    ask("a compacted topic, beyond the end", (0, 100), topic="kept")
    ask("an unknown partition of a compacted topic", (9, 0), topic="kept")
    peer.topic("both", cleanup_policy="compact,delete")
    ask("a compacted topic that is deleted from", (0, 0), topic="both")
    ask("a negative partition", (-1, 0))
    ask("a far negative offset", (0, -77))
    ask("one known, one unknown", (0, 0), (9, 0))
    ask("an unknown partition twice", (9, 0), (9, 1))
    topic_id = peer.known("d")
    peer.ask("below the first offset", fetch("d", topic_id, at(0)))
    earliest = ListOffsetsTopic("d", [ListOffsetsPartition(0, timestamp=-2)])
    peer.ask("the first offset after that", ListOffsetsRequest(-1, topics=[earliest]))


STORIES: Final[Sequence[Any]] = (
    producing,
    wrong_batches,
    limits,
    idempotence,
    producer_ids,
    fetching,
    sessions,
    listing,
    epochs,
    deleting,
)
