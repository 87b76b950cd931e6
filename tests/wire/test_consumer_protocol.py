"""Messages between group members: kio's bytes, future versions, and hostile members."""

import importlib
import io
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from tests.wire.messages_of import messages
from wire.errors import ProtocolError
from wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

SUBSCRIPTION = ConsumerProtocolSubscription(
    ["t", "aa"], b"\x00\x00\x00\x07", [TopicPartition("t", [0, 2])], 7, "rack"
)


def kio_class(name: str, version: int) -> type:
    module = importlib.import_module(f"kio.schema.consumer_protocol_{name}.v{version}.data")
    found: type = getattr(module, f"ConsumerProtocol{name.capitalize()}")
    return found


def kio_again(data: bytes, name: str, version: int) -> bytes:
    """kio's encoding of what it has decoded."""
    cls = kio_class(name, version)
    message, size = entity_reader(cls)(data, 2)
    assert 2 + size == len(data)
    out = io.BytesIO()
    entity_writer(cls)(out, message)
    return data[:2] + out.getvalue()


@settings(max_examples=50, deadline=None, database=None)
@given(messages(ConsumerProtocolSubscription, 3), messages(ConsumerProtocolAssignment, 1))
def test_we_and_kio_agree(
    subscription: ConsumerProtocolSubscription, assignment: ConsumerProtocolAssignment
) -> None:
    data = encode_subscription(subscription)
    assert kio_again(data, "subscription", 3) == data
    assert decode_subscription(data) == subscription
    data = encode_assignment(assignment)
    assert kio_again(data, "assignment", 1) == data
    assert decode_assignment(data) == assignment


@pytest.mark.parametrize("version", range(4))
def test_old_members_are_understood(version: int) -> None:
    cls = kio_class("subscription", version)
    empty = {"owned_partitions": ()} if version else {}
    out = io.BytesIO(version.to_bytes(2, "big"))
    out.seek(2)
    entity_writer(cls)(out, cls(topics=("t",), **empty))
    assert decode_subscription(out.getvalue()) == ConsumerProtocolSubscription(["t"])


def test_a_version_of_the_future_is_read_as_the_newest_known() -> None:
    data = b"\x00\x63" + encode_subscription(SUBSCRIPTION)[2:] + b"what comes later"
    assert decode_subscription(data) == SUBSCRIPTION


def test_nothing_given_is_an_empty_assignment() -> None:
    assert decode_assignment(b"") == ConsumerProtocolAssignment()


@settings(max_examples=300, deadline=None, database=None)
@given(st.integers(0, 1 << 32))
def test_hostile_members(seed: int) -> None:
    """A ProtocolError or a value, never anything else."""
    dice = Random(seed)
    data = bytearray(encode_subscription(SUBSCRIPTION))
    for _ in range(dice.randint(1, 3)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    del data[dice.randint(0, 2 * len(data)) :]
    refusals = []
    for decode in (decode_subscription, decode_assignment):
        try:
            decode(bytes(data))
        except ProtocolError as error:
            refusals.append(error)
    assert all(0 <= error.at <= len(data) for error in refusals)
