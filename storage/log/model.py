"""The values that go in and out of the log: configuration, batches, recovery, statistics."""

from enum import Enum
from typing import Final

import attrs

from paxos.entry import Buffer, Entry
from paxos.ids import SLOT_ZERO, Ballot, GroupId, Slot
from storage.format import SEGMENT_BYTES_MAX, Place
from storage.log.log_state import Cut
from storage.log.walk import Hole

GROUPS_MAX: Final = 4096
"""A limit because every segment begins with the state of all groups."""

SEGMENT_BYTES_MIN: Final = 4096


class Durability(Enum):
    FSYNC = "fsync"
    UNSAFE_NONE = "unsafe-none"
    """No fdatasync at all: a crash of the process loses nothing, a power cut loses what was
    acknowledged."""


@attrs.frozen(kw_only=True)
class WalConfig:
    segment_bytes: int = attrs.field(
        default=64 << 20,
        validator=attrs.validators.and_(
            attrs.validators.ge(SEGMENT_BYTES_MIN), attrs.validators.le(SEGMENT_BYTES_MAX)
        ),
    )
    durability: Durability = Durability.FSYNC


@attrs.frozen
class RecoveredGroup:
    """What one group starts from. `votes` and `learned` hold slots above `proven` only.

    Every slot above `base`, the slot of its checkpoint, up to `applied` can be read and replayed.
    The log holds slots from `retained_from` on. `proven` is above `applied` only if damage has left
    a gap: slots up to it are chosen, and those that can be read need not be learned from peers.

    Not `founded`: slots between `base` and the log were retired, and the checkpoint that held them
    is damaged. The group is durably non-voting, and needs its state from a peer.
    """

    promised: Ballot
    voting: bool
    floor: Ballot
    applied: Slot
    retained_from: Slot
    votes: dict[Slot, tuple[Ballot, Entry]]
    learned: dict[Slot, Entry]
    proven: Slot
    base: Slot = SLOT_ZERO
    founded: bool = True
    lost: dict[Slot, Ballot] = attrs.Factory(dict)
    """For slots in the gap, if it is known: the ballot of the vote whose record is damaged."""


@attrs.frozen(kw_only=True)
class Recovered:
    """`cut` is None after a clean stop, and after a crash that tore nothing.

    `damage` is what was not known before; the groups concerned are now durably non-voting.
    `unattributed`: the damage may also have hit records of a group that has none left.
    """

    groups: dict[GroupId, RecoveredGroup]
    records: int
    bytes_read: int
    end: Place
    cut: Cut | None
    damage: tuple[Hole, ...] = ()
    started_at: int = 1
    """The segment from which the log was read."""
    unattributed: bool = False


@attrs.frozen(eq=False)
class Part:
    """One gathered write into one segment."""

    number: int
    offset: int
    buffers: list[Buffer]

    @property
    def end(self) -> int:
        """The offset after it."""
        return self.offset + sum(map(len, self.buffers))


@attrs.frozen(eq=False)
class WriteBatch:
    """What was staged between two calls of `take`; it belongs to the writer until `written`."""

    parts: tuple[Part, ...]
    start: Place
    end: Place
    pieces: int
    """Records and segment headers."""
    size: int
    """Bytes."""


@attrs.frozen(kw_only=True)
class WalStatistics:
    durability: Durability
    bytes_staged: int
    """Since the start."""
    records: int
    batches: int
    syncs: int
    segments: int
    bytes_unwritten: int
    """Staged and not yet reported written: held in memory."""
    synced: Place
    end: Place
    bytes_left: int
    """How many more fit into the segments that are ready."""
