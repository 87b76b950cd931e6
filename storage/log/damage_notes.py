"""What a running node notes of damage that may concern any group: which records it did not hit.

A restart that meets such damage does not know which slots had records in it. So for every slot that
was open then it trusts no older record: a later vote may be lost (index.GroupState.lose_open). The
node that was running when the damage was found knew better, for its index tells where the latest
record of each slot lies. It notes the slots whose latest record lies before the damage. Without
that, every restart would forget entries that the life before still had and counted as intact. If
that happened to all members one after the other, nobody would have them (docs/adr/0046).

The note is the payload of the DAMAGE record. It lists what is there and not what is lost, so an
omission costs entries and nothing worse. It holds only if every record before it in the log is
there: a record that was cut off may have been a later one of the same slot.
"""

from collections.abc import Iterable
from itertools import islice
from struct import Struct
from typing import Final, TypeAlias

from paxos.entry import Buffer
from paxos.ids import GroupId
from storage.format import Place
from storage.log.index import GroupState

Untouched: TypeAlias = dict[GroupId, list[range]]
"""Slots of each group whose latest record lies before the damage."""

RANGES_MAX: Final = 8
"""Per group, those with the highest slots: open slots are among them."""
GROUPS_MAX: Final = 512
"""A note for more groups would cost more than it saves; the others do without."""
_RANGE: Final = Struct(">IQQ")


def encode(groups: Iterable[GroupState], start: Place) -> bytes:
    """The note for damage that begins at `start`."""
    return b"".join(
        _RANGE.pack(state.group, slots.start, slots.stop)
        for state in islice(groups, GROUPS_MAX)
        for slots in islice(state.ranges_before(start), RANGES_MAX)
    )


def decode(payload: Buffer) -> Untouched:
    """The note of a DAMAGE record; {} if it has none."""
    found: Untouched = {}
    whole = len(payload) - len(payload) % _RANGE.size
    for group, start, stop in _RANGE.iter_unpack(memoryview(payload)[:whole]):
        found.setdefault(GroupId(group), []).append(range(start, stop))
    return found
