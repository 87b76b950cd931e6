"""Entries and messages as bytes: every value round-trips; damage gives a PeerError or a value."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paxos import codec
from paxos.codec import PeerError
from paxos.entry import (
    CONFIG_MEMBERS_MAX,
    NOOP,
    BeMaster,
    Buffer,
    Config,
    Entry,
    EntryError,
    EntryKind,
    Steal,
    batch,
    be_master,
    config,
    decode,
    steal,
)
from paxos.ids import INCARNATION_MAX, ROUND_MAX, Ballot, GroupId, Incarnation, NodeId, Slot
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

groups = st.integers(0, 2**32 - 1).map(GroupId)
nodes = st.integers(-(2**31), 2**31 - 1).map(NodeId)
slots = st.integers(1, 2**62 - 1).map(Slot)
bounds = st.integers(0, 2**62 - 1).map(Slot)
ballots = st.builds(Ballot, st.integers(0, ROUND_MAX - 1), nodes)
incarnations = st.integers(0, INCARNATION_MAX - 1).map(Incarnation)
walls = st.integers(-(2**63), 2**63 - 1)
payloads = st.lists(st.binary(min_size=1, max_size=20), max_size=3).map(tuple)
members = st.lists(nodes, min_size=1, max_size=6, unique=True).map(tuple)
entries = st.one_of(
    st.just(NOOP),
    payloads.map(batch),
    st.builds(BeMaster, nodes, incarnations, bounds, walls).map(be_master),
    st.builds(
        steal, st.builds(Steal, nodes, nodes, incarnations, ballots, bounds, walls), payloads
    ),
    st.builds(Config, members).map(config),
)
votes = st.lists(st.tuples(slots, ballots, entries), max_size=3).map(tuple)
all_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Prepare, groups, ballots, slots),
    st.builds(Promise, groups, ballots, votes),
    st.builds(Nack, groups, ballots, ballots),
    st.builds(Behind, groups, ballots, bounds),
    st.builds(Accept, groups, ballots, slots, entries, bounds, bounds),
    st.builds(Accepted, groups, ballots, slots),
    st.builds(Commit, groups, ballots, bounds, bounds),
    st.builds(Learn, groups, bounds),
    st.builds(Learned, groups, slots, st.lists(entries, max_size=3).map(tuple)),
    st.builds(Progress, groups, bounds, bounds, ballots, incarnations, st.integers(-1, 2**63 - 1)),
    st.builds(RejoinAsk, groups, incarnations),
    st.builds(RejoinAnswer, groups, incarnations, ballots, bounds, bounds),
    st.builds(StealRequest, groups, incarnations, bounds, bounds, st.integers(0, 2**64 - 1)),
    st.builds(StealAbort, groups, bounds, st.text(max_size=30)),
    bounds.flatmap(
        lambda applied: st.builds(
            Trimmed, groups, st.integers(1, applied + 1).map(Slot), st.just(applied)
        ).filter(lambda trimmed: trimmed.first < 2**62)
    ),
)


def encoded(*several: Message) -> bytes:
    parts: list[Buffer] = []
    sizes = [codec.encode(message, parts) for message in several]
    data = b"".join(parts)
    assert sum(sizes) == len(data)
    return data


def read_all(data: bytes) -> list[Message] | None:
    """The messages, or None where the bytes are refused; any other exception is a bug."""
    try:
        return list(codec.decode_all(memoryview(data)))
    except PeerError:
        return None


@given(entries)
def test_an_entry_comes_back(entry: Entry) -> None:
    data = b"".join(entry.chunks)
    assert len(data) == entry.size
    back = decode(memoryview(data))
    assert back.same_as(entry)
    assert (back.kind, back.control) == (entry.kind, entry.control)
    assert b"".join(back.payload()) == b"".join(entry.payload())


@given(st.lists(all_messages, max_size=4))
def test_messages_come_back_in_order(several: list[Message]) -> None:
    data = encoded(*several)
    back = list(codec.decode_all(memoryview(data)))
    assert [type(one) for one in back] == [type(one) for one in several]
    assert encoded(*back) == data


@settings(max_examples=60, deadline=None)
@given(all_messages, st.integers(1, 255))
def test_every_flipped_byte_gives_a_message_or_a_peer_error(message: Message, mask: int) -> None:
    data = encoded(message)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= mask
        back = read_all(bytes(damaged))
        assert back is None or encoded(*back) == damaged, "one value, one encoding"


@settings(max_examples=60, deadline=None)
@given(all_messages)
def test_every_truncation_is_a_peer_error(message: Message) -> None:
    data = encoded(message)
    for size in range(1, len(data)):
        back = read_all(data[:size])
        assert back is None, f"{size} of {len(data)} bytes were taken for {back}"


@given(st.binary(max_size=200))
def test_noise_is_a_peer_error_or_a_message(noise: bytes) -> None:
    read_all(noise)


@given(st.binary(max_size=60))
def test_noise_is_an_entry_error_or_an_entry(noise: bytes) -> None:
    try:
        entry = decode(memoryview(noise))
    except EntryError:
        return
    assert b"".join(entry.chunks) == noise


def test_what_was_read_before_the_damage_has_been_delivered() -> None:
    good = Learn(GroupId(1), Slot(4))
    stream = codec.decode_all(memoryview(encoded(good) + b"\xff\x00\x00\x00\x00"))
    assert next(stream) == good
    with pytest.raises(PeerError, match="unknown message type"):
        next(stream)


def test_a_declared_count_is_checked_before_anything_is_built() -> None:
    data = bytearray(encoded(Learned(GroupId(1), Slot(1), ())))
    data[-4:] = (2**32 - 1).to_bytes(4, "big")
    with pytest.raises(PeerError, match="cannot be in"):
        list(codec.decode_all(memoryview(data)))


@pytest.mark.parametrize("bad", [(), tuple(range(CONFIG_MEMBERS_MAX + 1)), (1, 1)])
def test_a_config_names_distinct_members_within_the_limit(bad: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="distinct members"):
        config(Config(tuple(NodeId(node) for node in bad)))


def test_a_long_reason_is_cut_between_two_characters() -> None:
    abort = StealAbort(GroupId(1), Slot(1), "\N{SNOWMAN}" * 200)
    (back,) = codec.decode_all(memoryview(encoded(abort)))
    assert isinstance(back, StealAbort)
    assert 60 < len(back.reason) < 200
    assert set(back.reason) == {"\N{SNOWMAN}"}


def test_a_batch_is_not_copied() -> None:
    """The frame refers to its buffers as they are; a decoded batch is a view of the frame."""
    payload = b"x" * 1000
    parts: list[Buffer] = []
    ballot = Ballot(1, NodeId(0))
    codec.encode(Accept(GroupId(1), ballot, Slot(1), batch((payload,)), Slot(1), Slot(0)), parts)
    assert any(part is payload for part in parts)
    frame = b"".join(parts)
    (back,) = codec.decode_all(memoryview(frame))
    assert isinstance(back, Accept)
    (view,) = back.entry.payload()
    assert isinstance(view, memoryview)
    assert view.obj is frame
    assert back.entry.kind is EntryKind.BATCH


HUGE = Ballot(ROUND_MAX, NodeId(1))
ENDLESS = Incarnation(INCARNATION_MAX)
ONE, GROUP, FINE = Slot(1), GroupId(1), Ballot(1, NodeId(1))


@pytest.mark.parametrize(
    "lie",
    [
        Prepare(GROUP, HUGE, ONE),
        Promise(GROUP, HUGE, ()),
        Promise(GROUP, FINE, ((ONE, HUGE, NOOP),)),
        Nack(GROUP, FINE, HUGE),
        Accept(GROUP, HUGE, ONE, NOOP, ONE, ONE),
        Accepted(GROUP, HUGE, ONE),
        Progress(GROUP, ONE, ONE, HUGE, Incarnation(1), -1),
        RejoinAnswer(GROUP, Incarnation(1), HUGE, ONE, ONE),
        StealRequest(GROUP, ENDLESS, ONE, ONE, 1),
        Learned(GROUP, ONE, (steal(Steal(NodeId(1), NodeId(2), Incarnation(1), HUGE, ONE, 0)),)),
    ],
    ids=lambda lie: type(lie).__name__,
)
def test_a_number_that_no_record_can_hold_is_a_lie(lie: Message) -> None:
    """A round above the highest has no place in the log: writing it would crash the node."""
    with pytest.raises(PeerError, match=r"out of range|of round"):
        list(codec.decode_all(memoryview(encoded(lie))))
