"""The proposer: its role, its ballot, the slots it owns under that ballot, and what is in flight.

It owns lo..hi: the only slots in which this node may propose under `ballot` (R2). A Steal gives
everything above its slot away for ever (R4), and a Config closes the ballot at its slot (R10).
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

import attrs

from paxos.entry import Entry
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, NodeId, Slot
from paxos.quorum import is_quorum

SLOT_MAX: Final = Slot(2**62)
USED_MAX: Final = 16
"""How many of our ballots are remembered, to tell late answers from invented ones."""


class Role(Enum):
    FOLLOWER = "F"
    PREPARING = "P"
    LEADER = "L"


class Transition(Enum):
    """What may change a role."""

    PREPARE = "prepare"
    QUORUM_PROMISED = "quorum promised"
    TAKE_OVER = "take over"
    STEP_DOWN = "step down"


NEXT_ROLE: Final[Mapping[tuple[Role, Transition], Role]] = {
    (Role.FOLLOWER, Transition.PREPARE): Role.PREPARING,
    (Role.PREPARING, Transition.PREPARE): Role.PREPARING,
    (Role.LEADER, Transition.PREPARE): Role.PREPARING,  # only to settle an unresolved Steal
    (Role.PREPARING, Transition.QUORUM_PROMISED): Role.LEADER,
    (Role.FOLLOWER, Transition.TAKE_OVER): Role.LEADER,
    (Role.PREPARING, Transition.TAKE_OVER): Role.LEADER,
    (Role.LEADER, Transition.TAKE_OVER): Role.LEADER,  # M -> N -> M under one ballot
    (Role.FOLLOWER, Transition.STEP_DOWN): Role.FOLLOWER,
    (Role.PREPARING, Transition.STEP_DOWN): Role.FOLLOWER,
    (Role.LEADER, Transition.STEP_DOWN): Role.FOLLOWER,
}
"""Anything that is not in the table is a bug, and raises."""


@attrs.define(eq=False)
class InFlight:
    """One proposed, undecided slot."""

    entry: Entry
    sent_boot_ns: int
    sends: int = 1
    votes: set[NodeId] = attrs.Factory(set)
    chosen: bool = False

    def sent_again(self, boot_ns: int) -> None:
        self.sent_boot_ns = boot_ns
        self.sends += 1


@attrs.define(kw_only=True, eq=False)
class Proposer:
    role: Role = Role.FOLLOWER
    ballot: Ballot = BALLOT_ZERO
    """BALLOT_ZERO while a follower."""
    members: tuple[NodeId, ...] = ()
    """cfg(ballot): the members whose votes count for this ballot (R10)."""
    lo: Slot = SLOT_ZERO
    hi: Slot = SLOT_ZERO
    next: Slot = SLOT_ZERO
    """The slot of the next proposal."""
    recover_to: Slot = SLOT_ZERO
    """The last slot that phase 1 found: nothing new is proposed before it is applied (R4b)."""
    in_flight: dict[Slot, InFlight] = attrs.Factory(dict)
    promises: dict[NodeId, tuple[tuple[Slot, Ballot, Entry], ...]] = attrs.Factory(dict)
    counted_to: Slot = SLOT_ZERO
    """Every slot of lo..counted_to was seen accepted by a quorum at `ballot`, by us (R17)."""
    since_boot_ns: int = 0
    _used: deque[Ballot] = attrs.Factory(lambda: deque(maxlen=USED_MAX))
    _counted_ahead: set[Slot] = attrs.Factory(set)

    def _change_role(self, transition: Transition) -> None:
        self.role = NEXT_ROLE[(self.role, transition)]

    def start_preparing(
        self, ballot: Ballot, start: Slot, members: tuple[NodeId, ...], boot_ns: int
    ) -> None:
        self._change_role(Transition.PREPARE)
        self._used.append(ballot)
        self.ballot, self.members = ballot, members
        self.lo = self.next = start
        self.hi = Slot(start - 1)  # nothing may be proposed before a quorum has promised
        self.since_boot_ns = boot_ns
        self._clear()

    def has_used(self, ballot: Ballot) -> bool:
        """Whether this node has used the ballot in this life, and not long ago."""
        return ballot in self._used

    def on_promise(self, sender: NodeId, votes: tuple[tuple[Slot, Ballot, Entry], ...]) -> bool:
        """Note a promise; returns whether a quorum has promised."""
        self.promises[sender] = votes
        return is_quorum(self.promises, self.members)

    def found(self) -> dict[Slot, Entry]:
        """Per slot, the entry of the vote at the highest ballot in all promises."""
        best: dict[Slot, tuple[Ballot, Entry]] = {}
        for votes in self.promises.values():
            for slot, ballot, entry in votes:
                if slot >= self.lo and (slot not in best or ballot > best[slot][0]):
                    best[slot] = (ballot, entry)
        return {slot: entry for slot, (_, entry) in best.items()}

    def lead(self, boot_ns: int) -> None:
        self._change_role(Transition.QUORUM_PROMISED)
        self.hi = SLOT_MAX
        self.since_boot_ns = boot_ns

    def start_at(self, slot: Slot) -> None:
        """Skip slots that we have learned since the Prepare: they are chosen already."""
        assert not self.in_flight
        assert slot >= self.lo
        self.lo = self.next = slot
        self.counted_to = Slot(slot - 1)

    def recovers(self) -> None:
        """All that phase 1 found is proposed again: apply it before anything new (R4b)."""
        self.recover_to = Slot(self.next - 1)

    def take_over(
        self, slot: Slot, ballot: Ballot, members: tuple[NodeId, ...], boot_ns: int
    ) -> None:
        """A Steal chosen at `slot` gave us `ballot` for all later slots: no Prepare (R5, R6)."""
        self._change_role(Transition.TAKE_OVER)
        self._used.append(ballot)
        self.ballot, self.members = ballot, members
        self.lo = self.next = Slot(slot + 1)  # never our old `next` under this ballot (R6b)
        self.hi = SLOT_MAX
        self.recover_to = slot
        self.since_boot_ns = boot_ns
        self._clear()

    def step_down(self) -> None:
        self._change_role(Transition.STEP_DOWN)
        self.ballot = BALLOT_ZERO
        self.members = ()
        self.lo = self.next = Slot(1)
        self.hi = SLOT_ZERO
        self._clear()

    def close_at(self, slot: Slot) -> None:
        """Give up every slot above `slot` under this ballot, whatever happens (R4, R10)."""
        assert self.lo <= slot <= self.hi
        self.hi = slot

    def place(self, entry: Entry, boot_ns: int) -> Slot:
        """Put an entry into the next slot we own (R2: one value per ballot and slot)."""
        slot = self.next
        assert self.role is Role.LEADER
        assert self.lo <= slot <= self.hi, f"slot {slot} is outside {self.lo}..{self.hi}"
        assert slot not in self.in_flight
        self.next = Slot(slot + 1)
        self.in_flight[slot] = InFlight(entry, boot_ns)
        return slot

    def on_accepted(self, sender: NodeId, slot: Slot) -> Entry | None:
        """Count a vote; returns the entry when this vote gets it chosen."""
        flight = self.in_flight.get(slot)
        if flight is None or flight.chosen:
            return None
        flight.votes.add(sender)
        if not is_quorum(flight.votes, self.members):
            return None
        flight.chosen = True
        self._count(slot)
        return flight.entry

    def send_again(self) -> None:
        """Retransmit at the next tick whatever is undecided."""
        for flight in self.in_flight.values():
            flight.sends, flight.sent_boot_ns = 1, 0

    def done(self, slot: Slot, entry: Entry) -> None:
        """The slot is applied. If it was learned from others before our votes were counted it
        counts as well: what we proposed there is what was chosen, so any vote at our ballot is
        for it (the reason behind R17), and later slots must not wait for it."""
        flight = self.in_flight.pop(slot, None)
        if flight is not None and not flight.chosen and flight.entry.same_as(entry):
            self._count(slot)

    def _count(self, slot: Slot) -> None:
        if slot != self.counted_to + 1:
            self._counted_ahead.add(slot)
            return
        self.counted_to = slot
        while self._counted_ahead and self.counted_to + 1 in self._counted_ahead:
            self.counted_to = Slot(self.counted_to + 1)
            self._counted_ahead.remove(self.counted_to)

    def _clear(self) -> None:
        self.in_flight = {}
        self.promises = {}
        self.counted_to = Slot(self.lo - 1)
        self._counted_ahead = set()
