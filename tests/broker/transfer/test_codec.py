"""Catch-up messages as bytes: every value round-trips, every damage is a PeerError."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.transfer import codec
from broker.transfer.messages import (
    ASKED_BYTES_MAX,
    AskData,
    AskManifest,
    AskState,
    Data,
    Manifest,
    Message,
    Part,
    RefusalReason,
    Refused,
    State,
)
from paxos.codec import PeerError
from paxos.ids import GroupId, Slot

GOLDEN = Path(__file__).parent / "golden" / "messages-v1.hex"

numbers = st.integers(0, 2**64 - 1)
groups = st.integers(0, 2**32 - 1).map(GroupId)
slots = st.integers(0, 2**62).map(Slot)
uids = st.integers(0, 2**32 - 1)
offsets = st.integers(0, 2**63 - 1)
payloads = st.binary(max_size=50).map(lambda data: (memoryview(data),))
parts = st.builds(lambda uid, a, b: Part(uid, min(a, b), max(a, b)), uids, offsets, offsets)
messages = st.one_of(
    st.builds(AskManifest, numbers, groups, slots),
    st.builds(Manifest, numbers, groups, slots, st.lists(parts, max_size=4).map(tuple)),
    st.builds(AskData, numbers, groups, uids, offsets, st.integers(1, ASKED_BYTES_MAX)),
    st.builds(Data, numbers, groups, uids, offsets, st.booleans(), payloads),
    st.builds(AskState, numbers, groups, uids, slots),
    st.builds(
        lambda number, group, chunk, at, more, last, payload: State(
            number, group, chunk, at, at + more + len(payload[0]), last, payload
        ),
        numbers,
        groups,
        uids,
        slots,
        st.integers(0, 1000),
        st.booleans(),
        payloads,
    ),
    st.builds(Refused, numbers, groups, st.sampled_from(RefusalReason)),
)


def encoded(message: Message) -> bytes:
    return b"".join(codec.encode(message))


@given(messages)
def test_every_message_comes_back(message: Message) -> None:
    assert codec.decode(memoryview(encoded(message))) == message


@pytest.mark.parametrize("size", [0, ASKED_BYTES_MAX + 1, 2**32 - 1])
def test_no_node_asks_for_nothing_or_for_very_much(size: int) -> None:
    """Such requests are not answered either."""
    with pytest.raises(PeerError, match=f"a question for {size} bytes"):
        codec.decode(memoryview(encoded(AskData(1, GroupId(1), 1, 0, size))))


@given(messages, st.data())
def test_every_damage_is_noticed(message: Message, data: st.DataObject) -> None:
    whole = encoded(message)
    at = data.draw(st.integers(0, len(whole) - 1))
    flip = data.draw(st.integers(1, 255))
    damaged = whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :]
    with pytest.raises(PeerError):
        codec.decode(memoryview(damaged))
    with pytest.raises(PeerError):
        codec.decode(memoryview(whole[:at]))


ONE_OF_EACH: tuple[Message, ...] = (
    AskManifest(1, GroupId(2), Slot(3)),
    Manifest(1, GroupId(2), Slot(9), (Part(4, 5, 6), Part(7, 0, 0))),
    AskData(2, GroupId(2), 4, 5, 65536),
    Data(2, GroupId(2), 4, 6, False, (memoryview(b"batches"),)),
    AskState(3, GroupId(2), 1, 64),
    State(3, GroupId(2), 1, 64, 70, True, (memoryview(b"chunks"),)),
    Refused(4, GroupId(2), RefusalReason.GONE),
)


def test_the_format_has_not_changed() -> None:
    """These bytes are on the links of clusters whose nodes have different versions."""
    lines = GOLDEN.read_text().split()
    assert [encoded(one).hex() for one in ONE_OF_EACH] == lines
    assert [codec.decode(memoryview(bytes.fromhex(line))) for line in lines] == [*ONE_OF_EACH]
