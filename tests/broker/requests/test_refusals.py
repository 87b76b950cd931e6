"""A request that is too long gets an error, whatever the API and version, and its client keeps the
connection. The answer never says that something was done, or that something does not exist."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import attrs
import pytest

from broker.requests.named_items import NAMED
from broker.requests.refusals import refuse, whole_refusal
from broker.requests.request import Request
from tests.broker.fakes import FakeReply
from tests.broker.hostile_list import AS_MANY_AS_FIT, _arrays, _filled, _frame
from tests.broker.requests.test_hostile import sensible
from tests.broker.world import CLIENT_HOST, SERVED, World
from tests.doses import some
from wire.apis import Api, ApiKey, RequestHeader, decode_response
from wire.codec.schema import fields_of
from wire.error_codes import ErrorCode
from wire.framing import OVER_ROOM_BYTES, PREFIX_BYTES, FrameAssembler, FrameLimits
from wire.messages import configs, metadata, offsets, produce, topics

LIMIT: Final = 64 * 1024
LENGTH: Final = PREFIX_BYTES + 32 * 1024
REFUSED: Final = (ErrorCode.INVALID_REQUEST, ErrorCode.MESSAGE_TOO_LARGE)
EVERY_VERSION: Final = [
    (api, version) for api in SERVED for version in range(api.accepted.first, api.accepted.last + 1)
]


class CountedRoom:
    """How much memory an assembler has asked for."""

    def __init__(self) -> None:
        self.frames = self.most = 0

    def begin(self, size: int) -> bool:
        self.frames += size
        self.most = max(self.most, self.frames)
        return True

    def end(self, size: int) -> None:
        self.frames -= size

    def open(self, _size: int) -> None:
        pass

    def grow(self, _size: int) -> bool:
        return True


def asked(world: World, frame: bytes) -> FakeReply:
    """The outcome of a request beyond the limit, received as the node receives it."""
    room = CountedRoom()
    assembler = FrameAssembler(FrameLimits(default=LIMIT, read_over_max=1 << 30), room)
    data = len(frame).to_bytes(4, "big") + frame
    reply = FakeReply()
    while data:
        view = assembler.buffer_to_fill()
        count = min(len(view), len(data))
        view[:count] = data[:count]
        data = data[count:]
        assembler.received(count)
        for one in assembler.frames():
            assert assembler.over == len(frame)
            world[1].api.handle_over(assembler.over, one.data, one.owned, CLIENT_HOST, reply)
    world.cluster.settle()
    assert not world[1].bugs, world[1].bugs
    assert room.frames == 0
    assert room.most == OVER_ROOM_BYTES
    assert not reply.stopped
    return reply


def answer_to(api: Api, version: int, reply: FakeReply) -> Any:
    assert reply.frame is not None, f"closed: {reply.closed}"
    return decode_response(int(api.key), version, memoryview(reply.frame)[4:])


def errors_in(message: Any, version: int) -> Iterator[int]:
    """All errors in the answer, including "none"."""
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if not field.spec.versions.has(version):
            continue
        if field.name in ("error_code", "partition_error_code"):
            yield value
        elif isinstance(value, list):
            for one in value:
                if attrs.has(type(one)):
                    yield from errors_in(one, version)


def long_requests(api: Api, version: int) -> Iterator[tuple[str, bytes]]:
    """Requests beyond the limit: by each of their arrays, and by a string or bytes at the end."""
    for path in _arrays(sensible(api)):
        many = _filled(api, version, path, AS_MANY_AS_FIT, True, LENGTH)
        if len(many.frame) > LIMIT:
            yield ".".join(path), many.frame
    yield "what nobody reads", _frame(sensible(api), version) + bytes(LENGTH)


@pytest.fixture(scope="module")
def world() -> World:
    made = World()
    made.ask(1, topics.CreateTopicsRequest([topics.CreatableTopic("t", 2, 1)], 5_000), 5)
    return made


@pytest.mark.parametrize(
    ("api", "version"),
    some(EVERY_VERSION),
    ids=[f"{api.name}-{version}" for api, version in some(EVERY_VERSION)],
)
def test_what_is_too_long_is_refused_in_words(world: World, api: Api, version: int) -> None:
    for what, frame in long_requests(api, version):
        answer = answer_to(api, version, asked(world, frame))
        errors = list(errors_in(answer, version))
        assert errors, what
        if _has_top_level_error(answer, version):
            assert answer.error_code in REFUSED, what
        else:
            assert set(errors) <= set(REFUSED), what
        if api.key == ApiKey.METADATA:
            assert answer.brokers, "clients take an answer without brokers for no answer"


def _has_top_level_error(answer: Any, version: int) -> bool:
    return any(
        field.name == "error_code" and field.spec.versions.has(version)
        for field in fields_of(type(answer))
    )


def test_an_item_is_named_though_it_breaks_off(world: World) -> None:
    """The length may be in a single value: its owner is refused by name."""
    (offset_commit,) = {api for api in SERVED if api.key == ApiKey.OFFSET_COMMIT}
    partition = offsets.OffsetCommitRequestPartition(1, 5, committed_metadata="m" * LENGTH)
    commit = offsets.OffsetCommitRequest(
        "g", topics=[offsets.OffsetCommitRequestTopic("t", [partition])]
    )
    (topic,) = answer_to(offset_commit, 8, asked(world, _frame(commit, 8))).topics
    assert topic.name == "t"
    assert topic.partitions == [offsets.OffsetCommitResponsePartition(1, ErrorCode.INVALID_REQUEST)]

    (alter,) = {api for api in SERVED if api.key == ApiKey.INCREMENTAL_ALTER_CONFIGS}
    value = configs.IncrementalAlterableConfig("retention.ms", 0, "9" * LENGTH)
    change = configs.IncrementalAlterConfigsRequest(
        [configs.IncrementalAlterConfigsResource(2, "t", [value])]
    )
    (resource,) = answer_to(alter, 1, asked(world, _frame(change, 1))).responses
    assert (resource.resource_type, resource.resource_name) == (2, "t")
    assert resource.error_code == ErrorCode.INVALID_REQUEST
    assert "too large" in resource.error_message


def test_a_produce_that_names_more_than_is_kept(world: World) -> None:
    """Its records are not kept, and neither are its other names."""
    (api,) = {api for api in SERVED if api.key == ApiKey.PRODUCE}
    data = [produce.PartitionProduceData(index, memoryview(b"x" * 10)) for index in range(40_000)]
    request = produce.ProduceRequest(None, 1, 1_000, [produce.TopicProduceData("t", data)])
    (topic,) = answer_to(api, 9, asked(world, _frame(request, 9))).responses
    told = [(one.index, one.error_code) for one in topic.partition_responses]
    assert len(told) > 10_000
    assert told == [(index, ErrorCode.MESSAGE_TOO_LARGE) for index in range(len(told))]


def test_acks_0_leaves_no_answer(world: World) -> None:
    data = [produce.PartitionProduceData(0, memoryview(bytes(LENGTH)))]
    request = produce.ProduceRequest(None, 0, 1_000, [produce.TopicProduceData("t", data)])
    reply = asked(world, _frame(request, 9))
    assert reply.frame is None
    assert reply.closed is not None
    assert "acks=0" in reply.closed


def test_what_names_nothing_loses_its_connection(world: World) -> None:
    """An empty answer would say that nothing exists."""
    request = offsets.OffsetFetchRequest(
        groups=[offsets.OffsetFetchRequestGroup("g" * LENGTH, topics=None)]
    )
    reply = asked(world, _frame(request, 8))
    assert reply.frame is None
    assert reply.closed is not None
    assert "too large" in reply.closed


def test_every_version_has_an_error_for_the_whole_or_for_what_is_named(world: World) -> None:
    broker = world[1].broker
    for api, version in EVERY_VERSION:
        header = RequestHeader(api.key, version, 7, None, 0)
        if whole_refusal(broker, header, ErrorCode.INVALID_REQUEST, "why", "PLAINTEXT") is None:
            assert api.key in NAMED, f"{api.name} v{version}"


def test_what_the_loop_changes_is_not_read_in_the_background(world: World) -> None:
    """Another thread writes the long answer, while nodes come and go."""
    submitted: list[Any] = []
    known = world[1].broker.registry
    registry = SimpleNamespace(nodes=dict(known.nodes), address=known.address)
    background = SimpleNamespace(submit=lambda work, done: submitted.append((work, done)))
    broker: Any = SimpleNamespace(registry=registry, background=background)
    asked_for = [metadata.MetadataRequestTopic(name=f"t{at}") for at in range(1_000)]
    reply: Any = FakeReply()
    header = RequestHeader(ApiKey.METADATA, 12, 7, None, 0)
    message = metadata.MetadataRequest(asked_for)
    request = Request(header, message, memoryview(b""), True, CLIENT_HOST, reply)
    refuse(broker, request, ErrorCode.INVALID_REQUEST, "why", len(asked_for))
    registry.nodes = registry.address = None
    ((work, done),) = submitted
    done(work())
    answer: Any = decode_response(int(ApiKey.METADATA), 12, memoryview(reply.frame)[4:])
    assert answer.brokers
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_REQUEST}
