"""Commands, results and checkpoints of the two replicated state machines above the log.

Both codecs have one encoding per value, so what decodes must encode to the very same bytes. Both
machines must answer every command that decodes.
"""

import struct
from collections.abc import Iterable, Iterator
from random import Random
from typing import ClassVar, Final

import attrs

from balancer.planner.problem import Evenness
from balancer.registry.codec import decode_command, decode_result, encode_command, encode_result
from balancer.registry.commands import (
    AdoptPlan,
    AllocateProducerIds,
    CancelSteal,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    Done,
    DrainNode,
    FoundCluster,
    MergePlacement,
    PartitionsCreated,
    PauseBalancer,
    PinGroup,
    PlacementSet,
    ProducerIds,
    PublishWeights,
    Refusal,
    Refused,
    ReleaseStealToken,
    Result,
    SetPolicy,
    TokenGranted,
    TokenRefused,
    TokenReleased,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.credentials import AlterCredentials, CredentialChange
from balancer.registry.listeners import SetListeners
from balancer.registry.load import ClusterLoad, LoadError, decode_report, encode_report
from balancer.registry.packing import PackingError
from balancer.registry.policy import PlanMove, PlanRecord, Policy, Weights
from balancer.registry.records import Outcome, PartitionPlace, PartitionUid, StealToken, Topic
from balancer.registry.registry import Registry
from balancer.registry.rules import CreateRules, DeleteRules, Rule
from balancer.registry.security import ListenerAddress
from balancer.registry.versions import HoldClusterVersion, NoteReads, RaiseClusterVersion, Reads
from broker.state_machine.checkpoint_chunks import PORTABLE, ImageError, decode_chunk, encode_chunk
from coordinator.model import (
    ConsumerGroupId,
    MemberId,
    PartitionOffset,
    Protocol,
    TopicOffsets,
    TopicPartitions,
)
from coordinator.replicated import commands as coordinator
from coordinator.replicated.codec import CommandError
from coordinator.replicated.store import GroupStore
from coordinator.states import GroupState
from coordinator.subscription import subscribed_topics
from paxos.ids import SLOT_ZERO, GroupId, Incarnation, NodeId, Slot
from tests.balancer.literals import acquire, at, founded, placement, register, run
from tests.balancer.test_load import report
from tests.broker.state_machine.test_image import busy, machine
from tests.fuzz.engine import Target
from tests.fuzz.mutate import Sample
from wire.error_codes import ErrorCode
from wire.scram import Credential

_GROUP: Final = ConsumerGroupId("orders")
_SUBSCRIPTION: Final = bytes.fromhex("0001 00000002 000174 00026161 ffffffff 00000000")


# -- consumer groups ------------------------------------------------------------------------------


def coordinator_commands() -> list[coordinator.Command]:
    members = tuple(
        coordinator.MemberRecord(
            MemberId(name),
            instance,
            "client",
            "10.0.0.1",
            6_000,
            6_000,
            (Protocol("range", _SUBSCRIPTION),),
            b"assignment",
        )
        for name, instance in (("m1", None), ("m2", "static"))
    )
    offsets = (PartitionOffset(0, 17, 3, ""), PartitionOffset(1, 5, -1, "note"))
    stable = GroupState.STABLE
    return [
        coordinator.GroupSnapshot(
            _GROUP, 0, 1, stable, "consumer", "range", MemberId("m1"), members
        ),
        coordinator.GroupSnapshot(_GROUP, 1, 2, GroupState.EMPTY),
        coordinator.CommitOffsets(
            _GROUP, 1, MemberId("m1"), None, 1_000, (TopicOffsets("t", offsets),)
        ),
        coordinator.CommitOffsets(
            ConsumerGroupId("simple"), -1, MemberId(""), None, 5, (TopicOffsets("t", offsets),)
        ),
        coordinator.DropOffsets(_GROUP, (TopicPartitions("t", (0, 1)),)),
        coordinator.DropGroup(_GROUP),
        coordinator.Sweep(10_000, 500, 500),
    ]


def _store(commands: Iterable[coordinator.Command]) -> GroupStore:
    store = GroupStore()
    for command in commands:
        store.apply(coordinator.encode(command))
    return store


class CoordinatorCommands(Target):
    """Decoded, encoded again, applied; the checkpoint afterwards restores to the same state."""

    name: ClassVar = "coordinator-commands"
    declared = (CommandError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        for command in coordinator_commands():
            yield Sample(coordinator.encode(command))

    def run(self, data: bytes) -> Iterable[str]:
        command = coordinator.decode(data)
        assert coordinator.encode(command) == data, "two encodings of one command"
        store = _store(coordinator_commands()[:1])
        result = coordinator.decode_result(store.apply(memoryview(data)))
        chunks = store.snapshot()
        assert GroupStore.restore(chunks).snapshot() == chunks
        return (f"{type(command).__name__} {result.error.name} {min(result.value, 3)}",)


class CoordinatorResults(Target):
    name: ClassVar = "coordinator-results"
    declared = (CommandError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        for error in (ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID):
            yield Sample(coordinator.encode_result(coordinator.Result(error, 7)))

    def run(self, data: bytes) -> Iterable[str]:
        result = coordinator.decode_result(data)
        assert coordinator.encode_result(result) == data
        return (result.error.name,)


class CoordinatorImage(Target):
    """A checkpoint: chunks, each after four bytes of length."""

    name: ClassVar = "coordinator-image"
    declared = (CommandError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        commands = coordinator_commands()
        for several in ((), commands[:1], commands[:4], commands[3:4]):
            chunks = _store(several).snapshot()
            yield Sample(b"".join(struct.pack(">I", len(chunk)) + chunk for chunk in chunks))

    def run(self, data: bytes) -> Iterable[str]:
        chunks, at = [], 0
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            chunks.append(data[at + 4 : at + 4 + size])
            at += 4 + size
        store = GroupStore.restore(chunks)
        assert b"".join(store.snapshot()) == b"".join(chunks), "two encodings of one checkpoint"
        return (f"{min(len(chunks), 4)} chunks",)


class Subscriptions(Target):
    """A member's subscription in a consumer group."""

    name: ClassVar = "subscription"

    def samples(self, dice: Random) -> Iterator[Sample]:
        yield Sample(_SUBSCRIPTION)
        yield Sample(bytes.fromhex("0000 00000000 ffffffff"))

    def run(self, data: bytes) -> Iterable[str]:
        topics = subscribed_topics(data)
        if topics is None:
            return ("none",)
        assert all(topic.encode() in data for topic in topics)
        return (f"{min(len(topics), 4)} topics",)


# -- the registry ---------------------------------------------------------------------------------


RULE: Final = Rule(2, "a", 3, "User:a", "*", 3, 3)


def registry_commands() -> list[Command]:
    return [
        FoundCluster("test", 4),
        register(1, 2, "zone"),
        CreateTopic("a", bytes([1] * 16), 5, 3, {"retention.ms": "1000"}),
        CreatePartitions("a", 7),
        ConfigureTopic("a", bytes([1] * 16), {"retention.ms": "5"}, ("retention.bytes",)),
        DeleteTopic(name="a"),
        DeleteTopic(topic_id=bytes([1] * 16)),
        placement({0: 1, 1: 1, 2: 2, 3: 3, 4: 1}),
        MergePlacement(None, GroupId(1), NodeId(2)),
        acquire(2, 1, 2),
        ReleaseStealToken(1, Outcome.DONE, 4_000),
        PauseBalancer(True, GroupId(4)),
        PauseBalancer(False),
        DrainNode(NodeId(3), True),
        AllocateProducerIds(NodeId(1), 1_000),
        SetPolicy(None, Policy(preferred_zones=("zone",), capacities={NodeId(1): 50})),
        PinGroup(GroupId(2), NodeId(3)),
        PinGroup(GroupId(2), None),
        AdoptPlan(0, {GroupId(1): NodeId(2)}, True, plan_record()),
        PublishWeights(Weights("spark", 5, {GroupId(1): 2_000})),
        CancelSteal(1),
        NoteReads(NodeId(1), Reads(1, 2, "0.3.0")),
        RaiseClusterVersion(2),
        HoldClusterVersion(True),
        SetListeners(NodeId(1), (ListenerAddress("TLS", 1, "h", 9093),)),
        AlterCredentials(
            (CredentialChange("ada", 1, Credential(b"salt", bytes(32), bytes(32), 4096)),),
            bytes(32),
        ),
        CreateRules((RULE, RULE._replace(operation=4))),
        DeleteRules((RULE,)),
    ]


def plan_record() -> PlanRecord:
    moves = (PlanMove(GroupId(1), NodeId(1), NodeId(2), "evenness"),)
    return PlanRecord(5, NodeId(1), "operator", Evenness.COUNT, "counts", moves, 1, 1, "exchange")


def registry_results() -> list[Result]:
    places = (
        PartitionPlace(PartitionUid(1), GroupId(1)),
        PartitionPlace(PartitionUid(2), GroupId(2)),
    )
    topic = Topic("a", bytes([1] * 16), 3, {"retention.ms": "1000"}, places)
    token = StealToken(
        1, GroupId(2), NodeId(1), NodeId(2), Incarnation(1), 1, Slot(10), 1, 1_000, 2_000
    )
    return [
        Refused(Refusal.PAUSED, "why"),
        Done(7),
        TopicCreated(topic),
        PartitionsCreated(topic, 1),
        TopicDeleted(topic),
        PlacementSet(3),
        TokenGranted(token),
        TokenRefused(Refusal.TOKEN_HELD, GroupId(2), 1, token),
        TokenReleased(1, True),
        ProducerIds(1_000, 1_000),
    ]


def _busy() -> Registry:
    registry = founded()
    run(registry, *registry_commands()[2:4], *registry_commands()[6:9])
    placed = registry.versions.placement
    adopt = AdoptPlan(placed, registry.placement, True, plan_record())
    run(registry, *registry_commands()[14:17], adopt, registry_commands()[18])
    run(registry, CreateRules((RULE, RULE._replace(operation=4))))
    return registry


class RegistryCommands(Target):
    """Decoded, encoded again, applied; the snapshot afterwards restores to the same state."""

    name: ClassVar = "registry-commands"
    declared = (PackingError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        for command in registry_commands():
            yield Sample(encode_command(command))

    def run(self, data: bytes) -> Iterable[str]:
        command = decode_command(data)
        assert encode_command(command) == data, "two encodings of one command"
        registry = _busy()
        result = decode_result(registry.apply(memoryview(data), registry.applied + 1))
        snapshot = registry.snapshot()
        assert Registry.restore(snapshot).snapshot() == snapshot
        reason = result.reason.name if isinstance(result, Refused | TokenRefused) else ""
        return (f"{type(command).__name__} {type(result).__name__} {reason}",)


class RegistryResults(Target):
    name: ClassVar = "registry-results"
    declared = (PackingError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        for result in registry_results():
            yield Sample(encode_result(result))

    def run(self, data: bytes) -> Iterable[str]:
        result = decode_result(data)
        assert encode_result(result) == data, "two encodings of one result"
        return (type(result).__name__,)


class RegistryImage(Target):
    name: ClassVar = "registry-image"
    declared = (PackingError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        for registry in (Registry(), founded(), _busy()):
            yield Sample(registry.snapshot())

    def run(self, data: bytes) -> Iterable[str]:
        registry = Registry.restore(data)
        assert registry.snapshot() == data, "two encodings of one registry"
        for command in registry_commands():  # and it continues
            registry.apply(encode_command(command), registry.applied + 1)
        return (f"{len(registry.nodes)} nodes",)


class LoadReports(Target):
    """What anybody may have written to the load topic with a Kafka client."""

    name: ClassVar = "load-report"
    declared = (LoadError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        for groups in ({}, {1: 5}, {0: 1, 7: 900, 12: 30_000}):
            yield Sample(encode_report(report(1, 10, groups)))

    def run(self, data: bytes) -> Iterable[str]:
        found = decode_report(data)
        assert decode_report(encode_report(found)) == found
        book = ClusterLoad()
        for one in (found, attrs.evolve(found, wall_ms=found.wall_ms + 1)):
            book.observe(one, at(0))
        weights = book.weights(at(1), [load.group for load in found.groups])
        book.slow(at(1), 1_000)
        book.unfit(at(1), lag_slots_max=100, hold_down_ms=1_000)
        return (f"{min(len(found.groups), 3)} groups {weights is not None}",)


class MachineImage(Target):
    """A checkpoint of a group's state machine: chunks, each after four bytes of length."""

    name: ClassVar = "machine-image"
    declared = (ImageError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        chunks = list(busy().chunks(local=True))
        for several in (chunks, [one for one in chunks if one.kind in PORTABLE]):
            encoded = [encode_chunk(one) for one in several]
            yield Sample(b"".join(struct.pack(">I", len(one)) + one for one in encoded))

    def run(self, data: bytes) -> Iterable[str]:
        chunks, at, view = [], 0, memoryview(data)
        while at + 4 <= len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            chunks.append(decode_chunk(view[at + 4 : at + 4 + size]))
            at += 4 + size
        base = chunks[0].slot if chunks else SLOT_ZERO
        one, other = machine(), machine()
        one.restore(base, chunks)
        again = list(one.chunks(local=True))
        other.restore(again[0].slot, again)
        assert list(other.chunks(local=True)) == again, "a restored machine is another one"
        return (f"{min(len(again), 9)} chunks",)


def state_targets() -> list[Target]:
    return [
        CoordinatorCommands(),
        CoordinatorResults(),
        CoordinatorImage(),
        Subscriptions(),
        RegistryCommands(),
        RegistryResults(),
        RegistryImage(),
        LoadReports(),
        MachineImage(),
    ]
