"""Frames between nodes: u32 length, u8 kind, body (runtime.peers.peers explains the kinds)."""

import struct
from enum import IntEnum
from typing import Final

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
