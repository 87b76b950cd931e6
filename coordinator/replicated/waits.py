"""The remaining waits that a mastership records for the next one: the command and its bytes.

A wait is stored as its remaining time, not as its end: it stands still while no coordinator
listens, and clocks of different nodes are never compared. A record is complete for one moment. A
member that is not in it was heard of lately, and has its full time.
"""

import struct
from typing import Final, NamedTuple

import attrs

from coordinator.limits import WAITS_MAX
from coordinator.model import ConsumerGroupId, MemberId
from coordinator.replicated.codec import I32, U8, U32, CommandError, Reader, Writer
from coordinator.timers import TimerKind, Wait

KIND_NUMBERS: Final = {
    TimerKind.SESSION: 1,
    TimerKind.REBALANCE: 2,
    TimerKind.SYNC: 3,
    TimerKind.CONSUMER: 4,
    TimerKind.REVOCATION: 5,
}
"""In the bytes. The log has no lent ids, so there is no wait for one after a move."""
_HEAD: Final = struct.Struct(">Bh")
_TAIL: Final = struct.Struct(">iB")
_KINDS: Final = {number: kind for kind, number in KIND_NUMBERS.items()}


class WaitFor(NamedTuple):
    """What a group waits for: something of one member, or, with NO_MEMBER, of all."""

    kind: TimerKind
    member: MemberId


class GroupWaits(NamedTuple):
    """`generation`: the one the group waits in, for waits other than a member's session."""

    group: ConsumerGroupId
    generation: int
    waits: tuple[tuple[WaitFor, Wait], ...]


@attrs.frozen
class TimeLeft:
    """Replaces the previous record for all groups of the log."""

    groups: tuple[GroupWaits, ...]


def write_time_left(writer: Writer, command: TimeLeft) -> None:
    writer.pack(U32, len(command.groups))
    for group, generation, waits in command.groups:
        writer.text(group)
        writer.pack(I32, generation)
        write_waits(writer, waits)


def read_time_left(reader: Reader) -> TimeLeft:
    groups = []
    for _ in range(reader.count(WAITS_MAX, 10)):
        name, generation = ConsumerGroupId(reader.text()), reader.number(I32)
        groups.append(GroupWaits(name, generation, read_waits(reader)))
    if len({one.group for one in groups}) != len(groups):
        raise CommandError("a group is there twice")
    return TimeLeft(tuple(groups))


def write_waits(writer: Writer, waits: tuple[tuple[WaitFor, Wait], ...]) -> None:
    """There may be thousands at once: each becomes one piece."""
    writer.pack(U32, len(waits))
    for (kind, member), (left_ms, graced) in waits:
        name = member.encode()
        writer.raw(_HEAD.pack(KIND_NUMBERS[kind], len(name)) + name + _TAIL.pack(left_ms, graced))


def read_waits(reader: Reader) -> tuple[tuple[WaitFor, Wait], ...]:
    waits: dict[WaitFor, Wait] = {}
    count = reader.count(WAITS_MAX, 8)
    for _ in range(count):
        kind, member = _KINDS.get(reader.number(U8)), MemberId(reader.text())
        left_ms, graced = reader.numbers(_TAIL)
        if kind is None or left_ms < 0 or graced > 1:
            raise CommandError("an impossible wait")
        waits[WaitFor(kind, member)] = Wait(left_ms, bool(graced))
    if len(waits) != count:
        raise CommandError("a wait is there twice")
    return tuple(waits.items())
