"""The bytes of a catch-up message: version, kind, CRC32C of everything behind it, fields, payload.

The message has a checksum of its own: batches carry one as well, but it covers neither their
offsets nor the state of a group. Big-endian, like everything between nodes.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from crc32c import crc32c

from broker.transfer.messages import (
    ASKED_BYTES_MAX,
    PARTS_MAX,
    PAYLOAD_BYTES_MAX,
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
from paxos.entry import Buffer
from paxos.ids import GroupId, Slot

VERSION: Final = 1

_HEAD: Final = struct.Struct(">BBI")
_ASK_MANIFEST: Final = struct.Struct(">QIQ")
_MANIFEST: Final = struct.Struct(">QIQI")
_PART: Final = struct.Struct(">Iqq")
_ASK_DATA: Final = struct.Struct(">QIIqI")
_DATA: Final = struct.Struct(">QIIqB")
_ASK_STATE: Final = struct.Struct(">QIIQ")
_STATE: Final = struct.Struct(">QIIQQB")
_REFUSED: Final = struct.Struct(">QIB")


def _fields(message: Message) -> tuple[int, bytes, tuple[Buffer, ...]]:
    if isinstance(message, Data):
        fixed = _DATA.pack(message.number, message.group, message.uid, message.end, message.gaps)
        return 4, fixed, message.payload
    if isinstance(message, AskData):
        one = message
        return 3, _ASK_DATA.pack(one.number, one.group, one.uid, one.offset, one.bytes_max), ()
    if isinstance(message, State):
        part = message
        fixed = _STATE.pack(part.number, part.group, part.chunk, part.at, part.size, part.last)
        return 6, fixed, part.payload
    if isinstance(message, AskState):
        ask = message
        return 5, _ASK_STATE.pack(ask.number, ask.group, ask.chunk, ask.at), ()
    if isinstance(message, Manifest):
        parts = b"".join(_PART.pack(p.uid, p.log_start, p.next_offset) for p in message.parts)
        count = len(message.parts)
        return 2, _MANIFEST.pack(message.number, message.group, message.saved, count), (parts,)
    if isinstance(message, AskManifest):
        return 1, _ASK_MANIFEST.pack(message.number, message.group, message.applied), ()
    return 7, _REFUSED.pack(message.number, message.group, message.why), ()


def encode(message: Message) -> list[Buffer]:
    """The message's bytes as buffers; the payload is not copied."""
    kind, fixed, payload = _fields(message)
    checksum = crc32c(fixed)
    for buffer in payload:
        checksum = crc32c(buffer, checksum)
    return [_HEAD.pack(VERSION, kind, checksum) + fixed, *payload]


def decode(body: memoryview) -> Message:
    """The message; its payload is a view of `body`.

    Raises:
        PeerError: if these are not the bytes of a message, or not those that were sent.
    """
    if len(body) < _HEAD.size:
        raise PeerError(f"a catch-up message of {len(body)} bytes")
    version, kind, checksum = _HEAD.unpack_from(body)
    rest = body[_HEAD.size :]
    if version != VERSION:
        raise PeerError(f"a catch-up message of version {version}, this node knows {VERSION}")
    found = _DECODERS.get(kind)
    if found is None:
        raise PeerError(f"a catch-up message of kind {kind}")
    if crc32c(rest) != checksum:
        raise PeerError(f"a catch-up message of kind {kind} with a wrong checksum")
    fixed, make, has_payload = found
    if len(rest) < fixed.size or (not has_payload and len(rest) > fixed.size):
        raise PeerError(f"a catch-up message of kind {kind} and {len(rest)} bytes")
    payload = rest[fixed.size :]
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise PeerError(f"a catch-up answer with {len(payload)} bytes")
    message: Message = make(fixed.unpack_from(rest), payload)
    return message


def _manifest(fields: tuple[Any, ...], payload: memoryview) -> Manifest:
    number, group, saved, count = fields
    if count > PARTS_MAX or len(payload) != count * _PART.size:
        raise PeerError(f"a manifest of {count} parts in {len(payload)} bytes")
    parts = tuple(Part(*part) for part in _PART.iter_unpack(payload))
    for part in parts:
        if not 0 <= part.log_start <= part.next_offset:
            raise PeerError(f"a manifest with {part}")
    return Manifest(number, GroupId(group), Slot(saved), parts)


def _data(fields: tuple[Any, ...], payload: memoryview) -> Data:
    number, group, uid, end, gaps = fields
    if gaps > 1:
        raise PeerError(f"data with flags {gaps}")
    return Data(number, GroupId(group), uid, end, bool(gaps), (payload,))


def _ask_data(fields: tuple[Any, ...], _payload: memoryview) -> AskData:
    if fields[3] < 0 or not 0 < fields[4] <= ASKED_BYTES_MAX:
        raise PeerError(f"a question for {fields[4]} bytes at offset {fields[3]}")
    return AskData(*fields)


def _state(fields: tuple[Any, ...], payload: memoryview) -> State:
    number, group, chunk, at, size, last = fields
    if at + len(payload) > size or last > 1:
        raise PeerError(f"{len(payload)} bytes at {at} of a chunk of {size}")
    return State(number, GroupId(group), chunk, at, size, bool(last), (payload,))


def _refused(fields: tuple[Any, ...], _payload: memoryview) -> Refused:
    number, group, why = fields
    if why not in tuple(RefusalReason):
        raise PeerError(f"a refusal for reason {why}")
    return Refused(number, GroupId(group), RefusalReason(why))


_Make = Callable[[tuple[Any, ...], memoryview], Message]
_DECODERS: Final[Mapping[int, tuple[struct.Struct, _Make, bool]]] = {
    1: (_ASK_MANIFEST, lambda fields, _: AskManifest(*fields), False),
    2: (_MANIFEST, _manifest, True),
    3: (_ASK_DATA, _ask_data, False),
    4: (_DATA, _data, True),
    5: (_ASK_STATE, lambda fields, _: AskState(*fields), False),
    6: (_STATE, _state, True),
    7: (_REFUSED, _refused, False),
}
