"""The fast path answers a request exactly as the general path would.

Two worlds get the same frames: in one the connection lasts, in the other every request comes on a
new connection. Answers, appended data and counters must be the same, byte for byte.
"""

import random
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from crc32c import crc32c

from balancer.registry.commands import ConfigureTopic
from broker.delayed.delayed_produces import SWEEP_MS
from broker.handlers.records.produce_fast_path import HEAD_BYTES_MAX, REMEMBERED_MAX
from broker.ports import Connection
from tests.broker.batches import batch, under
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld
from tests.broker.fakes import FakeReply, know_refusals
from wire.apis import encode_request
from wire.error_codes import ErrorCode
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.records.batch import TRANSACTIONAL_BIT, Compression

VERSIONS = range(3, 11)


def frame_of(
    version: int, data: dict[int, bytes], correlation: int = 1, **fields: Any
) -> bytearray:
    values = {"acks": -1, "timeout_ms": 30_000, "topic": TOPIC, "client": "one"} | fields
    partitions = [PartitionProduceData(index, memoryview(one)) for index, one in data.items()]
    topics = [TopicProduceData(values.pop("topic"), partitions)]
    client = values.pop("client")
    request = ProduceRequest(topic_data=topics, **values)
    return bytearray(b"".join(encode_request(request, version, correlation, client))[4:])


def edited(data: bytes, at: int, value: bytes) -> bytes:
    """A batch with changed header bytes and a correct checksum."""
    changed = bytearray(data)
    changed[at : at + len(value)] = value
    changed[17:21] = crc32c(changed[21:]).to_bytes(4, "big")
    return bytes(changed)


LIES = (
    (21, b"\0\x05"),  # an unknown codec
    (21, b"\0\x08"),  # the log's time
    (21, b"\0\x20"),  # a control batch
    (23, b"\0\0\0\x07"),  # the last offset is not that of the last record
    (23, b"\xff\xff\xff\xff"),
    (57, b"\0\0\0\0"),  # no records
    (57, b"\0\0\0\x03"),
    (43, b"\0\0\0\0\0\0\0\x05\xff\xff\0\0\0\0"),  # a producer with a negative epoch
    (43, b"\0\0\0\0\0\0\0\x05\0\0\xff\xff\xff\xff"),  # and sequence
    (16, b"\x01"),
)


@attrs.define
class Side:
    lasting: bool
    world: DataWorld = attrs.Factory(DataWorld)
    connection: Connection = attrs.Factory(Connection)

    def send(self, frame: bytes, *, owned: bool) -> FakeReply:
        reply = FakeReply(connection=self.connection)
        if not self.lasting:
            self.connection.fast_paths.clear()
        self.world[1].api.handle_frame(memoryview(bytes(frame)), owned, "host", reply)
        return reply

    def state(self) -> Any:
        node = self.world[1]
        states = [
            (uid, state.next_offset, state.index.bytes_end)
            for machine in node.machines.values()
            for uid, state in sorted(machine.partitions.items())
        ]
        return states, attrs.asdict(node.statistics), dict(node.api.requests), node.api.refused


class Both:
    def __init__(self) -> None:
        self.sides = (Side(True), Side(False))

    def do(self, act: Callable[[DataWorld], object]) -> None:
        for side in self.sides:
            act(side.world)

    def ask(self, frame: bytes, *, owned: bool = True) -> FakeReply:
        """Send the frame to both, settle, and compare."""
        replies = [side.send(frame, owned=owned) for side in self.sides]
        self.do(lambda world: world.settle())
        self.compare(*replies)
        for side in self.sides:
            know_refusals(side.connection)
        return replies[0]

    def compare(self, ours: FakeReply, plain: FakeReply) -> None:
        assert (ours.frame, ours.silent, ours.closed) == (plain.frame, plain.silent, plain.closed)
        assert ours.producer_id == plain.producer_id
        assert self.sides[0].state() == self.sides[1].state()

    @property
    def remembered(self) -> int:
        return len(self.sides[0].connection.fast_paths)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("owned", [True, False])
def test_requests_of_one_connection(version: int, owned: bool) -> None:
    """Lengths of one, two and three varint bytes; the partitions take turns."""
    both = Both()
    for number, pad in enumerate((0, 0, 100, 20_000, 30, 0)):
        frame = frame_of(version, {number % 4: batch("a", "b", pad=pad)}, number)
        reply = both.ask(frame, owned=owned)
        assert reply.frame is not None
        assert both.remembered == 1
    assert both.sides[0].world[1].statistics.produce_records == 12


def test_the_second_request_is_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    side = Side(True)
    side.send(frame_of(9, {0: batch("a")}), owned=True)
    side.world.settle()
    monkeypatch.setattr("broker.api.decode_request", None)
    reply = side.send(frame_of(9, {1: batch("b")}, 77), owned=True)
    side.world.settle()
    assert reply.frame is not None
    assert int.from_bytes(reply.frame[4:8], "big") == 77


@pytest.mark.parametrize("version", [3, 7, 8, 10])
def test_whatever_is_unusual_is_answered_in_full(version: int) -> None:
    both = Both()
    usual = {0: batch("a", "b")}
    damaged, transactional = bytearray(usual[0]), bytearray(usual[0])
    damaged[-1] ^= 1
    transactional[22] |= TRANSACTIONAL_BIT
    both.ask(frame_of(version, usual))
    for data, fields in (
        ({9: batch("no such partition")}, {}),
        ({-1: batch("nor this")}, {}),
        ({0: bytes(damaged)}, {}),
        ({0: bytes(transactional)}, {}),
        ({0: batch("gone", compression=Compression.GZIP)}, {}),
        ({0: edited(batch("a bit nobody knows"), 21, b"\x80\0")}, {}),
        ({0: b""}, {}),
        ({0: usual[0][:30]}, {}),
        ({0: usual[0] + usual[0]}, {}),
        ({0: batch("token", **under(1, 0))}, {}),
        ({0: batch("x"), 1: batch("y")}, {}),
        (usual, {"acks": 0}),
        (usual, {"acks": 7}),
        (usual, {"acks": 1}),
        (usual, {"timeout_ms": 5}),
        (usual, {"client": ""}),
        (usual, {"client": None}),
        (usual, {"topic": "unknown"}),
        (usual, {"transactional_id": "t"}),
        (usual, {}),
    ):
        both.ask(frame_of(version, data, **fields))
    for configs in ({"message.timestamp.type": "LogAppendTime"}, {"max.message.bytes": "70"}):
        command = ConfigureTopic(TOPIC, TOPIC_ID, configs)
        both.do(lambda world, command=command: world.run(command))
        both.ask(frame_of(version, usual))


@pytest.mark.parametrize(("at", "value"), LIES)
def test_what_a_batch_must_not_say(at: int, value: bytes) -> None:
    both = Both()
    both.ask(frame_of(9, {0: batch("a", "b")}))
    both.ask(frame_of(9, {0: edited(batch("a", "b"), at, value)}))
    for count in (1_000_000, 0):  # more records than these bytes can hold; and none
        claim = edited(batch("a"), 23, (count - 1).to_bytes(4, "big", signed=True))
        both.ask(frame_of(9, {0: edited(claim, 57, count.to_bytes(4, "big"))}))
    assert both.sides[0].world[1].statistics.produce_batches == 1


def test_idempotent_producers_are_judged_alike() -> None:
    both = Both()
    for seq, expected in ((0, 0), (1, 0), (1, 0), (9, None), (2, 0)):
        reply = both.ask(frame_of(9, {0: batch("a", pid=5, seq=seq)}))
        assert reply.producer_id == 5 or expected is None
    assert both.sides[0].world[1].statistics.duplicates == 1


def test_another_master_a_timeout_and_a_late_outcome() -> None:
    both = Both()
    frame = frame_of(10, {0: batch("a")}, timeout_ms=SWEEP_MS)
    both.ask(frame)
    replies = [side.send(frame, owned=True) for side in both.sides]
    held = []
    for side in both.sides:
        held.append(side.world.cluster.queues)
        side.world.cluster.queues = {}
    both.do(lambda world: world.advance(3 * SWEEP_MS))
    both.compare(*replies)
    assert replies[0].frame is not None
    assert both.sides[0].world[1].statistics.produce_timeouts == 1
    assert len(both.sides[0].world[1].broker.delayed_produces) == 0
    for side, queues in zip(both.sides, held, strict=True):
        side.world.cluster.queues = queues
    both.do(lambda world: world.settle())  # the result comes, and nobody waits for it
    both.compare(*replies)
    both.do(lambda world: world.cluster.install(world.group(0), 2))
    both.ask(frame)
    assert both.sides[0].world[1].statistics.errors[ErrorCode.NOT_LEADER_OR_FOLLOWER] == 1


@pytest.mark.parametrize("version", VERSIONS)
def test_mutated_frames(version: int) -> None:
    """Bytes are changed, cut off and added anywhere: the answer is always that of the general
    path."""
    dice = random.Random(version)
    both = Both()
    for number in range(150):
        both.ask(frame_of(version, {0: batch("warm")}, number))
        frame = frame_of(version, {number % 4: batch("a", pad=dice.choice((0, 60, 200)))}, number)
        for _ in range(dice.randrange(1, 3)):
            what = dice.randrange(3)
            at = dice.randrange(len(frame))
            if what == 0:
                frame[at] = dice.randrange(256)
            elif what == 1:
                del frame[at : at + dice.randrange(1, 4)]
            else:
                frame[at:at] = dice.randbytes(dice.randrange(1, 4))
        both.ask(bytes(frame), owned=dice.random() < 0.5)


def test_what_is_remembered_is_bounded() -> None:
    both = Both()
    for number in range(3 * REMEMBERED_MAX):
        both.ask(frame_of(9, {0: batch("a")}, client=f"client-{number}"))
        both.ask(frame_of(9, {0: batch("b")}, client=f"client-{number}"))
    assert both.remembered == REMEMBERED_MAX
    both = Both()
    both.ask(frame_of(9, {0: batch("a")}, client="x" * HEAD_BYTES_MAX))
    both.ask(frame_of(9, {0: batch("a")}, client="x" * HEAD_BYTES_MAX))
    assert both.remembered == 0
