"""Commands, results and checkpoints as bytes: round trips, golden bytes, damage."""

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from broker.groups.consumer_groups import hash_consumer_group
from coordinator.limits import COMMAND_BYTES_MAX
from coordinator.model import (
    NO_MEMBER,
    ConsumerGroupId,
    ErrorCode,
    MemberId,
    PartitionOffset,
    Protocol,
    TopicOffsets,
    TopicPartitions,
)
from coordinator.replicated import image
from coordinator.replicated.assigned_group import (
    AssignedMember,
    AssignedSnapshot,
    ClassicMember,
    Subscription,
)
from coordinator.replicated.codec import CommandError
from coordinator.replicated.commands import (
    BindOffsets,
    Command,
    CommitOffsets,
    DropGroup,
    DropOffsets,
    GroupSnapshot,
    MemberRecord,
    OffsetBinding,
    Result,
    Sweep,
    TopicBindings,
    decode,
    decode_result,
    encode,
    encode_result,
)
from coordinator.replicated.store import GroupStore
from coordinator.replicated.waits import KIND_NUMBERS, GroupWaits, TimeLeft, WaitFor
from coordinator.states import GroupState
from coordinator.subscription import subscribed_topics
from coordinator.timers import Wait
from coordinator.topics import ANY_TOPIC, NO_TOPIC

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
NATURAL = st.integers(0, 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
GROUPS = st.sampled_from(["g", "orders", "\N{GREEK SMALL LETTER ALPHA}"]).map(ConsumerGroupId)
MEMBER_IDS = st.sampled_from(["m1", "m2", "m3", "m4"]).map(MemberId)


@st.composite
def members(draw: st.DrawFn) -> tuple[MemberRecord, ...]:
    ids = draw(st.lists(MEMBER_IDS, unique=True, max_size=4))
    protocols = st.lists(st.builds(Protocol, TEXTS, st.binary(max_size=9)), max_size=3)
    return tuple(
        MemberRecord(
            member_id,
            draw(st.sampled_from([None, f"instance of {member_id}"])),
            draw(TEXTS),
            draw(TEXTS),
            draw(INT32),
            draw(INT32),
            tuple(draw(protocols)),
            draw(st.binary(max_size=9)),
        )
        for member_id in ids
    )


@st.composite
def snapshots(draw: st.DrawFn) -> GroupSnapshot:
    those = draw(members())
    live = [GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE, GroupState.STABLE]
    return GroupSnapshot(
        draw(GROUPS),
        draw(st.integers(0, 20)),
        draw(st.integers(0, 5)),
        draw(st.sampled_from(live)) if those else GroupState.EMPTY,
        draw(st.none() | TEXTS),
        draw(st.none() | TEXTS),
        draw(st.sampled_from([None, *(member.member_id for member in those)])),
        those,
    )


PARTITION_OFFSETS = st.builds(
    PartitionOffset, st.integers(0, 3), INT64, INT32, TEXTS, st.integers(0, 4)
)
TOPICS = st.sampled_from(["t", "u"])
COMMITS = st.builds(
    CommitOffsets,
    GROUPS,
    st.integers(-1, 5),
    MEMBER_IDS,
    st.none() | TEXTS,
    st.integers(0, 1000),
    st.lists(
        st.builds(TopicOffsets, TOPICS, st.lists(PARTITION_OFFSETS, max_size=3).map(tuple)),
        max_size=3,
    ).map(tuple),
)
ID = bytes(range(16))


def with_ids(commit: CommitOffsets) -> CommitOffsets:
    """As a coordinator commits in a group with broker-side assignment."""
    ids = tuple(ID if topic == "t" else b"" for topic, _ in commit.topics)
    return attrs.evolve(commit, topic_ids=ids)


COMMITS |= COMMITS.map(with_ids)


@st.composite
def shared_groups(draw: st.DrawFn) -> AssignedSnapshot:
    """A few members; some have the epoch since which they hold their partitions."""
    ids = draw(st.lists(MEMBER_IDS, unique=True, max_size=3))
    epoch = draw(st.integers(1, 5))
    parts = [(ID, number) for number in range(6)]
    shares = [draw(st.sampled_from([0, *range(len(ids))])) for _ in parts]
    members = []
    for at, member_id in enumerate(ids):
        held = [part for part, share in zip(parts, shares, strict=True) if share == at]
        split = draw(st.integers(0, len(held)))
        known = draw(st.lists(st.sampled_from(held), unique=True)) if held else []
        members.append(
            AssignedMember(
                member_id=member_id,
                instance_id=None,
                client_id="",
                client_host="",
                subscription=Subscription(("t",)),
                epoch=draw(st.integers(-2, epoch)),
                assigned=frozenset(held[:split]),
                revoking=frozenset(held[split:]),
                target=frozenset(held),
                since={part: draw(st.integers(0, epoch)) for part in known},
            )
        )
    group, before = draw(GROUPS), draw(st.integers(0, 20))
    return AssignedSnapshot(group, before, epoch, "uniform", tuple(members), {ID: 6})


@st.composite
def mixed_groups(draw: st.DrawFn) -> AssignedSnapshot:
    """Some of the members are classic ones, or it takes over a classic group."""
    snapshot = draw(shared_groups())
    protocols = (Protocol("range", b"\0\1"), Protocol("sticky", b""))
    members = [
        attrs.evolve(one, classic=ClassicMember(draw(st.integers(1, 60_000)), protocols))
        if draw(st.booleans())
        else one
        for one in snapshot.members[:-1]
    ]
    converts = draw(st.booleans())
    return attrs.evolve(snapshot, members=(*members, *snapshot.members[-1:]), converts=converts)


DROPS = st.builds(
    DropOffsets,
    GROUPS,
    st.lists(
        st.builds(TopicPartitions, TOPICS, st.lists(st.integers(0, 3), max_size=3).map(tuple)),
        max_size=3,
    ).map(tuple),
)
UIDS = st.sampled_from([ANY_TOPIC, 1, 2, NO_TOPIC])
TIES = st.builds(
    BindOffsets,
    GROUPS,
    st.lists(
        st.builds(
            TopicBindings,
            TOPICS,
            st.lists(st.builds(OffsetBinding, st.integers(0, 3), UIDS, UIDS), max_size=3).map(
                tuple
            ),
        ),
        max_size=3,
    ).map(tuple),
)
SWEEPS = st.builds(Sweep, st.integers(0, 2000), st.integers(0, 500), st.integers(0, 500))
KINDS = st.sampled_from(list(KIND_NUMBERS))
WAITS = st.dictionaries(
    st.builds(WaitFor, KINDS, MEMBER_IDS | st.just(NO_MEMBER)),
    st.builds(Wait, NATURAL, st.booleans()),
    max_size=3,
)
TIMES_LEFT = st.dictionaries(GROUPS, st.tuples(st.integers(0, 5), WAITS), max_size=3).map(
    lambda groups: TimeLeft(
        tuple(GroupWaits(name, at, tuple(waits.items())) for name, (at, waits) in groups.items())
    )
)
COMMANDS: st.SearchStrategy[Command] = (
    TIMES_LEFT
    | shared_groups()
    | mixed_groups()
    | snapshots()
    | st.builds(attrs.evolve, snapshots(), converts=st.booleans())
    | COMMITS
    | DROPS
    | TIES
    | SWEEPS
    | st.builds(DropGroup, GROUPS)
)


@given(COMMANDS)
def test_what_is_written_is_read_back(command: Command) -> None:
    assert decode(encode(command)) == command
    assert decode(memoryview(encode(command))) == command


@given(st.data(), COMMANDS)
def test_damage_is_told_or_is_another_command(data: st.DataObject, command: Command) -> None:
    """Cut, changed or lengthened: a CommandError, or a command with just these bytes."""
    good = encode(command)
    at = data.draw(st.integers(0, len(good) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    for bad in (good[:at], good[:at] + byte + good[at + 1 :], good + byte, good[:at] + good[at:]):
        store = GroupStore()
        try:
            again = decode(bad)
        except CommandError:
            with pytest.raises(CommandError):
                store.apply(bad)
            assert len(store) == 0
        else:
            assert encode(again) == bad
            decode_result(store.apply(bad))


def test_every_cut_and_every_changed_byte_of_a_whole_group() -> None:
    """One rich snapshot, damaged at every single place."""
    member = MemberRecord(
        MemberId("m"), "i", "c", "h", 6000, 9000, (Protocol("range", b"\0\1"),), b"part"
    )
    good = encode(
        GroupSnapshot(
            ConsumerGroupId("g"), 7, 3, GroupState.STABLE, "consumer", "range", member.member_id,
            (member,),
        )
    )  # fmt: skip
    for at in range(len(good)):
        with pytest.raises(CommandError):
            decode(good[:at])
        for byte in range(256):
            bad = good[:at] + bytes([byte]) + good[at + 1 :]
            try:
                again = decode(bad)
            except CommandError:
                continue
            assert encode(again) == bad


def test_golden_bytes() -> None:
    """Logs on disks must stay readable: a change here needs a new version byte."""
    commit = CommitOffsets(
        ConsumerGroupId("g"),
        2,
        MemberId("m"),
        None,
        5,
        (TopicOffsets("t", (PartitionOffset(1, 9, 3, "x"),)),),
    )
    assert encode(commit).hex() == (
        "0102" "000167" "00000002" "00016d" "ffff" "0000000000000005" "00000001"
        "000174" "00000001" "00000001" "0000000000000009" "00000003" "000178"
    )  # fmt: skip
    group = ConsumerGroupId("g")
    assert encode(DropGroup(group)).hex() == "0103000167"
    empty = GroupSnapshot(group, 1, 4, GroupState.EMPTY)
    assert encode(empty).hex() == "0101" "000167" "0000000000000001" "00000004" "00" + (
        "ffff" "ffff" "ffff" "00000000"
    )  # fmt: skip
    assert encode_result(Result(ErrorCode.ILLEGAL_GENERATION, 3)).hex() == (
        "01" "0016" "0000000000000003"
    )  # fmt: skip


def test_golden_bytes_of_groups_that_the_broker_shares_out() -> None:
    """With the epoch since which parts are held (10), and without, as before (6); a commit with
    topic ids."""
    group, part = ConsumerGroupId("g"), (ID, 1)
    member = AssignedMember(
        member_id=MemberId("m"),
        instance_id=None,
        client_id="",
        client_host="",
        subscription=Subscription(),
        epoch=3,
        previous_epoch=2,
        assigned=frozenset([part]),
    )
    share = "00000010" + ID.hex() + "00000001"
    head = "000167" "0000000000000000" "00000004" "0007" + b"uniform".hex() + "00000001" + (
        "00016d" "ffff" "0000" "0000" "00000000" "ffff" "ffff" "ffff" "000493e0"
        "00000003" "00000002" "00000001"
    ) + share + "00000000" "00000000"  # fmt: skip
    old = AssignedSnapshot(group, 0, 4, "uniform", (member,))
    assert encode(old).hex() == "0106" + head + "00000000"
    new = attrs.evolve(old, members=(attrs.evolve(member, since={part: 2}),))
    assert encode(new).hex() == "010a" + head + "00000002" + "00000000"
    classic = ClassicMember(6_000, (Protocol("range", b"\0\1"),))
    two = attrs.evolve(member, member_id=MemberId("n"), assigned=frozenset(), classic=classic)
    mixed = encode(attrs.evolve(new, members=(*new.members, two), converts=True)).hex()
    assert mixed.startswith("010c0001670000000000000000000000040007")
    assert mixed.endswith(
        "00000000" "01" "00" "01" "00001770" "00000001" "0005" + b"range".hex() + "00000002" "0001"
    )  # fmt: skip
    downgraded = GroupSnapshot(group, 1, 4, GroupState.EMPTY, converts=True)
    assert encode(downgraded).hex() == "010d" "000167" "0000000000000001" "00000004" "00" + (
        "ffff" "ffff" "ffff" "00000000"
    )  # fmt: skip
    commit = CommitOffsets(
        group, 2, MemberId("m"), None, 5, (TopicOffsets("t", (PartitionOffset(1, 9, 3, "x", 7),)),),
        (ID,),
    )  # fmt: skip
    assert encode(commit).hex() == "010b" "00000001" "00000010" + ID.hex() + (
        "000167" "00000002" "00016d" "ffff" "0000000000000005" "00000001"
        "000174" "00000001" "00000001" "0000000000000009" "00000003" "000178" "00000007"
    )  # fmt: skip
    assert encode_result(Result(ErrorCode.NONE, 3, (1,))).hex() == (
        "02" "0000" "0000000000000003" "00000001"
    )  # fmt: skip


@given(st.binary(max_size=40))
def test_a_result_is_read_or_refused(data: bytes) -> None:
    try:
        result = decode_result(data)
    except CommandError:
        return
    assert encode_result(result) == data


def test_what_is_too_long_is_not_even_looked_at() -> None:
    with pytest.raises(CommandError, match="at most"):
        decode(bytes(COMMAND_BYTES_MAX + 1))
    with pytest.raises(CommandError, match="announced"):
        decode(bytes.fromhex("0104000167ffffffff"))


@given(st.lists(COMMANDS, max_size=25))
def test_replicas_that_apply_the_same_are_the_same(commands: list[Command]) -> None:
    """Also one that was restored half way; generations never go down; counts are right."""
    one, other = GroupStore(), GroupStore()
    generations: dict[ConsumerGroupId, int] = {}
    for index, command in enumerate(commands):
        sweeps = isinstance(command, Sweep) and one.sweep_due(command)
        before = one.snapshot()
        assert one.apply(encode(command)) == other.apply(memoryview(encode(command)))
        if isinstance(command, Sweep):
            assert sweeps == (one.snapshot() != before)
        if index == len(commands) // 2:
            other = GroupStore.restore(other.snapshot())
        known = {group.name: group for group in one.groups()}
        generations = {name: old for name, old in generations.items() if name in known}
        for name, group in known.items():
            assert group.generation >= generations.get(name, 0)
            generations[name] = group.generation
            assert group.offsets_count == sum(map(len, group.offsets.values()))
    assert one.snapshot() == other.snapshot()


@given(st.data(), st.lists(COMMANDS, max_size=10))
def test_a_damaged_checkpoint_is_refused_or_another_one(
    data: st.DataObject, commands: list[Command]
) -> None:
    store = GroupStore()
    for command in commands:
        store.apply(encode(command))
    chunks = store.snapshot()
    which = data.draw(st.integers(0, len(chunks) - 1))
    at = data.draw(st.integers(0, len(chunks[which]) - 1))
    byte = bytes([data.draw(st.integers(0, 255))])
    chunks[which] = chunks[which][:at] + byte + chunks[which][at + 1 :]
    assume(not image.OLDEST_READ <= chunks[0][0] < image.VERSION)  # which may have the same effect
    try:
        restored = GroupStore.restore(chunks)
    except CommandError:
        return
    assert restored.snapshot() == chunks


@given(st.lists(COMMANDS, max_size=25), st.lists(COMMANDS, max_size=15), st.integers(1, 4))
def test_a_checkpoint_is_of_one_moment_whatever_is_applied_while_it_is_made(
    before: list[Command], meanwhile: list[Command], work: int
) -> None:
    store = GroupStore()
    for command in before:
        store.apply(encode(command))
    expected = store.snapshot()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image, "PIECE_WORK", work)
        making, pieces = store.pieces(), list[bytes]()
        for command in meanwhile:
            store.apply(encode(command))
            pieces += [piece for piece in [next(making, None)] if piece is not None]
        pieces += making
    assert b"".join(pieces) == b"".join(expected)
    restored = GroupStore.restore(pieces)
    for command in meanwhile:
        restored.apply(encode(command))
    assert restored.snapshot() == store.snapshot()


def test_a_checkpoint_without_a_head_is_refused() -> None:
    with pytest.raises(CommandError, match="no head"):
        image.decode_all([])


def test_consumer_groups_hash_the_same_everywhere() -> None:
    """Fixed values: clients and nodes of all releases must look in the same place."""
    assert [hash_consumer_group(name, 12) for name in ("orders", "audit", "g\u00e4ste")] == [
        2,
        9,
        0,
    ]
    spread = [0] * 8
    for index in range(8000):
        spread[hash_consumer_group(f"group-{index}", 8)] += 1
    assert min(spread) > 800


@given(st.binary(max_size=60))
def test_any_metadata_has_topics_or_has_none(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(topic.encode() in metadata for topic in topics)
