"""What nodes send each other for the console: every byte of it may be wrong."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paxos.codec import PeerError
from runtime.console.messages import (
    SAMPLES_MAX,
    Acting,
    Ask,
    Committed,
    Consumers,
    Data,
    Ends,
    Held,
    Sample,
    State,
    What,
    decode,
    encode_ask,
    encode_tell,
)

STATE = State(
    incarnation=7,
    second=1234,
    not_ready="draining",
    version="0.1.0",
    durability="fsync",
    uptime_s=60,
    rss_bytes=57_000_000,
    disk_free_bytes=-1,
    disk_low=0,
    connections=3,
    acting=(Acting(3, 2900, 5, 0), Acting(4, 100, 6, 2)),
    samples=(Sample(1233, 100, 50, 10_000, 5_000), Sample(1234, 0, 0, 0, 0)),
)
DATA = Data(
    ends=(Ends("orders", [0, 2], [0, 5], [10, 25]),),
    held=(Held("orders", 4096, -1),),
    consumers=(
        Consumers(
            name="<script>alert(1)</script>",
            state="Stable",
            kind="classic",
            group=2,
            members=1,
            clients=("a 127.0.0.1",),
            committed=(Committed("orders", [0], [7]),),
        ),
    ),
    cut=1,
)


def test_what_is_said_is_what_is_heard() -> None:
    for ask in (Ask(What.STATE, 17), Ask(What.DATA)):
        assert decode(memoryview(encode_ask(ask))) == ask
    assert decode(memoryview(encode_tell(STATE))) == STATE
    assert decode(memoryview(encode_tell(DATA))) == DATA
    assert decode(memoryview(encode_tell(Data()))) == Data()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x01",
        b"\x01\x01",
        b"\x01\x09" + bytes(8),
        b"\x03\x01" + bytes(8),
        b"\x02\x01",
        b"\x02\x01{}",
        b"\x02\x01[]",
        b"\x02\x02null",
        b"\x02\x02" + b"[" * 100_000,
        b"\x02\x01\xff",
        encode_tell(STATE).replace(b'"rss_bytes":57000000', b'"rss_bytes":-57000000'),
        encode_tell(STATE).replace(b'"rss_bytes":57000000', b'"rss_bytes":true'),
        encode_tell(STATE).replace(b'"fsync"', b"7"),
        encode_tell(DATA).replace(b"[0,5]", b"[0]"),
        encode_tell(DATA).replace(b'"orders"', b'"' + b"x" * 300 + b'"'),
    ],
)
def test_what_no_node_says(body: bytes) -> None:
    with pytest.raises(PeerError):
        decode(memoryview(body))


def test_an_answer_that_is_too_long_is_none() -> None:
    told = encode_tell(STATE)
    sample = b"[1234,0,0,0,0]"
    with pytest.raises(PeerError):
        decode(memoryview(told.replace(sample, b",".join([sample] * (SAMPLES_MAX + 1)))))


@given(st.sampled_from([encode_tell(STATE), encode_tell(DATA)]), st.data())
def test_a_flipped_byte_is_an_answer_or_a_lie_and_nothing_else(
    body: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(body) - 1))
    wrong = bytearray(body)
    wrong[at] ^= data.draw(st.integers(1, 255))
    with suppress(PeerError):
        decode(memoryview(wrong))
