"""Requests to a coordinator and its responses as bytes: one node asks another for its client.

The first byte is the FORM, the second the kind of request. A node that does not know the form says
so, and the client is sent away as if nothing were ever passed on. What many items have in common is
written in columns, so that ten thousand partitions cost a few milliseconds.

A commit's time is not carried: the coordinator's own clock counts.
"""

import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from coordinator import model
from coordinator.limits import MEMBERS_MAX, PROTOCOLS_MAX, TEXT_BYTES_MAX
from coordinator.model import ErrorCode, Request, Response
from coordinator.replicated.codec import I16, I32, I64, U8, Buffer, CommandError, Reader, Writer

FORM: Final = 1
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""A longer request is not carried."""
RESPONSE_BYTES_MAX: Final = 8 * 1024 * 1024
ITEMS_MAX: Final = 1_000_000
_COUNT: Final = struct.Struct(">I")


class _Field(NamedTuple):
    """How one field is written and read. (Any: what it holds differs from field to field.)"""

    write: Callable[[Writer, Any], None]
    read: Callable[[Reader], Any]
    bytes_min: int = 1


def _number(layout: struct.Struct) -> _Field:
    return _Field(
        lambda writer, value: writer.pack(layout, value),
        lambda reader: reader.number(layout),
        layout.size,
    )


def _write_text(writer: Writer, value: str | None) -> None:
    try:
        size = 0 if value is None else len(value.encode())
    except UnicodeEncodeError as error:
        raise CommandError("a string that is not Unicode") from error
    if size > TEXT_BYTES_MAX:
        raise CommandError(f"a string of {size} bytes")
    writer.text(value)


def _read_flag(reader: Reader) -> bool:
    value = reader.number(U8)
    if value > 1:
        raise CommandError(f"a flag of {value}")
    return bool(value)


def _error(code: int) -> ErrorCode:
    try:
        return ErrorCode(code)
    except ValueError as error:
        raise CommandError(f"an error {code}") from error


_INT32, _INT64 = _number(I32), _number(I64)
_FLAG = _Field(lambda writer, value: writer.pack(U8, value), _read_flag)
_TEXT = _Field(_write_text, Reader.text, I16.size)
_TEXT_OR_NONE = _Field(_write_text, Reader.optional_text, I16.size)
_BYTES = _Field(Writer.blob, Reader.blob, 4)
_ERROR = _Field(
    lambda writer, value: writer.pack(I16, value), lambda reader: _error(reader.number(I16)), 2
)


def _or_none(field: _Field) -> _Field:
    def write(writer: Writer, value: object) -> None:
        writer.pack(U8, value is not None)
        if value is not None:
            field.write(writer, value)

    return _Field(write, lambda reader: field.read(reader) if _read_flag(reader) else None)


def _many(field: _Field, count_max: int = ITEMS_MAX) -> _Field:
    def write(writer: Writer, values: tuple[object, ...]) -> None:
        writer.pack(_COUNT, len(values))
        for value in values:
            field.write(writer, value)

    def read(reader: Reader) -> tuple[Any, ...]:
        count = reader.count(count_max, field.bytes_min)
        return tuple([field.read(reader) for _ in range(count)])

    return _Field(write, read, _COUNT.size)


def _column(writer: Writer, letter: str, values: list[int]) -> None:
    writer.raw(struct.pack(f">{len(values)}{letter}", *values))


def _read_column(reader: Reader, letter: str, count: int) -> tuple[int, ...]:
    return reader.numbers(struct.Struct(f">{count}{letter}"))


def _columns(kind: Callable[..., Any], letters: str, texts: str = "") -> _Field:
    """A sequence of tuples of `kind`: numbers of these sizes, and a string at the place of `s`. If
    all strings are empty, none is written."""
    size = struct.calcsize(f">{letters.replace('s', '')}")

    def write(writer: Writer, values: tuple[tuple[Any, ...], ...]) -> None:
        writer.pack(_COUNT, len(values))
        for letter, column in zip(letters, zip(*values, strict=True), strict=False):
            if letter != "s":
                _column(writer, letter, list(column))
                continue
            writer.pack(U8, any(column))
            for text in column if any(column) else ():
                _write_text(writer, text)

    def read(reader: Reader) -> tuple[Any, ...]:
        count = reader.count(ITEMS_MAX, size)
        if not count:
            return ()
        columns: list[tuple[Any, ...]] = []
        for letter in letters:
            if letter != "s":
                columns.append(_read_column(reader, letter, count))
            elif _read_flag(reader):
                columns.append(tuple([reader.text() for _ in range(count)]))
            else:
                columns.append(("",) * count)
        return tuple([kind(*row) for row in zip(*columns, strict=True)])

    return _Field(write, read, _COUNT.size)


def _partition_error(partition: int, code: int) -> model.PartitionError:
    return model.PartitionError(partition, _error(code))


def _shape(kind: Callable[..., object], **fields: _Field) -> _Field:
    """An object of these fields, in this order."""

    def write(writer: Writer, value: object) -> None:
        for name, field in fields.items():
            field.write(writer, getattr(value, name))

    def read(reader: Reader) -> object:
        return kind(**{name: field.read(reader) for name, field in fields.items()})

    return _Field(write, read, sum(field.bytes_min for field in fields.values()))


def _write_numbers(writer: Writer, values: tuple[int, ...]) -> None:
    writer.pack(_COUNT, len(values))
    _column(writer, "i", list(values))


_INT32S = _Field(
    _write_numbers, lambda reader: _read_column(reader, "i", reader.count(ITEMS_MAX, 4)), 4
)
_NUMBERS_OF_TOPIC = _shape(model.TopicPartitions, topic=_TEXT, partitions=_INT32S)
_NUMBERS_OF_ID = _shape(model.TopicIdPartitions, topic_id=_BYTES, partitions=_INT32S)
_OFFSETS = _shape(
    model.TopicOffsets, topic=_TEXT, partitions=_columns(model.PartitionOffset, "iqisq")
)
_ERRORS = _shape(model.TopicErrors, topic=_TEXT, partitions=_columns(_partition_error, "ih"))
_PROTOCOL = _shape(model.Protocol, name=_TEXT, metadata=_BYTES)
_LEAVING = _shape(model.LeavingMember, member_id=_TEXT, instance_id=_TEXT_OR_NONE, reason=_TEXT)
_LEFT = _shape(model.LeftMember, member_id=_TEXT, instance_id=_TEXT_OR_NONE, error=_ERROR)
_ASSIGNMENT = _shape(model.Assignment, member_id=_TEXT, assignment=_BYTES)
_JOINED = _shape(model.JoinedMember, member_id=_TEXT, instance_id=_TEXT_OR_NONE, metadata=_BYTES)

_JOIN = _shape(
    model.JoinGroup,
    group=_TEXT,
    member_id=_TEXT,
    instance_id=_TEXT_OR_NONE,
    client_id=_TEXT,
    client_host=_TEXT,
    session_timeout_ms=_INT32,
    rebalance_timeout_ms=_INT32,
    protocol_type=_TEXT,
    protocols=_many(_PROTOCOL, PROTOCOLS_MAX),
    require_known_member_id=_FLAG,
    supports_skip_assignment=_FLAG,
)
_JOIN_RESPONSE = _shape(
    model.JoinGroupResponse,
    error=_ERROR,
    generation=_INT32,
    protocol_type=_TEXT_OR_NONE,
    protocol_name=_TEXT_OR_NONE,
    leader=_TEXT,
    member_id=_TEXT,
    members=_many(_JOINED),
    skip_assignment=_FLAG,
)
_SYNC = _shape(
    model.SyncGroup,
    group=_TEXT,
    generation=_INT32,
    member_id=_TEXT,
    instance_id=_TEXT_OR_NONE,
    protocol_type=_TEXT_OR_NONE,
    protocol_name=_TEXT_OR_NONE,
    assignments=_many(_ASSIGNMENT, MEMBERS_MAX),
)
_SYNC_RESPONSE = _shape(
    model.SyncGroupResponse,
    error=_ERROR,
    protocol_type=_TEXT_OR_NONE,
    protocol_name=_TEXT_OR_NONE,
    assignment=_BYTES,
)
_HEARTBEAT = _shape(
    model.Heartbeat, group=_TEXT, generation=_INT32, member_id=_TEXT, instance_id=_TEXT_OR_NONE
)
_ASSIGNED_HEARTBEAT = _shape(
    model.AssignedHeartbeat,
    group=_TEXT,
    member_id=_TEXT,
    epoch=_INT32,
    instance_id=_TEXT_OR_NONE,
    rack_id=_TEXT_OR_NONE,
    client_id=_TEXT,
    client_host=_TEXT,
    rebalance_timeout_ms=_INT32,
    topics=_or_none(_many(_TEXT)),
    pattern=_TEXT_OR_NONE,
    assignor=_TEXT_OR_NONE,
    owned=_or_none(_many(_NUMBERS_OF_ID)),
    names_itself=_FLAG,
)
_ASSIGNED_HEARTBEAT_RESPONSE = _shape(
    model.AssignedHeartbeatResponse,
    error=_ERROR,
    message=_TEXT_OR_NONE,
    member_id=_TEXT,
    epoch=_INT32,
    interval_ms=_INT32,
    assignment=_or_none(_many(_NUMBERS_OF_ID)),
)
_COMMIT = _shape(
    partial(model.OffsetCommit, commit_wall_ms=0),
    group=_TEXT,
    generation=_INT32,
    member_id=_TEXT,
    instance_id=_TEXT_OR_NONE,
    topics=_many(_OFFSETS),
)
_FETCH = _shape(
    model.OffsetFetch,
    group=_TEXT,
    topics=_or_none(_many(_NUMBERS_OF_TOPIC)),
    member_id=_TEXT,
    epoch=_INT32,
)

_KINDS: Final[Mapping[type, tuple[int, _Field, _Field]]] = {
    model.JoinGroup: (1, _JOIN, _JOIN_RESPONSE),
    model.SyncGroup: (2, _SYNC, _SYNC_RESPONSE),
    model.Heartbeat: (3, _HEARTBEAT, _shape(model.HeartbeatResponse, error=_ERROR)),
    model.LeaveGroup: (
        4,
        _shape(model.LeaveGroup, group=_TEXT, members=_many(_LEAVING, MEMBERS_MAX)),
        _shape(model.LeaveGroupResponse, error=_ERROR, members=_many(_LEFT)),
    ),
    model.AssignedHeartbeat: (5, _ASSIGNED_HEARTBEAT, _ASSIGNED_HEARTBEAT_RESPONSE),
    model.OffsetCommit: (
        6,
        _COMMIT,
        _shape(model.OffsetCommitResponse, topics=_many(_ERRORS)),
    ),
    model.OffsetFetch: (
        7,
        _FETCH,
        _shape(model.OffsetFetchResponse, error=_ERROR, topics=_many(_OFFSETS)),
    ),
}
MemberRequest: TypeAlias = (
    model.JoinGroup
    | model.SyncGroup
    | model.Heartbeat
    | model.LeaveGroup
    | model.AssignedHeartbeat
    | model.OffsetCommit
    | model.OffsetFetch
)
CARRIED: Final = frozenset(_KINDS)
"""Requests of members; what operators ask is answered where it is asked."""
_BY_NUMBER: Final = {number: request for number, request, _ in _KINDS.values()}


def encode_request(request: Request) -> bytes:
    """Raises CommandError if the request cannot be carried: a string or all of it is too long."""
    number, field, _ = _KINDS[type(request)]
    return _encode(number, field, request, REQUEST_BYTES_MAX)


def decode_request(data: Buffer, wall_ms: int) -> MemberRequest:
    """Raises CommandError for what is not a request that this node knows."""
    reader = Reader(data, bytes_max=REQUEST_BYTES_MAX)
    number = _kind(reader)
    if number not in _BY_NUMBER:
        raise CommandError(f"a request of kind {number}")
    request: MemberRequest = _BY_NUMBER[number].read(reader)
    reader.finish()
    if isinstance(request, model.OffsetCommit):
        return attrs.evolve(request, commit_wall_ms=wall_ms)
    return request


def encode_response(request: Request, response: Response) -> bytes:
    """Raises CommandError if the response cannot be carried."""
    number, _, field = _KINDS[type(request)]
    return _encode(number, field, response, RESPONSE_BYTES_MAX)


def decode_response(request: Request, data: Buffer) -> Response:
    """Raises CommandError for what is not a response to this request."""
    number, _, field = _KINDS[type(request)]
    reader = Reader(data, bytes_max=RESPONSE_BYTES_MAX)
    if _kind(reader) != number:
        raise CommandError("a response to another request")
    response: Response = field.read(reader)
    reader.finish()
    return response


def _encode(number: int, field: _Field, value: object, bytes_max: int) -> bytes:
    writer = Writer(bytes_max=1 << 62)
    writer.pack(U8, FORM)
    writer.pack(U8, number)
    field.write(writer, value)
    data = writer.finish()
    if len(data) > bytes_max:
        raise CommandError(f"{len(data)} bytes, at most {bytes_max}")
    return data


def _kind(reader: Reader) -> int:
    form = reader.number(U8)
    if form != FORM:
        raise CommandError(f"form {form} is not known")
    return reader.number(U8)
