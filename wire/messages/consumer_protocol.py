"""Subscriptions and assignments: the bytes that members of a consumer group exchange through the
coordinator, which does not read them.

The `metadata` of JoinGroup is a version and a subscription of that version, the `assignment` of
SyncGroup is a version and an assignment. A reader treats a newer version as the newest it knows:
later versions only add fields at the end (KIP-429, KIP-792, KIP-881).
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import struct
from typing import Any, Final, TypeVar

import attrs

from wire.codec.compiler import decoder, encoder
from wire.codec.schema import array, int32, int32_array, octets, string, string_array
from wire.errors import ProtocolError

PROTOCOL_TYPE: Final = "consumer"
SUBSCRIPTION_VERSION: Final = 3
ASSIGNMENT_VERSION: Final = 1

_VERSION: Final = struct.Struct(">h")

T = TypeVar("T")


@attrs.define
class TopicPartition:
    topic: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class ConsumerProtocolSubscription:
    topics: list[str] = string_array()
    user_data: bytes | None = octets(nullable="0+")
    owned_partitions: list[TopicPartition] = array(TopicPartition, "1+")
    generation_id: int = int32("2+", default=-1)
    rack_id: str | None = string("3+", nullable="0+")


@attrs.define
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = array(TopicPartition)
    user_data: bytes | None = octets(nullable="0+")


def encode_subscription(message: ConsumerProtocolSubscription) -> bytes:
    return _encode(message, SUBSCRIPTION_VERSION)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription.

    Raises:
        ProtocolError: the bytes are not a subscription.
    """
    return _decode(ConsumerProtocolSubscription, data, SUBSCRIPTION_VERSION)


def encode_assignment(message: ConsumerProtocolAssignment) -> bytes:
    return _encode(message, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a member's assignment; no bytes at all are an empty assignment.

    Raises:
        ProtocolError: the bytes are not an assignment.
    """
    if not data:
        return ConsumerProtocolAssignment()
    return _decode(ConsumerProtocolAssignment, data, ASSIGNMENT_VERSION)


def _encode(message: Any, version: int) -> bytes:  # noqa: ANN401  any message class
    out = bytearray(_VERSION.pack(version))
    return b"".join(encoder(type(message), version, False)(message, out))


def _decode(cls: type[T], data: bytes, newest: int) -> T:
    if len(data) < _VERSION.size:
        raise ProtocolError("cut short", f"{cls.__name__}: version", 0)
    version = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"version {version}", f"{cls.__name__}: version", 0)
    return decoder(cls, min(version, newest), False)(memoryview(data), _VERSION.size)
