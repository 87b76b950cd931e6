"""Frames between nodes: u32 length, u8 kind, body (runtime.peers.peers says what each is for).

The body of FORWARDED is here, too: what became of a forwarded command.
"""

import struct
from enum import IntEnum
from typing import Final

from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from paxos.codec import PeerError
from paxos.ids import NodeId

RESULT_BYTES_MAX: Final = 1024 * 1024
_FORWARDED: Final = struct.Struct(">QBi")
_WHY: Final = tuple(FailureReason)


def encode_outcome(number: int, outcome: Outcome) -> bytes:
    if isinstance(outcome, Done):
        return _FORWARDED.pack(number, 0, 0 if outcome.at_home else -1) + outcome.result
    master = -1 if outcome.master is None else outcome.master
    return _FORWARDED.pack(number, 1 + _WHY.index(outcome.why), master)


def decode_outcome(body: memoryview) -> tuple[int, Outcome]:
    """Raises PeerError for what no node says."""
    if len(body) < _FORWARDED.size:
        raise PeerError(f"an outcome of {len(body)} bytes")
    number, code, master = _FORWARDED.unpack_from(body)
    result = body[_FORWARDED.size :]
    if code == 0 and len(result) <= RESULT_BYTES_MAX:
        return number, Done(bytes(result), at_home=master >= 0)
    if not 1 <= code <= len(_WHY):
        raise PeerError(f"an outcome of code {code}")
    return number, NotDone(_WHY[code - 1], None if master < 0 else NodeId(master))


FRAME: Final = struct.Struct(">IB")


class Kind(IntEnum):
    HELLO = 1
    PAXOS = 2
    PING = 3
    PONG = 4
    FORWARD = 5
    FORWARDED = 6
    LIFE = 7
    VERDICT = 8
    MASTERS = 9
    CATCH_UP = 10
    REFUSED = 11
    CONSOLE = 12
    TERMS = 13
    GROUP_REQUEST = 14
    GROUP_ANSWER = 15


LINK_SINCE: Final = dict.fromkeys(range(1, 16), 5)
"""The version of the link from which each kind may be sent (`Outgoing.version`). GROUP_REQUEST is
also told of in PING's flags, because it came after the format of HELLO."""


PING: Final = struct.Struct(">qqB")
DRAINING: Final = 1
LOW: Final = 2
KNOWS_TERMS: Final = 4
"""Older nodes send TERMS only to who says that."""
KNOWS_GROUP_REQUESTS: Final = 8
KNOWS: Final = KNOWS_TERMS | KNOWS_GROUP_REQUESTS
DISK_SHIFT: Final = 4  # the upper half of the flags is the class of the disk (storage.disk.health)
PONG: Final = struct.Struct(">qqq")
FORWARD: Final = struct.Struct(">QIBq")


def framed(kind: Kind, body: bytes) -> bytes:
    return FRAME.pack(1 + len(body), kind) + body


def ping_flags(*, draining: bool = False, low: bool = False, disk_class: int = 0) -> int:
    flags = (DRAINING if draining else 0) | (LOW if low else 0) | KNOWS
    return flags | disk_class << DISK_SHIFT
