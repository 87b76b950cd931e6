"""Other nodes' data as a target: frames of a link, and the entries and commands inside them."""

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import ClassVar, Final, cast

import attrs

from balancer.registry.codec import encode_command
from balancer.registry.commands import DrainNode
from broker.proposals.commands import CommandError, CommandKind, opaque, parse, records
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import DamagedEntryError
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from broker.transfer import codec as catchup_codec
from broker.transfer.messages import AskData, Data, Manifest, Part, State
from broker.transfer.messages import Message as CatchUpMessage
from coordinator.model import ConsumerGroupId
from coordinator.replicated.codec import CommandError as CoordinatorCommandError
from coordinator.replicated.commands import DropGroup, Sweep
from coordinator.replicated.commands import encode as encode_coordinator
from paxos import codec, entry
from paxos.codec import PeerError
from paxos.entry import BeMaster, Buffer, Config, Entry, EntryError, Steal
from paxos.ids import REGISTRY_GROUP, Ballot, Epoch, GroupId, Incarnation, NodeId, Slot
from paxos.messages import (
    Accept,
    Accepted,
    Behind,
    Commit,
    Learn,
    Learned,
    Message,
    Nack,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
    StealAbort,
    StealRequest,
    Trimmed,
)
from runtime.config.fields import Address
from runtime.console import messages as console_words
from runtime.membership.admission import Judgement, Life, Verdict
from runtime.membership.handshake import Hello
from runtime.membership.lease_terms import LeaseTerms
from runtime.membership.masters import MasterClaim, decode_claims, encode_claims
from runtime.membership.versions import OURS
from runtime.network.dataplane import READ
from runtime.peers.peers import PEER_FRAME_BYTES_MAX, Kind, Peers
from storage.errors import DirectoryRefused
from tests.balancer.literals import founded
from tests.broker.batches import batch
from tests.fuzz.engine import Target, feature_of
from tests.fuzz.kafka import BATCHES
from tests.fuzz.mutate import INPUT_BYTES_MAX, Mark, Sample, havoc, mutated
from tests.fuzz.wire_targets import naive_frames
from tests.runtime.console.test_words import DATA, STATE
from tests.runtime.doubles import FakePlane, Recorder
from wire.errors import ProtocolError
from wire.framing import FrameLimits
from wire.records.batch import Compression

_LIMITS: Final = FrameLimits(default=PEER_FRAME_BYTES_MAX)
ENDED: Final = "closed by the other side"
ME: Final = NodeId(1)
CATCH_UP: Final = (
    Manifest(1, GroupId(2), Slot(9), (Part(4, 5, 6),)),
    Data(2, GroupId(2), 4, 6, False, (memoryview(b"batches"),)),
    State(3, GroupId(2), 1, 64, 70, True, (memoryview(b"chunks"),)),
    AskData(4, GroupId(2), 4, 5, 65536),
)
HELLO: Final = Hello(cluster_id="fuzz", node=NodeId(2), incarnation=Incarnation(5))
GROUP: Final = GroupId(3)
BALLOT: Final = Ballot(9, NodeId(2))


# -- samples --------------------------------------------------------------------------------------


def commands() -> list[tuple[Buffer, ...]]:
    """One of every kind."""
    group = ConsumerGroupId("g")
    return [
        *(records(17, memoryview(one)) for one in BATCHES),
        opaque(CommandKind.CONSUMER_GROUP, encode_coordinator(Sweep(1, 2, 3))),
        opaque(CommandKind.CONSUMER_GROUP, encode_coordinator(DropGroup(group))),
        opaque(CommandKind.REGISTRY, encode_command(DrainNode(NodeId(2), True))),
    ]


def entries() -> list[Entry]:
    """One of every kind; batches of one and of several commands."""
    every = tuple(chunk for command in commands() for chunk in command)
    stolen = Steal(NodeId(1), NodeId(2), Incarnation(5), BALLOT, Slot(40), 10**18)
    return [
        entry.NOOP,
        *(entry.batch(command) for command in commands()),
        entry.batch(every),
        entry.be_master(BeMaster(NodeId(1), Incarnation(5), Slot(40), 10**18)),
        entry.steal(stolen),
        entry.steal(stolen, every),
        entry.config(Config((NodeId(1), NodeId(2), NodeId(3)))),
    ]


def messages() -> list[Message]:
    """One of every kind."""
    held = entries()
    one, two = Slot(41), Slot(42)
    return [
        *(Accept(GROUP, BALLOT, one, each, one, two) for each in held),
        Accepted(GROUP, BALLOT, one),
        Commit(GROUP, BALLOT, one, two),
        Prepare(GROUP, BALLOT, one),
        Promise(GROUP, BALLOT, tuple((Slot(41 + at), BALLOT, e) for at, e in enumerate(held))),
        Nack(GROUP, BALLOT, Ballot(10, NodeId(1))),
        Behind(GROUP, BALLOT, two),
        Learn(GROUP, one),
        Learned(GROUP, one, tuple(held)),
        Progress(GROUP, one, two, BALLOT, Incarnation(1)),
        RejoinAsk(GROUP, Incarnation(5)),
        RejoinAnswer(GROUP, Incarnation(5), BALLOT, one, two),
        StealRequest(GROUP, Incarnation(5), one, two, 7),
        StealAbort(GROUP, one, "behind"),
        Trimmed(GROUP, one, two),
    ]


def encoded(several: Iterable[Message]) -> bytes:
    parts: list[Buffer] = []
    for message in several:
        codec.encode(message, parts)
    return b"".join(parts)


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack(">IB", 1 + len(body), kind) + body


def link_frames() -> list[bytes]:
    """What a peer may send after the greeting."""
    done, elsewhere = Done(b"result"), NotDone(FailureReason.NOT_MASTER, NodeId(3))
    forward = struct.pack(">QIB", 1, GROUP, 0) + b"".join(commands()[0])
    return [
        *(frame(Kind.PAXOS, encoded([message])) for message in messages()),
        frame(Kind.PAXOS, encoded(messages())),
        frame(Kind.PING, struct.pack(">qqB", 1, 2, 1)),
        frame(Kind.PONG, struct.pack(">qqq", 1, 2, 3)),
        frame(
            Kind.LIFE,
            Life(Incarnation(5), Incarnation(4), 1 << 33, settled=False, asks=True).encode(),
        ),
        frame(Kind.VERDICT, Verdict(Incarnation(1), Judgement.KNOWN, Incarnation(1)).encode()),
        *(frame(Kind.CATCH_UP, b"".join(catchup_codec.encode(one))) for one in CATCH_UP),
        frame(Kind.MASTERS, encode_claims([MasterClaim(GROUP, Epoch(3), Slot(40), 10**18)] * 2)),
        frame(Kind.TERMS, LeaseTerms(3_000, 1_000, 200).encode()),
        frame(Kind.TERMS, LeaseTerms(3_000, 1_000, 200).encode() + OURS.encode()),
        frame(Kind.CONSOLE, console_words.encode_ask(console_words.Ask(console_words.What.DATA))),
        *(frame(Kind.CONSOLE, console_words.encode_tell(one)) for one in (STATE, DATA)),
        frame(Kind.FORWARD, forward),
        frame(Kind.GROUP_REQUEST, struct.pack(">QIiq", 1, GROUP, 2, 10**18) + b"\x01\x03"),
        frame(Kind.GROUP_ANSWER, struct.pack(">QB", 1, 0) + b"\x01\x03\0\0"),
        frame(Kind.FORWARDED, struct.pack(">QBi", 1, 0, -1) + done.result),
        frame(Kind.FORWARDED, struct.pack(">QBi", 2, 1, elsewhere.master or -1)),
    ]


# -- a link ---------------------------------------------------------------------------------------


class _Socket:
    """A connection that has sent everything at once, and then its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.closed = False

    def fileno(self) -> int:
        return 3

    def setsockopt(self, *_option: int) -> None:
        """As on any socket."""

    def recv_into(self, room: memoryview) -> int:
        piece, self._data = self._data[: len(room)], self._data[len(room) :]
        room[: len(piece)] = piece
        return len(piece)

    def send(self, data: bytes) -> int:
        return len(data)

    def close(self) -> None:
        self.closed = True


@attrs.define
class _Engine:
    """A runtime.engine.ports.Handler that looks at what arrives, and remembers its kind."""

    features: set[str] = attrs.Factory(set)
    messages: list[Message] = attrs.Factory(list)

    def peer_up(self, node: NodeId, incarnation: Incarnation) -> None:
        assert node in (2, 3), "a stranger was let in"
        self.features.add("up")

    def peer_down(self, node: NodeId) -> None:
        self.features.add("down")

    def on_messages(self, sender: NodeId, messages: Iterable[Message]) -> None:
        for message in messages:
            self.on_message(sender, message)

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.messages.append(message)
        self.features.add(type(message).__name__)

    def on_forward(
        self, sender: NodeId, number: int, group: GroupId, handing: bool, command: memoryview
    ) -> None:
        try:
            self.features.add(f"forward {min(2, len(parse((command,))))}")
        except CommandError as error:
            self.features.add(feature_of(error))

    def on_forwarded(self, sender: NodeId, number: int, outcome: Outcome) -> None:
        self.features.add(repr(outcome.why) if isinstance(outcome, NotDone) else "done")

    def on_clock(self, node: NodeId, offset_ns: int, error_ns: int) -> None:
        self.features.add("clock")

    def on_time(self, node: NodeId, wall_ns: int) -> None:
        self.features.add("time")

    def on_terms(self, node: NodeId, terms: LeaseTerms) -> None:
        assert LeaseTerms.decode(memoryview(terms.encode())) == terms
        self.features.add("terms")

    def on_draining(self, node: NodeId, draining: bool) -> None:
        self.features.add(f"draining {draining}")

    def on_disk(self, node: NodeId, disk_class: int) -> None:
        self.features.add(f"disk {disk_class}")

    def on_low(self, node: NodeId, low: bool) -> None:
        self.features.add(f"low {low}")

    def on_life(self, node: NodeId, life: Life) -> None:
        self.features.add(f"life {life.settled} {life.asks}")

    def on_catch_up(self, node: NodeId, message: CatchUpMessage) -> None:
        again = b"".join(catchup_codec.encode(message))
        assert catchup_codec.decode(memoryview(again)) == message
        self.features.add(type(message).__name__)

    def on_masters(self, node: NodeId, words: list[MasterClaim]) -> None:
        assert decode_claims(memoryview(encode_claims(words))) == words

    def on_refused(self, node: NodeId, why: object) -> None:
        raise AssertionError("nobody is refused on a link that others opened")

    def on_verdict(self, node: NodeId, verdict: Verdict) -> None:
        self.features.add(f"verdict {verdict.judgement.name}")

    def life(self, to: NodeId) -> Life | None:
        return None

    def wall_ns(self) -> int:
        return 10**18

    def boot_ns(self) -> int:
        return 10**12


class Link(Target):
    """A connection to the peer port: greeting, then frames, as runtime.peers.peers reads them.

    An accepted Paxos frame encodes again to the same bytes: no message has two encodings.
    """

    name: ClassVar = "peer-link"

    def samples(self, dice: Random) -> Iterator[Sample]:
        hello = frame(Kind.HELLO, HELLO.encode())
        every = link_frames()
        yield Sample(hello + b"".join(every))
        for one in every:
            marks = (Mark(len(hello) + 5, 1, "i1"), Mark(len(hello) + 6, 4, "i4"))
            yield Sample(hello + one, marks)

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        """The body of one frame, then mostly its length, so that the frames after it count."""
        cut = _cut_frames(sample.data)
        if len(cut) < 2 or dice.random() < 0.15:
            return mutated(sample, dice, pool)
        at = dice.randrange(len(cut)) if dice.random() < 0.1 else dice.randrange(1, len(cut))
        body = havoc(cut[at], dice, ())
        if body and body[0] == Kind.PAXOS and dice.random() < 0.5:  # one message of this size
            body = body[:2] + struct.pack(">I", max(0, len(body) - 6)) + body[6:]
        cut[at] = body
        if dice.random() < 0.2:
            cut.insert(dice.randrange(len(cut)), dice.choice(_cut_frames(dice.choice(pool).data)))
        stream = b"".join(struct.pack(">I", len(body)) + body for body in cut)
        return stream[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        engine, plane, sock = _Engine(), FakePlane(), _Socket(data)
        journal = Recorder()
        peers = Peers(
            plane,
            engine,
            Hello(cluster_id="fuzz", node=ME, incarnation=Incarnation(1)),
            {NodeId(node): Address("127.0.0.1", 7000 + node) for node in (1, 2, 3)},
            queue_bytes_max=1 << 20,
            journal=journal.journal,
        )
        peers.on_console = lambda _node, body: engine.features.add(
            type(console_words.decode(body)).__name__
        )
        peers.accept(cast(socket.socket, sock), "127.0.0.1")
        while not sock.closed:
            (receive,) = plane.callbacks.values()
            receive(READ)
            peers.go_on()
        reason = journal.lines[-1]["reason"]
        engine.features.add(feature_of(ProtocolError(reason, "", 0)))
        if reason == ENDED:
            taken = [
                one[1:] for one in naive_frames(data, _LIMITS)[0] if one[:1] == bytes([Kind.PAXOS])
            ]
            assert encoded(engine.messages) == b"".join(taken), "read in two ways"
        return engine.features


def _cut_frames(stream: bytes) -> list[bytes]:
    found, at = [], 0
    while at + 4 <= len(stream):
        size = int.from_bytes(stream[at : at + 4], "big")
        found.append(stream[at + 4 : at + 4 + size])
        at += 4 + size
    return found or [b""]


class PaxosFrames(Target):
    """codec.decode_all alone, at full speed."""

    name: ClassVar = "paxos-messages"
    declared = (PeerError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        head = (Mark(0, 1, "i1"), Mark(1, 4, "i4"), Mark(5, 4, "i4"), Mark(9, 8, "i8"))
        for message in messages():
            yield Sample(encoded([message]), head)

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        data = super().mutate(sample, dice, pool)
        if len(data) > 5 and dice.random() < 0.7:
            data = data[:1] + struct.pack(">I", len(data) - 5) + data[5:]
        return data

    def run(self, data: bytes) -> Iterable[str]:
        read = list(codec.decode_all(memoryview(data)))
        assert encoded(read) == data, "read in two ways"
        return {type(message).__name__ for message in read}


# -- chosen entries -------------------------------------------------------------------------------


class Entries(Target):
    """An entry, decoded and applied by a group's state machine as if it had been chosen.

    An exception here happens on every replica and at every restart. So only the declared refusals
    may be raised, and they must be the same everywhere.
    """

    name: ClassVar = "entries"
    declared = (
        *(EntryError, CommandError, DamagedEntryError, CoordinatorCommandError),
        DirectoryRefused,  # a kind that only a later version knows
    )

    def samples(self, dice: Random) -> Iterator[Sample]:
        marks = (Mark(1, 4, "i4"), Mark(5, 1, "i1"), Mark(6, 4, "i4"))
        for one in entries():
            data = b"".join(one.chunks)
            yield Sample(data, marks if len(data) > 10 else ())
        several = (batch("a", pid=1, seq=0), batch("b", pid=1, seq=1), batch("b", pid=1, seq=1))
        gzip = batch("c" * 90, compression=Compression.GZIP)
        for uids in ((1, 1, 1, 1), (1, 2, 1, 2)):
            pairs = zip(uids, (*several, gzip), strict=True)
            parts = tuple(part for uid, one in pairs for part in records(uid, memoryview(one)))
            yield Sample(b"".join(entry.batch(parts).chunks), marks)

    def run(self, data: bytes) -> Iterable[str]:
        decoded = entry.decode(memoryview(data))
        assert b"".join(decoded.chunks) == data
        assert decoded.size == len(data)
        outcome = self._applied(decoded)
        again = self._applied(entry.decode(memoryview(data)))
        if isinstance(outcome, Exception):
            assert type(again) is type(outcome), "two replicas disagree"
            assert str(again) == str(outcome), "two replicas disagree"
            raise outcome
        assert again == outcome, "two replicas disagree"
        return {decoded.kind.name, *(f"result {result[:2].hex()}" for result in outcome[:8])}

    def _applied(self, decoded: Entry) -> list[bytes] | Exception:
        try:
            return _machine().apply(Slot(100), decoded, 0)
        except self.declared as refusal:
            return refusal


def _machine() -> GroupMachine:
    return GroupMachine(
        REGISTRY_GROUP,
        tail=Tail(bytes_max=1 << 16),
        statistics=BrokerStatistics(),
        registry=founded(),
    )


def peer_targets() -> list[Target]:
    return [Link(), PaxosFrames(), Entries()]
