"""compression.type: a topic's batches are stored with its codec, whatever a producer sends; and
min.insync.replicas: acks=all needs so many replicas."""

import pytest

from balancer.registry.commands import ConfigureTopic
from tests.broker.batches import batch
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld, want
from tests.broker.fakes import know_refusals
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.records.batch import COMPRESSION_MASK, Compression, iterate_records, split
from wire.records.compression import compress, decompress, recompressed
from wire.records.spans import rebuilt

CODECS = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def world_with(**settings: str) -> DataWorld:
    world = DataWorld(batch_bytes_max=1 << 20)
    configs = {name.replace("_", "."): value for name, value in settings.items()}
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, configs))
    return world


def sent(codec: Compression, *values: str, pad: int = 200, **fields: int) -> bytes:
    """A batch with this codec."""
    [plain] = split(memoryview(batch(*values, pad=pad, **fields)))
    payload = bytearray(decompress(plain, 1 << 24))
    header = plain.header._replace(attributes=codec)
    return rebuilt(header, compress(payload, codec))


def stored(world: DataWorld, partition: int = 0) -> tuple[list[int], list[bytes | None]]:
    """Codecs of the batches of a partition, and the values in them."""
    found = split(memoryview(bytes(world.fetch(1, want(partition, 0)).records)))
    codecs = [one.header.attributes & COMPRESSION_MASK for one in found]
    values = [
        record.value for one in found for record in iterate_records(one, decompress(one, 1 << 24))
    ]
    return codecs, values


@pytest.mark.parametrize("kind", CODECS)
@pytest.mark.parametrize("codec", CODECS.values())
def test_every_codec_becomes_the_topics(kind: str, codec: Compression) -> None:
    world = world_with(compression_type=kind)
    for at in range(3):
        answer = world.produce(1, 0, sent(codec, f"a{at}", f"b{at}"))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 2 * at)
    codecs, values = stored(world)
    assert codecs == [CODECS[kind]] * 3
    assert values == [f"{one}{at}".encode() + b"." * 200 for at in range(3) for one in "ab"]


def test_what_has_the_codec_stays_as_it_was_sent() -> None:
    world = world_with(compression_type="gzip")
    data = sent(Compression.GZIP, "a", "b")
    world.produce(1, 0, data)
    [one] = split(memoryview(bytes(world.fetch(1, want(0, 0)).records)))
    assert bytes(one.data)[21:] == data[21:]
    assert world[1].statistics.produce_read_aside == 0


def test_a_retry_is_appended_once_and_the_order_stays() -> None:
    """The sequence is in the header, which stays. A batch that needs no work waits for one that
    does."""
    world = world_with(compression_type="lz4")
    world[1].background.held = True
    first = world.begin_produce(1, {0: sent(Compression.NONE, "a", pid=7, seq=0)})
    assert not first.settled
    assert first.reply.stopped == 1, "nothing that follows may overtake it"
    while world[1].background.jobs:
        world[1].background.do_one()
    world.settle()
    assert first.reply.stopped == 0
    world[1].background.held = False
    again = world.produce(1, 0, sent(Compression.NONE, "a", pid=7, seq=0))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    world.produce(1, 0, sent(Compression.LZ4, "b", pid=7, seq=1))
    codecs, values = stored(world)
    assert codecs == [Compression.LZ4] * 2
    assert values == [b"a" + b"." * 200, b"b" + b"." * 200]


def test_a_batch_that_becomes_too_large_is_refused() -> None:
    world = world_with(compression_type="uncompressed", max_message_bytes="5000")
    answer = world.produce(1, 0, sent(Compression.ZSTD, "a", pad=10_000))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert "compression.type" in answer.error_message
    assert world.produce(1, 0, sent(Compression.ZSTD, "a", pad=1_000)).error_code == 0


def test_what_would_take_too_much_memory_is_refused() -> None:
    """A third of what may be unpacked: the batch made of it needs room, too."""
    world = DataWorld(unpacked_bytes_max=3_000_000)
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {"compression.type": "zstd"}))
    answer = world.produce(1, 0, sent(Compression.GZIP, "a", pad=1_100_000))
    assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert world.produce(1, 0, sent(Compression.GZIP, "a", pad=900_000)).error_code == 0


def test_records_are_checked_before_they_are_compressed() -> None:
    world = world_with(compression_type="gzip", cleanup_policy="compact")
    answer = world.produce(1, 0, sent(Compression.NONE, "no key"))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert stored_nothing(world)


def stored_nothing(world: DataWorld) -> bool:
    return world.list_offsets(1, 0, -1).offset == 0


def test_the_time_of_arrival_is_still_put_in() -> None:
    world = world_with(compression_type="snappy", message_timestamp_type="LogAppendTime")
    answer = world.produce(1, 0, sent(Compression.NONE, "a"))
    assert answer.log_append_time_ms > 0
    assert stored(world)[0] == [Compression.SNAPPY]


def test_levels_are_used_up_to_the_default() -> None:
    data = sent(Compression.NONE, *(f"{at * 7919 % 1000}" for at in range(500)))
    [one] = split(memoryview(data))

    def bytes_with(**levels: str) -> int:
        world = world_with(compression_type="gzip", **levels)
        world.produce(1, 0, data)
        return len(bytes(world.fetch(1, want(0, 0)).records))

    usual, fast, slow = (
        bytes_with(),
        bytes_with(compression_gzip_level="1"),
        bytes_with(compression_gzip_level="9"),
    )
    assert fast > usual == slow
    most = recompressed(one, Compression.GZIP, 9, 1 << 24)
    assert len(most.data) <= usual


# -- min.insync.replicas ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("needed", "dead", "error"),
    [
        ("1", (), ErrorCode.NONE),
        ("2", (3,), ErrorCode.NONE),
        ("3", (), ErrorCode.NONE),
        ("3", (3,), ErrorCode.NOT_ENOUGH_REPLICAS),
        ("2", (2, 3), ErrorCode.NOT_ENOUGH_REPLICAS),
        ("4", (), ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_acks_all_needs_so_many_in_sync(
    needed: str, dead: tuple[int, ...], error: ErrorCode
) -> None:
    world = world_with(min_insync_replicas=needed)
    world.cluster.dead.update(dead)  # type: ignore[arg-type]
    answer = world.produce(1, 0, batch("a"))
    assert answer.error_code == error
    assert stored_nothing(world) == (error is not ErrorCode.NONE)
    know_refusals(world._connections[1, "test"])
    assert world.produce(1, 0, batch("b"), acks=1).error_code == ErrorCode.NONE


def test_nothing_overtakes_a_batch_that_was_refused_for_now() -> None:
    world = world_with(min_insync_replicas="3")
    world.cluster.dead.add(3)  # type: ignore[arg-type]
    assert world.produce(1, 0, batch("a")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    world.cluster.dead.clear()
    behind = world.produce(1, 0, batch("b"))
    assert behind.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert "earlier batch" in behind.error_message
    know_refusals(world._connections[1, "test"])
    assert world.produce(1, 0, batch("a")).error_code == ErrorCode.NONE


def test_only_the_master_decides() -> None:
    """Elsewhere the producer is sent to the master first."""
    world = world_with(min_insync_replicas="3")
    world.cluster.dead.add(3)  # type: ignore[arg-type]
    assert world.produce(2, 0, batch("a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("library", "error"),
    [
        ("kafkajs", ErrorCode.NOT_ENOUGH_REPLICAS),
        ("librdkafka", ErrorCode.NOT_LEADER_OR_FOLLOWER),  # the master is to decide
    ],
)
def test_a_former_master_decides_for_those_that_it_forwards_for(
    library: str, error: ErrorCode
) -> None:
    """Their batches would get past the check: a forwarded one is not checked again (ADR 50)."""
    world = world_with(min_insync_replicas="3")
    world.ask(1, ApiVersionsRequest(library, "1"), 3)
    world[1].groups.moved[world.group(0)] = world.cluster.clock.boot_ns
    world.cluster.install(world.group(0), 2)
    world.cluster.dead.add(3)  # type: ignore[arg-type]
    assert world.produce(1, 0, batch("a"), version=10).error_code == error
    know_refusals(world._connections[1, "test"])
    world[1].groups.passing.add(world.group(0))
    again = world.produce(1, 0, batch("a"), version=10)
    assert again.error_code == ErrorCode.NOT_ENOUGH_REPLICAS, "a handover: it forwards for all"
