"""The broker as a target: a client's byte stream, framed, decoded, handled and answered.

An input is a stream of frames. Each runs against a cluster of its own (tests/broker/world.py: the
real registry, state machines and handlers over a fake log), so a finding replays from its bytes
alone. Every frame is answered once, or costs the connection; every answer is well-formed; no
handler fails; and afterwards the next client is served.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Any, ClassVar, Final

import attrs

from tests.broker.fakes import FakeReply
from tests.broker.requests.test_hostile import REQUESTS, encoded, sensible
from tests.broker.world import CLIENT_HOST, World
from tests.fuzz.engine import Target, feature_of
from tests.fuzz.kafka import random_request, versions_of
from tests.fuzz.mutate import INPUT_BYTES_MAX, Sample, havoc, mutated
from wire.apis import APIS, decode_response
from wire.errors import ProtocolError
from wire.framing import FRAME_BYTES_MAX, MIB, FrameAssembler, FrameLimits
from wire.messages.metadata import MetadataRequest
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

PATIENCE_MS: Final = 70_000
"""Longer than any wait a client can ask for, except in consumer groups."""
FRAMES_MAX: Final = 12
FETCH_BYTES_MAX: Final = 16 << 20
"""The default of a node's configuration."""
_ELSEWHERE: Final = 2


def frames_of(stream: bytes) -> list[bytes]:
    """Split a stream into frames as far as possible; the rest is the last frame."""
    frames, at = [], 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        frames.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return frames


def stream_of(frames: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">I", len(frame)) + frame for frame in frames)


class Broker(Target):
    """ApiTable.handle_frame over the fakes, behind the real framing."""

    name: ClassVar = "broker"

    def samples(self, dice: Random) -> Iterator[Sample]:
        for api, version in REQUESTS:
            frames = [encoded(sensible(api), version), random_request(api, version, dice).data]
            yield Sample(stream_of(frames))

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """Frames are mutated, added from other streams, sent twice, dropped, or reordered."""
        if dice.random() < 0.1:
            return havoc(sample.data, dice, pool)
        frames = frames_of(sample.data) or [b""]
        for _ in range(dice.choice((1, 1, 2, 3, 6))):
            at = dice.randrange(len(frames) + 1)
            kind = dice.random()
            if kind < 0.2:
                frames[at:at] = frames_of(dice.choice(pool).data)
            elif kind < 0.6:
                api = dice.choice(list(APIS.values()))
                request = random_request(api, dice.choice(versions_of(api)), dice)
                frames.insert(at, mutated(request, dice, ()) if kind < 0.3 else request.data)
            elif at < len(frames):
                if kind < 0.9:
                    frames[at] = havoc(frames[at], dice, ())
                elif kind < 0.95:
                    frames.insert(at, frames[dice.randrange(len(frames))])
                elif len(frames) > 1:
                    del frames[at]
        dropped = max(0, len(frames) - FRAMES_MAX)
        return stream_of(frames[dropped:])[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        victim = Victim()
        try:
            victim.receive(data)
        except ProtocolError as error:
            victim.features.add(feature_of(error))
        victim.check()
        return victim.features


class Victim:
    """A one-node cluster with a topic of two partitions, and a record of its requests."""

    def __init__(self) -> None:
        self.world = World(nodes=1, groups=2, fetch_bytes_max=FETCH_BYTES_MAX)
        self.node = self.world[1]
        self.node.background.held = True
        topic = CreateTopicsRequest([CreatableTopic("t", 2, 1)])
        self.world.ask(1, topic, 7)
        self.asked: list[tuple[int, int, FakeReply]] = []
        self.features: set[str] = set()

    def receive(self, data: bytes) -> None:
        """As a connection does: until the stream ends, or a frame costs the connection."""
        assembler = FrameAssembler(FrameLimits(default=FRAME_BYTES_MAX, by_key={0: 16 * MIB}))
        at = 0
        while at < len(data):
            room = assembler.buffer_to_fill()
            piece = data[at : at + len(room)]
            room[: len(piece)] = piece
            assembler.received(len(piece))
            at += len(piece)
            while (frame := assembler.take()) is not None:
                if self.handle(frame.data, frame.owned):
                    return
                if self.asked[-1][2].stopped:  # nothing more is read before it is served
                    self.finish()

    def handle(self, frame: memoryview, owned: bool) -> bool:
        """One frame, and the end of its round; True if it cost the connection."""
        reply = FakeReply()
        key, version = struct.unpack(">hh", frame[:4]) if len(frame) >= 4 else (-1, -1)
        self.asked.append((key, version, reply))
        self.node.api.handle_frame(frame, owned, CLIENT_HOST, reply)
        self.world.cluster.settle()
        self._wake()
        return reply.closed is not None

    def _wake(self) -> None:
        """The end of a round, as the engine makes it."""
        for machine in self.node.machines.values():
            self.node.broker.delayed_fetches.appended(machine.take_grown())

    def answer(self, which: int) -> Any:
        """The response to frame number `which`."""
        key, version, reply = self.asked[which]
        assert reply.frame is not None, f"closed: {reply.closed}"
        return decode_response(key, version, memoryview(reply.frame)[4:])

    def finish(self) -> None:
        """Finish what is under way, round by round (portions), and in the background."""
        cluster, aside = self.world.cluster, self.node.background
        while True:
            cluster.timers.fire()
            cluster.settle()
            if not aside.jobs:
                return
            aside.do_one()

    def check(self) -> None:
        """Everything is answered in the end, no handler has failed, and the next client is
        served."""
        world, node = self.world, self.node
        self.finish()
        world.advance(PATIENCE_MS, step_ms=5_000)
        self.finish()
        for group in range(1, 3):
            world.cluster.install(group, _ELSEWHERE)  # who still waits in a group is sent away
        node.broker.delayed_fetches.masters_changed()
        for group in range(1, 3):
            world.cluster.install(group, 1)
        assert not node.bugs, f"{node.bugs[0][0]}: {node.bugs[0][1]!r}"
        for key, version, reply in self.asked:
            assert reply.settled, f"API {key} v{version} was never answered"
            self._look_at(key, version, reply)
        response = world.ask(1, MetadataRequest(None), 12)
        assert "t" in {topic.name for topic in response.topics} or self._deleted()

    def _deleted(self) -> bool:
        return any(key == 20 for key, _, _ in self.asked)

    def _look_at(self, key: int, version: int, reply: FakeReply) -> None:
        if reply.closed is not None:
            self.features.add(f"closed {feature_of(ProtocolError(reply.closed, '', 0))}")
            return
        frame = reply.frame
        if frame is None:
            self.features.add(f"API {key}: no answer")
            return
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        api = APIS[key]
        if not api.accepted.has(version):
            self.features.add(f"{api.name}: refused version")
            return
        response = decode_response(key, version, memoryview(frame)[4:])
        self.features.add(f"{api.name} {' '.join(map(str, sorted(set(_error_codes(response)))))}")


def _error_codes(value: Any) -> Iterator[int]:
    """All error codes of a response, at any depth. Any: it looks into every message."""
    if isinstance(value, list):
        for item in value:
            yield from _error_codes(item)
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            inner = getattr(value, field.name)
            if field.name == "error_code":
                yield inner
            elif not isinstance(inner, str | int | bytes | memoryview):
                yield from _error_codes(inner)


def broker_targets() -> list[Target]:
    return [Broker()]
