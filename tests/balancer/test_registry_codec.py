"""Commands, results and snapshots as bytes: round trips, golden bytes, and any kind of damage."""

from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.planner.problem import Evenness
from balancer.registry import image as registry_image
from balancer.registry.codec import (
    KINDS,
    decode_command,
    decode_result,
    encode_command,
    encode_result,
    kind_of,
)
from balancer.registry.commands import (
    AcquireStealToken,
    AddNode,
    AdoptPlan,
    AllocateProducerIds,
    CancelSteal,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    Decided,
    DeleteTopic,
    Done,
    DrainNode,
    FinishRemoval,
    FoundCluster,
    MergePlacement,
    NoteMembers,
    PartitionsCreated,
    PauseBalancer,
    PinGroup,
    PlacementSet,
    ProducerIds,
    PublishWeights,
    Refusal,
    Refused,
    RegisterNode,
    ReleaseStealToken,
    RemoveNode,
    Result,
    SetPlacement,
    SetPolicy,
    SetReplicaSets,
    TokenGranted,
    TokenRefused,
    TokenReleased,
    TopicCreated,
    TopicDeleted,
)
from balancer.registry.credentials import AlterCredentials, CredentialChange
from balancer.registry.listeners import SetListeners
from balancer.registry.packing import PackingError
from balancer.registry.policy import PlanMove, PlanRecord, Policy, Weights
from balancer.registry.quotas import AlterQuotas, Entity, QuotaChange, QuotaKey
from balancer.registry.records import Address, Outcome, PartitionPlace, StealToken, Topic
from balancer.registry.registry import Registry
from balancer.registry.rules import CreateRules, DeleteRules, Rule
from balancer.registry.security import ListenerAddress
from balancer.registry.versions import (
    HoldClusterVersion,
    LaterVersionError,
    NoteReads,
    RaiseClusterVersion,
    Reads,
)
from paxos.ids import GroupId, Incarnation, NodeId, Slot
from tests.balancer.literals import acquire, founded, placement, register, run
from wire.scram import Credential
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
u32 = st.integers(0, 2**32 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
topic_ids = st.binary(min_size=16, max_size=16)
addresses = st.builds(Address, text, st.integers(0, 65_535))
configs = st.dictionaries(text, text, max_size=4)
versions = st.none() | i64
tokens = st.builds(StealToken, i64, u32, i32, i32, i64, i64, i64, i64, i64, i64)
chosen = st.lists(u32, max_size=5).map(tuple)
places = st.lists(st.builds(PartitionPlace, u32, u32), max_size=5).map(tuple)
topics = st.builds(Topic, text, topic_ids, i32, configs, places)
refusals = st.sampled_from(Refusal)
u16 = st.integers(0, 2**16 - 1)
policies = st.builds(
    Policy,
    st.booleans(),
    st.sampled_from(Evenness),
    st.booleans(),
    st.lists(text, max_size=3).map(tuple),
    i32,
    i32,
    st.none() | i32,
    i32,
    i32,
    st.dictionaries(i32, i32, max_size=4),
)
moves = st.lists(st.builds(PlanMove, u32, st.none() | i32, i32, text), max_size=4).map(tuple)
plans = st.builds(
    PlanRecord, i64, i32, text, st.sampled_from(Evenness), text, moves, u16, u16, text
)
nodes = st.lists(i32, max_size=5).map(tuple)
rules = st.lists(
    st.builds(Rule, *[st.integers(0, 255), text] * 2, text, *[st.integers(0, 255)] * 2), max_size=4
).map(tuple)
published = st.builds(Weights, text, i64, st.dictionaries(u32, i32, max_size=6))

keys = st.binary(max_size=64)
names = st.sampled_from([(), ("",)]) | text.map(lambda name: (name,))
entities = st.builds(Entity, names, names, names)
rates = st.floats(allow_nan=False, allow_infinity=False)
quota_changes = st.builds(
    QuotaChange,
    entities,
    st.dictionaries(st.sampled_from(QuotaKey), st.none() | rates, max_size=5),
)

COMMANDS: dict[type[Any], st.SearchStrategy[Any]] = {
    FoundCluster: st.builds(FoundCluster, text, u32, nodes, st.integers(0, 255)),
    AddNode: st.builds(AddNode, i32, addresses, text),
    RemoveNode: st.builds(RemoveNode, i32),
    FinishRemoval: st.builds(FinishRemoval, i32),
    SetReplicaSets: st.builds(
        SetReplicaSets,
        versions,
        st.dictionaries(u32, st.lists(i32, max_size=9).map(tuple), max_size=4),
        st.booleans(),
        i64,
        i32,
        text,
        st.dictionaries(u32, text, max_size=4),
    ),
    NoteMembers: st.builds(NoteMembers, u32, i64, nodes),
    RegisterNode: st.builds(RegisterNode, i32, i64, addresses, addresses, addresses, text),
    CreateTopic: st.builds(CreateTopic, text, topic_ids, i32, i32, configs, chosen),
    CreatePartitions: st.builds(CreatePartitions, text, i32, chosen),
    DeleteTopic: st.builds(
        DeleteTopic,
        st.none() | text,
        st.none() | topic_ids,
        st.dictionaries(st.integers(0, 9).map(GroupId), st.integers(0, 2**31 - 1), max_size=3),
    ),
    SetPlacement: st.builds(SetPlacement, versions, st.dictionaries(u32, i32, max_size=6)),
    MergePlacement: st.builds(MergePlacement, versions, u32, i32),
    AcquireStealToken: st.builds(AcquireStealToken, u32, i32, i32, i64, i64, i64, i64, i64, i64),
    ReleaseStealToken: st.builds(ReleaseStealToken, i64, st.sampled_from(Outcome), i64),
    PauseBalancer: st.builds(PauseBalancer, st.booleans(), st.none() | u32),
    DrainNode: st.builds(DrainNode, i32, st.booleans()),
    AllocateProducerIds: st.builds(AllocateProducerIds, i32, i32),
    SetPolicy: st.builds(SetPolicy, versions, policies),
    PinGroup: st.builds(PinGroup, u32, st.none() | i32, st.lists(i32, max_size=3).map(tuple)),
    AdoptPlan: st.builds(
        AdoptPlan, i64, st.dictionaries(u32, i32, max_size=6), st.booleans(), plans
    ),
    PublishWeights: st.builds(PublishWeights, published),
    CancelSteal: st.builds(CancelSteal, i64),
    ConfigureTopic: st.builds(
        ConfigureTopic,
        text,
        topic_ids,
        configs,
        st.lists(text, max_size=5).map(tuple),
        st.booleans(),
    ),
    RaiseClusterVersion: st.builds(RaiseClusterVersion, st.integers(0, NEWEST)),
    HoldClusterVersion: st.builds(HoldClusterVersion, st.booleans()),
    NoteReads: st.builds(
        NoteReads, i32, st.builds(Reads, st.integers(0, 65_535), st.integers(0, 65_535), text)
    ),
    AlterCredentials: st.builds(
        AlterCredentials,
        st.lists(
            st.builds(
                CredentialChange,
                text,
                st.integers(0, 255),
                st.none() | st.builds(Credential, keys, keys, keys, st.integers(0, 2**32 - 1)),
            ),
            max_size=3,
        ).map(tuple),
        st.binary(min_size=32, max_size=32),
    ),
    CreateRules: st.builds(CreateRules, rules),
    DeleteRules: st.builds(DeleteRules, rules),
    SetListeners: st.builds(
        SetListeners,
        i32,
        st.lists(
            st.builds(ListenerAddress, text, st.integers(0, 255), text, st.integers(0, 65_535)),
            max_size=3,
        ).map(tuple),
    ),
    AlterQuotas: st.builds(AlterQuotas, st.lists(quota_changes, max_size=3).map(tuple)),
}
RESULTS: dict[type[Any], st.SearchStrategy[Any]] = {
    Refused: st.builds(Refused, refusals, text),
    Done: st.builds(Done, i64),
    TopicCreated: st.builds(TopicCreated, topics),
    PartitionsCreated: st.builds(PartitionsCreated, topics, i32),
    TopicDeleted: st.builds(TopicDeleted, topics),
    PlacementSet: st.builds(PlacementSet, i64),
    TokenGranted: st.builds(TokenGranted, tokens),
    TokenRefused: st.builds(TokenRefused, refusals, u32, i64, st.none() | tokens),
    TokenReleased: st.builds(TokenReleased, i64, st.booleans()),
    ProducerIds: st.builds(ProducerIds, i64, i32),
}
COMMANDS[Decided] = st.builds(Decided, i64, st.one_of(*COMMANDS.values()))
commands: st.SearchStrategy[Command] = st.one_of(*COMMANDS.values())
results: st.SearchStrategy[Result] = st.one_of(*RESULTS.values())

GOLDEN: list[tuple[Command, str]] = [
    (FoundCluster("c", 12), "0101 000163 0000000c"),
    (
        FoundCluster("c", 12, (NodeId(1), NodeId(2)), 3),
        "0115 000163 0000000c 00000002 00000001 00000002 03",
    ),
    (AddNode(NodeId(4), Address("h", 7), "z"), "0116 00000004 000168 0007 00017a"),
    (RemoveNode(NodeId(4)), "0117 00000004"),
    (FinishRemoval(NodeId(4)), "0118 00000004"),
    (
        SetReplicaSets(2, {GroupId(1): (NodeId(3), NodeId(4))}, True, 5, NodeId(1), "t", {}),
        "0119 010000000000000002 00000001 00000001 00000002 00000003 00000004 01"
        "0000000000000005 00000001 000174 00000000",
    ),
    (
        NoteMembers(GroupId(1), Slot(9), (NodeId(3),)),
        "011a 00000001 0000000000000009 00000001 00000003",
    ),
    (CreatePartitions("t", 6), "0104 000174 00000006"),
    (CreatePartitions("t", 6, (GroupId(7),)), "0120 000174 00000006 00000001 00000007"),
    (
        CreateTopic("t", b"0" * 16, 1, 3, {}, (GroupId(7),)),
        f"011f 000174 {'30' * 16} 00000001 00000003 00000000 00000001 00000007",
    ),
    (DeleteTopic(name="t"), "0105 01000174 00"),
    (DeleteTopic(name="t", epochs={GroupId(2): 7}), "011e 01000174 00 00000001 00000002 00000007"),
    (
        SetPlacement(7, {GroupId(2): NodeId(1), GroupId(1): NodeId(3)}),
        "0106 010000000000000007 00000002 00000001 00000003 00000002 00000001",
    ),
    (
        AcquireStealToken(
            GroupId(3), NodeId(1), NodeId(2), Incarnation(5), 9, Slot(40), 6, 1_000, 2_000
        ),
        "0108 00000003 00000001 00000002 0000000000000005 0000000000000009 0000000000000028"
        "0000000000000006 00000000000003e8 00000000000007d0",
    ),
    (ReleaseStealToken(4, Outcome.TIMED_OUT, 5), "0109 0000000000000004 02 0000000000000005"),
    (PauseBalancer(True), "010a 01 00"),
    (DrainNode(NodeId(2), True), "010b 00000002 01"),
    (PinGroup(GroupId(3), NodeId(2)), "010e 00000003 01 00000002"),
    (
        PinGroup(GroupId(3), NodeId(2), (NodeId(2), NodeId(1))),
        "0121 00000003 01 00000002 00000002 00000002 00000001",
    ),
    (
        PublishWeights(Weights("s", 7, {GroupId(1): 900})),
        "0110 000173 000000000000000700000001 00000001 00000384",
    ),
    (CancelSteal(9), "0111 0000000000000009"),
    (
        ConfigureTopic("t", bytes([9] * 16), {"a": "b"}, ("c",)),
        "0114 000174" + "09" * 16 + "00000001 000161 000162 00000001 000163 00",
    ),
    (RaiseClusterVersion(2), "0122 0002"),
    (HoldClusterVersion(True), "0123 01"),
    (NoteReads(NodeId(3), Reads(1, 2, "0.3.0")), "0124 00000003 0001 0002 0005302e332e30"),
    (
        SetListeners(NodeId(3), (ListenerAddress("TLS", 1, "h", 9093),)),
        "0125 00000003 00000001 0003544c53 01 000168 2385",
    ),
    (
        AlterCredentials(
            (
                CredentialChange("a", 1, Credential(b"s", b"k", b"v", 4096)),
                CredentialChange("b", 2, None),
            ),
            bytes(32),
        ),
        "0126 00000002 000161 01 01 0173 016b 0176 00001000 000162 02 00" + "00" * 32,
    ),
    (
        CreateRules((Rule(2, "t", 3, "User:a", "*", 3, 3),)),
        "0127 00000001 02 000174 03 0006557365723a61 00012a 03 03",
    ),
    (DeleteRules(()), "0128 00000000"),
    (
        AlterQuotas(
            (
                QuotaChange(
                    Entity(("u",), ("",)),
                    {QuotaKey.PRODUCER_BYTE_RATE: 1024.0, QuotaKey.REQUEST_PERCENTAGE: None},
                ),
            )
        ),
        "0129 00000001 00000001 000175 00000001 0000 0000000000000002 01 01 4090000000000000 03 00",
    ),
    (Decided(Slot(5), DeleteTopic(name="t")), "011b 0000000000000005 0105 01000174 00"),
]


@given(commands)
def test_every_command_comes_back_as_it_went(command: Command) -> None:
    """Encoding and decoding are inverse, also through a memoryview into a larger buffer."""
    data = encode_command(command)
    assert decode_command(memoryview(b"x" + data + b"y")[1:-1]) == command


@given(results)
def test_every_result_comes_back_as_it_went(result: Result) -> None:
    assert decode_result(encode_result(result)) == result


def test_no_kind_was_forgotten_in_the_round_trip() -> None:
    """The strategies above build every member of the two unions."""
    assert set(COMMANDS) == set(get_args(Command))
    assert set(RESULTS) == set(get_args(Result))


@pytest.mark.parametrize(("command", "golden"), GOLDEN, ids=lambda value: str(value)[:20])
def test_the_bytes_of_the_log_do_not_change(command: Command, golden: str) -> None:
    """New nodes must read old logs: these bytes are for ever."""
    assert encode_command(command).hex() == golden.replace(" ", "")


@given(commands, st.data())
def test_damaged_commands_are_refused_or_mean_something_else(
    command: Command, data: st.DataObject
) -> None:
    """Cut, lengthened or with any byte changed: a PackingError or a value, nothing else."""
    good = bytearray(encode_command(command))
    at = data.draw(st.integers(0, len(good) - 1))
    good[at] ^= data.draw(st.integers(1, 255))
    for bad in (bytes(good), bytes(good[:at]), bytes(good) + b"\0"):
        try:
            other = decode_command(bad)
        except PackingError:
            continue
        assert encode_command(other) == bad, "two encodings of one command"


@given(st.binary(max_size=64))
def test_arbitrary_bytes_never_break_the_registry(noise: bytes) -> None:
    """Whatever is in the log, every node computes a result, and all compute the same."""
    one, other = founded(), founded()
    if kind_of(noise) > KINDS[-1]:  # only a later version can read it: stop, and change nothing
        with pytest.raises(LaterVersionError):
            one.apply(noise, 10)
    else:
        assert one.apply(noise, 10) == other.apply(memoryview(noise), 10)
    assert one.snapshot() == other.snapshot()


def test_malformed_bytes_are_a_result_with_a_reason() -> None:
    registry = founded()
    before = registry.snapshot()
    result = decode_result(registry.apply(b"\xff\xff", 10))
    assert isinstance(result, Refused)
    assert result.reason is Refusal.MALFORMED
    assert registry.snapshot() == before


def test_huge_counts_are_refused_before_anything_is_made() -> None:
    """A count of four billion costs nothing: it is first compared with its limit."""
    with pytest.raises(PackingError, match="at most"):
        decode_command(bytes.fromhex("0106 00 ffffffff"))


def test_a_mapping_has_one_encoding() -> None:
    """Descending or repeated keys are no second way to write the same placement."""
    pairs = "00000002 00000001 00000001 00000003"
    with pytest.raises(PackingError, match="ascend"):
        decode_command(bytes.fromhex("0106 00 00000002" + pairs))


@pytest.mark.parametrize(
    "command",
    [CreatePartitions("t" * 40_000, 1), CreatePartitions("t", 2**31), CreateTopic("t", b"", 1)],
)
def test_what_does_not_fit_its_field_is_not_encoded(command: Command) -> None:
    with pytest.raises(PackingError):
        encode_command(command)


@given(st.lists(commands, max_size=12))
def test_any_well_formed_commands_give_results_and_a_snapshot_that_restores(
    script: list[Command],
) -> None:
    """No well-formed command makes `apply` raise; a restored node is the same node."""
    registry = founded()
    for command in script:
        decode_result(registry.apply(encode_command(command), registry.applied + 1))
    restored = Registry.restore(registry.snapshot())
    assert restored.snapshot() == registry.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_image, "PIECE_TOPICS", 1)
        pieces = list(registry_image.encode_pieces(registry.image()))
    assert len(pieces) == 1 + len(registry.topics)
    restored.install(registry_image.decode_pieces(pieces))
    assert restored.snapshot() == registry.snapshot()


def test_a_founding_that_says_nothing_new_has_one_encoding() -> None:
    """Kind 1 is for ever; a kind 21 without more content would be a second way to write the
    same."""
    with pytest.raises(PackingError, match="older"):
        decode_command(bytes.fromhex("0115 000163 0000000c 00000000 00"))


def test_partitions_that_nobody_placed_by_hand_have_one_encoding() -> None:
    with pytest.raises(PackingError, match="older"):
        decode_command(bytes.fromhex("0120 000174 00000006 00000000"))


def grown() -> Registry:
    """A registry with some of everything that concerns nodes coming and going."""
    registry = Registry()
    founders = (NodeId(1), NodeId(2), NodeId(3), NodeId(4))
    run(registry, FoundCluster("grown", 4, founders, 3), *map(register, founders))
    home = Address("10.0.0.5", 7000)
    run(
        registry,
        AddNode(NodeId(5), home, "z"),
        AddNode(NodeId(6), home, "z"),
        register(5),
        placement({0: 1, 1: 2, 2: 3, 3: 4, 4: 1}),
        SetReplicaSets(0, {GroupId(3): (NodeId(1), NodeId(5))}, True, 9, NodeId(1), "why", {}),
        NoteMembers(GroupId(3), Slot(7), (NodeId(1), NodeId(2), NodeId(5))),
        RemoveNode(NodeId(6)),
        RemoveNode(NodeId(3)),
    )
    return registry


GOLDEN_IMAGES = Path(__file__).parent / "golden"


def image(version: int) -> bytes:
    return bytes.fromhex((GOLDEN_IMAGES / f"registry-{version}.hex").read_text())


def test_the_bytes_of_an_image_do_not_change() -> None:
    assert ordered().snapshot() == image(7), "what older nodes can read"
    assert Registry.restore(image(7)).snapshot() == image(7)
    assert versioned().snapshot() == image(8)
    assert Registry.restore(image(8)).snapshot() == image(8)


def test_an_image_of_before_replicas_had_an_order_is_read() -> None:
    """It was written by version 6 of `reborn`."""
    restored = Registry.restore(image(6))
    assert restored.snapshot() == reborn().snapshot()
    assert restored.orders == {}


def test_an_image_of_before_leader_epochs_began_higher_is_read() -> None:
    """It was written by version 5 of `decided`."""
    restored = Registry.restore(image(5))
    assert restored.snapshot() == decided().snapshot()
    assert restored.image().epoch_floor == 0


def test_an_image_of_before_there_were_decisions_is_read() -> None:
    """It was written by version 4 of `grown`; nothing is remembered before the first decision."""
    restored = Registry.restore(image(4))
    assert restored.snapshot() == grown().snapshot()
    late = run(restored, Decided(restored.applied, RemoveNode(NodeId(2))))
    assert isinstance(late[0], Refused)
    assert late[0].reason is Refusal.OVERTAKEN
    assert isinstance(run(restored, Decided(restored.applied, RemoveNode(NodeId(2))))[0], Done)


def decided() -> Registry:
    """`grown`, and the decisions made since."""
    registry = grown()
    run(
        registry,
        Decided(registry.applied, PauseBalancer(True)),
        PauseBalancer(True),
        CreateTopic("a", bytes([1] * 16), 1),
        CreateTopic("b", bytes([2] * 16), 1),
        DeleteTopic("b"),
    )
    return registry


def test_a_decision_on_a_decision_is_no_command() -> None:
    data = encode_command(Decided(Slot(5), DeleteTopic(name="t")))
    with pytest.raises(PackingError, match="kind 27 is not known"):
        decode_command(data[:10] + data)


def test_an_image_of_before_there_were_replica_sets_is_read() -> None:
    """It was written by version 3 of `busy`; new fields have their defaults."""
    restored = Registry.restore(image(3))
    assert restored.snapshot() == busy().snapshot()
    assert restored.members(GroupId(1)) == ()
    assert restored.versions.replicas == 0


def reborn() -> Registry:
    """Also with leader epochs that begin higher, because a topic was deleted."""
    registry = decided()
    run(
        registry,
        CreateTopic("c", bytes([4] * 16), 5),
        CreateTopic("b", bytes([2] * 16), 2),
        DeleteTopic("b", None, {GroupId(group): 10 * group for group in range(1, 5)}),
        CreateTopic("b", bytes([3] * 16), 3),
    )
    return registry


def ordered() -> Registry:
    """Also with a pin that says in which order clients are told the replicas."""
    registry = reborn()
    run(registry, PinGroup(GroupId(1), NodeId(2), (NodeId(2), NodeId(4), NodeId(1))))
    assert registry.orders == {GroupId(1): (2, 4, 1)}
    return registry


def versioned() -> Registry:
    """Also with a cluster version, which an operator holds, and what a node reads."""
    registry = ordered()
    run(
        registry,
        NoteReads(NodeId(2), Reads(1, 2, "0.3.0")),
        RaiseClusterVersion(2),
        HoldClusterVersion(True),
    )
    return registry


def busy() -> Registry:
    registry = founded()
    run(
        registry,
        CreateTopic("a", bytes([1] * 16), 5, 3, {"retention.ms": "1000"}),
        CreateTopic("b", bytes([2] * 16), 2),
        CreatePartitions("a", 7),
        placement({0: 1, 1: 1, 2: 2, 3: 3, 4: 1}),
        acquire(2, 1, 2),
        ReleaseStealToken(1, Outcome.DONE, 4_000),
        acquire(3, 1, 3, attempt=2),
        AllocateProducerIds(NodeId(1), 1_000),
        DrainNode(NodeId(3), True),
        PauseBalancer(True, GroupId(4)),
    )
    return registry


def test_a_restored_registry_goes_on_like_the_one_that_never_stopped() -> None:
    """After the snapshot both apply the same commands and end with the same bytes."""
    registry = busy()
    restored = Registry.restore(registry.snapshot())
    script: tuple[Any, ...] = (
        CreateTopic("c", bytes([3] * 16), 9),
        DeleteTopic(name="b"),
        acquire(2, 1, 2, attempt=3),
        ReleaseStealToken(2, Outcome.LOST, 9),
        AllocateProducerIds(NodeId(2), 10),
    )
    assert run(registry, *script) == run(restored, *script)
    assert registry.snapshot() == restored.snapshot()
    assert list(registry.partitions_of_group(GroupId(1))) == list(
        restored.partitions_of_group(GroupId(1))
    )


@pytest.mark.parametrize("new", [False, True])
def test_a_damaged_snapshot_is_refused_or_still_a_registry(new: bool) -> None:
    """Every byte of a snapshot flipped, and every prefix: a PackingError or a value."""
    good = reborn().snapshot() if new else busy().snapshot()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :]):
            try:
                Registry.restore(bad)
            except PackingError:
                continue
