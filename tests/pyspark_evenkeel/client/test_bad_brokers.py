"""A reader with brokers that lie, hang, hang up, or have less than they should."""

import random
import struct
from contextlib import suppress

import pytest
import trio

from pyspark_evenkeel.client import patience
from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.patience import BAD_ANSWERS_MAX
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    BadAnswerError,
    DataLossError,
    EvenkeelSparkError,
    RefusedError,
    UnavailableError,
    UnsupportedError,
)
from tests.pyspark_evenkeel.client.small_broker import (
    END,
    PLACE,
    TOPIC_ID,
    Act,
    SmallBroker,
    close_one_half,
    emptied,
    hang_up,
    offsets_of,
    reads,
    records,
    say_nothing,
    small_broker,
    special,
    trickle,
    with_answer,
    with_batches,
    with_bytes,
    with_row,
)
from wire.apis import ApiKey, RequestHeader, encode_response
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch
from wire.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from wire.messages.list_offsets import ListOffsetsRequest

GOOD_ROW = PartitionData(0, 0, END, END, 0, records=records(0) + records(2))
GOOD = with_row(GOOD_ROW)
MUTATIONS = 300


def flipped(batch: bytes) -> bytes:
    return batch[:-1] + bytes([batch[-1] ^ 1])


def old_format(batch: bytes) -> bytes:
    return batch[:16] + b"\1" + batch[17:]


NONSENSE: dict[str, tuple[Act, str]] = {
    "another request's answer": (with_bytes(struct.pack(">ii", 4, 999)), "request 999 instead of"),
    "a frame that is too long": (with_bytes(struct.pack(">i", 2**31 - 1)), "a frame of 2147483647"),
    "no length at all": (with_bytes(b"\xff" * 64), "a frame of -1 bytes"),
    "a web server": (with_bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "a frame of 1213486160"),
    "another partition": (with_row(PartitionData(1, 0, 9, 9, 0)), "about something else"),
    "a wrong checksum": (with_batches(flipped(records(0))), "wrong checksum at 0"),
    "other offsets": (with_batches(records(-8)), "about other offsets"),
    "no order": (with_batches(records(2), records(0)), "not in order"),
    "more than is committed": (with_batches(records(0), end=1), "beyond what is committed"),
    "half a batch": (with_batches(records(0)[:-1]), "a batch is cut short"),
}


@pytest.mark.parametrize("what", NONSENSE)
async def test_nonsense_is_an_error_after_a_few_tries(what: str) -> None:
    act, told = NONSENSE[what]
    broker = SmallBroker([act])
    with pytest.raises(BadAnswerError, match=told):
        await reads(broker)
    assert len(broker.fetches) == BAD_ANSWERS_MAX


@pytest.mark.parametrize("what", NONSENSE)
async def test_nonsense_that_passes_is_only_a_delay(what: str) -> None:
    broker = SmallBroker([NONSENSE[what][0], NONSENSE[what][0], GOOD])
    assert await reads(broker) == [0, 1, 2, 3]


async def test_any_byte_may_be_wrong() -> None:
    """The result is records or an error of ours; never anything else, and never an endless wait."""
    topic = FetchableTopicResponse("t", TOPIC_ID, [GOOD_ROW])
    header = RequestHeader(ApiKey.FETCH, 16, 2, None, 0)
    frame = b"".join(encode_response(header, FetchResponse(responses=[topic])))
    dice = random.Random(7)
    broker = SmallBroker()
    noticed = 0
    async with small_broker(broker) as bootstrap:
        for _ in range(MUTATIONS):
            wrong = bytearray(frame)
            wrong[dice.randrange(4, len(wrong))] ^= 1 << dice.randrange(8)
            broker.acts, broker.fetches = [with_bytes(bytes(wrong)), GOOD], []
            await trio.to_thread.run_sync(read_or_fail, bootstrap)
            noticed += len(broker.fetches) > 1
    assert noticed > MUTATIONS * 0.7, "others are of fields that change nothing"


def read_or_fail(bootstrap: str) -> None:
    settings = ClusterSettings(bootstrap=bootstrap, retry_ms=100, backoff_ms=1, backoff_max_ms=1)
    with Cluster(settings) as cluster, suppress(EvenkeelSparkError):
        assert all(batches for batches in cluster.read(PLACE, 0, 4))


@pytest.mark.parametrize("act", [hang_up, close_one_half])
async def test_a_lost_connection_is_made_anew(act: Act) -> None:
    broker = SmallBroker([act, act, act, GOOD])
    assert await reads(broker) == [0, 1, 2, 3]
    assert broker.connections >= 4


@pytest.mark.parametrize("act", [say_nothing, trickle])
async def test_who_does_not_answer_in_time_is_left(act: Act) -> None:
    """A few bytes now and then are no answer either."""
    assert await reads(SmallBroker([act, GOOD]), request_ms=150) == [0, 1, 2, 3]
    with pytest.raises(UnavailableError, match=r"tried \d+ times in .*no answer: .*not in time"):
        await reads(SmallBroker([act]), request_ms=100, retry_ms=250)


async def test_what_was_handed_out_is_not_asked_for_again() -> None:
    broker = SmallBroker([with_batches(records(0)), hang_up, with_batches(records(2))])
    assert await reads(broker) == [0, 1, 2, 3]
    asked = [one.topics[0].partitions[0].fetch_offset for one in broker.fetches]
    assert asked == [0, 2, 2]


async def test_the_time_of_a_slow_caller_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that decodes for an hour finds the connection closed, and its patience still
    unused."""
    clock = Clock()
    monkeypatch.setattr(patience, "time", clock)
    acts = [with_batches(records(0)), hang_up, hang_up, hang_up, with_batches(records(2))]
    async with small_broker(SmallBroker(acts)) as bootstrap:

        def read() -> list[int]:
            with Cluster(ClusterSettings(bootstrap=bootstrap, retry_ms=10_000)) as cluster:
                found = []
                for batches in cluster.read(PLACE, 0, 4):
                    found += offsets_of(batches, 0, 4)
                    clock.sleep(3600)
                return found

        assert await trio.to_thread.run_sync(read) == [0, 1, 2, 3]


class Clock:
    """Time passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_offsets_need_not_be_consecutive() -> None:
    """Compaction leaves gaps and empty batches: progress is what the batches' headers say."""
    gaps = with_batches(records(0), records(10), records(20), records(30))
    assert await reads(SmallBroker([gaps]), 1, 21) == [1, 10, 11, 20]
    assert await reads(SmallBroker([gaps]), 2, 9) == []
    assert await reads(SmallBroker([with_batches(records(8))]), 0, 9) == [8]
    empty = with_batches(records(0), emptied(2, 4), records(6))
    assert await reads(SmallBroker([empty]), 0, 8) == [0, 1, 6, 7]
    assert await reads(SmallBroker([empty]), 3, 6) == []


async def test_a_throttled_reader_waits() -> None:
    throttled = with_answer(FetchResponse(throttle_time_ms=30))
    assert await reads(SmallBroker([throttled, GOOD])) == [0, 1, 2, 3]


async def test_markers_are_no_records_and_what_was_aborted_only_for_those_who_want_it() -> None:
    log = with_row(
        PartitionData(
            0,
            0,
            100,
            100,
            0,
            [AbortedTransaction(7, 1)],
            records=records(0, 1)
            + special(1)
            + special(2, producer=8)
            + special(3, control=0)
            + special(4),
        )
    )
    assert await reads(SmallBroker([log]), 0, 5, committed=True) == [0, 2, 4]
    plain = with_batches(records(0, 1), special(1), special(2), special(3, control=0), special(4))
    assert await reads(SmallBroker([plain]), 0, 5) == [0, 1, 2, 4]


async def test_a_transaction_that_never_ends_is_told() -> None:
    open_since_2 = with_row(PartitionData(0, 0, 50, 2, 0, records=b""))
    broker = SmallBroker([with_batches(records(0)), open_since_2])
    with pytest.raises(UnavailableError, match="a transaction is open since offset 2"):
        await reads(broker, committed=True, retry_ms=100)


async def test_a_log_that_begins_later() -> None:
    gone = with_row(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1))
    broker = SmallBroker([with_batches(records(0)), gone], log_start=3)
    with pytest.raises(DataLossError, match=r"2 to 9 of t/0 .* begins at 3") as caught:
        await reads(broker, 0, 9)
    assert (caught.value.log_start, caught.value.end_of_log) == (3, 100)


async def test_a_log_that_ends_earlier_for_good() -> None:
    """Out of range, or nothing there: for a while the next leader may not know better."""
    beyond = with_row(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1))
    broker = SmallBroker([beyond], log_end=1)
    with pytest.raises(DataLossError, match="the log ends at 1"):
        await reads(broker, retry_ms=200)
    assert len(broker.fetches) > 1
    lagging = with_batches(end=1)
    assert await reads(SmallBroker([beyond, lagging, GOOD], log_end=1)) == [0, 1, 2, 3]


async def test_a_topic_made_anew_is_another_one() -> None:
    """Its offsets mean other records."""
    moved = with_row(PartitionData(0, ErrorCode.UNKNOWN_TOPIC_ID))
    broker = SmallBroker([with_batches(records(0)), moved, GOOD], topic_ids=[TOPIC_ID, b"j" * 16])
    with pytest.raises(DataLossError, match="the topic was deleted and recreated"):
        await reads(broker, retry_ms=400)
    assert broker.metadata > 2, "it was asked for again: a node may lag"
    known_of_old = SmallBroker([moved, GOOD], topic_ids=[b"j" * 16, TOPIC_ID])
    assert await reads(known_of_old) == [0, 1, 2, 3], "nothing was read before"


async def test_where_a_log_begins_and_ends_is_asked_under_its_leader_epoch() -> None:
    """A node that still has the former topic, or already has a later one, then refuses."""
    beyond = with_row(PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1))
    broker = SmallBroker([beyond], log_end=1)
    with pytest.raises(DataLossError, match="the log ends at 1"):
        await reads(broker, retry_ms=200)
    asked = [one for one in broker.asked if isinstance(one, ListOffsetsRequest)]
    epochs = [one.topics[0].partitions[0].current_leader_epoch for one in asked]
    assert epochs
    assert set(epochs) <= set(range(1, broker.metadata + 1))


async def test_a_topic_that_was_meant_is_read_and_no_other() -> None:
    """The planned offsets belong to one topic; a node that lags reports the one before."""
    lagging = SmallBroker([GOOD], topic_ids=[b"j" * 16, b"j" * 16, TOPIC_ID])
    assert await reads(lagging, topic_id=TOPIC_ID) == [0, 1, 2, 3]
    assert (lagging.metadata, len(lagging.fetches)) == (3, 1)
    replaced = SmallBroker([GOOD])
    with pytest.raises(DataLossError, match="the topic was deleted and recreated") as caught:
        await reads(replaced, topic_id=b"j" * 16, retry_ms=400)
    assert caught.value.replaced
    assert replaced.fetches == []


REFUSALS: dict[ErrorCode, type[EvenkeelSparkError]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: RefusedError,
    ErrorCode.UNKNOWN_SERVER_ERROR: RefusedError,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: RefusedError,
    ErrorCode.KAFKA_STORAGE_ERROR: UnavailableError,
}


@pytest.mark.parametrize("code", REFUSALS, ids=str)
async def test_refusals_are_told_by_name(code: ErrorCode) -> None:
    broker = SmallBroker([with_row(PartitionData(0, code))])
    with pytest.raises(REFUSALS[code], match=code.name):
        await reads(broker, retry_ms=100)
    assert (len(broker.fetches) > 1) is code.retriable


async def test_a_message_format_of_old_is_told() -> None:
    with pytest.raises(UnsupportedError, match="message format 1"):
        await reads(SmallBroker([with_batches(old_format(records(0)))]))


async def test_a_leader_that_is_named_is_followed_without_asking() -> None:
    """KIP-951: the refusal names the new leader."""
    other = SmallBroker([GOOD])
    async with small_broker(other) as address:
        host, _, port = address.rpartition(":")
        hint = PartitionData(0, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        hint.current_leader = LeaderIdAndEpoch(2, 9)
        first = SmallBroker([with_row(hint)], leaders={2: (host, int(port))})
        assert await reads(first) == [0, 1, 2, 3]
    assert (first.metadata, len(first.fetches)) == (1, 1)
    assert (other.metadata, len(other.fetches)) == (0, 1)


async def test_a_small_slice_does_not_ask_for_megabytes() -> None:
    """For a large one it learns from the first data how much to ask for."""
    many = with_batches(records(0, 50))
    broker = SmallBroker([many, with_batches(records(50, 50))])
    assert await reads(broker, 0, 100) == list(range(100))
    assert [one.max_bytes for one in broker.fetches] == [100 * 1280, 64 * 1024]
