"""The way of a command into a group's log: queue, propose, wait until applied, answer once.

One Intake per group and node, pure: time comes in, effects go out. It decides, for each command,
between proposing here, forwarding to the node the group is being handed to (E17), queueing for a
group that is just being handed to us, and "ask there". What was proposed is never answered with a
definite failure (protocol.md section 4); what was forwarded once is never forwarded again.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import chain
from typing import Final, TypeAlias

import attrs

from broker.commands import is_fenced
from broker.gathering import Gathering
from paxos import handover
from paxos.entry import Buffer, Entry
from paxos.ids import MS, NOBODY, NodeId, Now, Slot
from paxos.replica import Replica
from paxos.step import Step

JOINED_BYTES_MAX: Final = 4096
"""Commands of up to so many bytes on average are joined into one buffer when they share an entry:
every later step has less to do, which is worth more than copying them again."""


class Why(Enum):
    """Why a command was not carried out here. Only UNKNOWN may yet come true."""

    NOT_MASTER = "not master"
    UNKNOWN = "unknown"
    OVERLOADED = "overloaded"


@attrs.define
class Done:
    """Chosen, applied in order, and we were still acting when we looked (R14)."""

    result: bytes
    at_home: bool = False
    """Another node did it, and has a connection of this very producer's (broker/homes.py)."""


@attrs.frozen
class Elsewhere:
    """Not answered here; `master` is who to ask, where known."""

    why: Why
    master: NodeId | None = None


Outcome: TypeAlias = Done | Elsewhere


@attrs.define(eq=False)
class Pending:
    """One command on its way; `done` is called exactly once. Where commands are many, a class of
    its own has `done` as a method, and saves two objects for each."""

    chunks: tuple[Buffer, ...]
    size: int
    done: Callable[[Outcome], None]
    since_boot_ns: int = 0


def _payload(batch: list[Pending]) -> tuple[Buffer, ...]:
    """What they are together: one buffer, where they are small."""
    chunks = tuple(chain.from_iterable([pending.chunks for pending in batch]))
    count = len(batch)
    if count == len(chunks) > 1 and sum(map(len, chunks)) <= count * JOINED_BYTES_MAX:
        return (b"".join(chunks),)
    return chunks


@attrs.frozen
class Forward:
    """Send this command to `to` over the peer link; its answer comes back by `settle`."""

    to: NodeId
    pending: Pending
    handing: bool
    """The group is being, or has just been, handed to `to`: it should wait for it if need be."""


@attrs.frozen(kw_only=True)
class IntakeConfig:
    entry_bytes_max: int = 1024 * 1024
    """Soft: an entry takes commands until it holds this much; one larger command goes alone."""
    queue_bytes_max: int = 32 * 1024 * 1024
    """While a group has more than this waiting, who produces to it is not read (`crowded`). What is
    there already is taken all the same: a refusal in the middle of a pipeline lets later requests
    overtake. It is also the most that other nodes may leave here for a group on its way."""
    refuse_bytes_max: int = 128 * 1024 * 1024
    """More is refused, whoever brings it: the last resort, for clients who send and go away."""
    undecided_bytes_max: int = 4 * 1024 * 1024
    """Proposed and not yet applied; beyond it commands wait here, where they can still be batched
    and forwarded, instead of in the links and the log (one entry is always allowed)."""
    batch_wait_ns: int = 0
    batch_bytes_min: int = 64 * 1024
    """While entries are under way, commands wait for company so long, or until they are so many
    bytes (E2); a lone command never waits. Without a wait a round's commands still share entries,
    and rounds grow with the load: waiting was measured to save nothing there."""
    gather_ns: int = 1 * MS
    """What `Gathering` is told: how long those who were answered have to ask again."""
    forward_grace_ns: int = 1_000 * MS
    """How long after a steal the old master goes on forwarding (kafka.md section 5)."""
    adopt_wait_ns: int = 1_000 * MS
    """How long forwarded commands wait for the group that is being handed to us."""


COMMAND_BYTES_MAX: Final = 20 * 1024 * 1024


class Intake:
    """`gathering` is told what is under way; a node's intakes share theirs."""

    def __init__(
        self, replica: Replica, config: IntakeConfig, gathering: Gathering | None = None
    ) -> None:
        self.replica, self.config = replica, config
        self.gathering = Gathering() if gathering is None else gathering
        self.queue: deque[Pending] = deque()
        self.queue_bytes = 0
        self.adopted: deque[Pending] = deque()
        self.adopted_bytes = 0
        self.proposed: dict[Slot, tuple[Entry, list[Pending]]] = {}
        self.proposed_bytes = 0
        self.forwards: list[Forward] = []
        """To be sent by the shell after each call; it empties the list."""
        self._grace_to: NodeId = NOBODY
        self._grace_until = 0
        self._handing: NodeId | None = None

    # -- commands in --------------------------------------------------------------------------

    def submit(self, now: Now, pending: Pending, *, anywhere: bool = False) -> None:
        """A command from a client of this node; `anywhere` asks to forward it to the master."""
        pending.since_boot_ns = now.boot_ns
        replica = self.replica
        if replica.handover is None and self._handing is None and replica.acting(now):
            self.enqueue(pending)  # nearly always
            return
        if replica.handover is None and self._handing is not None:
            self.handover_seen(now)  # the Steal is applied in this very round: its grace begins
        target = replica.forwarding_to(now)
        fenced = is_fenced(pending.chunks[0])
        if target is not None and not fenced:
            self._handing = target
            self.forwards.append(Forward(target, pending, handing=True))
        elif replica.acting(now):
            self.enqueue(pending)  # if fenced, perhaps until it is known who is master
        elif fenced:
            pending.done(Elsewhere(Why.NOT_MASTER, self._holder(now)))
        else:
            holder = self._holder(now)
            grace = holder in (None, self._grace_to) and now.boot_ns < self._grace_until
            if grace:
                self.forwards.append(Forward(self._grace_to, pending, handing=True))
            elif anywhere and holder not in (None, replica.me):
                assert holder is not None
                self.forwards.append(Forward(holder, pending, handing=False))
            else:
                pending.done(Elsewhere(Why.NOT_MASTER, holder))

    def submit_forwarded(self, now: Now, pending: Pending, *, handing: bool) -> None:
        """A command another node forwarded; `handing`: it is handing the group to us just now."""
        pending.since_boot_ns = now.boot_ns
        replica = self.replica
        if replica.acting(now) and replica.forwarding_to(now) is None:
            self.enqueue(pending)
        elif handing or self.adopted:
            if self.adopted_bytes + pending.size > self.config.queue_bytes_max:
                pending.done(Elsewhere(Why.OVERLOADED, None))
                return
            self.adopted.append(pending)
            self.adopted_bytes += pending.size
        else:
            pending.done(Elsewhere(Why.NOT_MASTER, self._holder(now)))

    def enqueue(self, pending: Pending) -> None:
        """Let it wait for the next `flush`, which asks again whether we are the master."""
        size = self.queue_bytes + pending.size
        if size > self.config.refuse_bytes_max and self.queue:
            pending.done(Elsewhere(Why.OVERLOADED, self.replica.me))
            return
        self.queue.append(pending)
        self.queue_bytes = size

    def last_waiting(self) -> Pending | None:
        """The youngest command that waits for the log here."""
        if self.queue:
            return self.queue[-1]
        return self.proposed[max(self.proposed)][1][-1] if self.proposed else None

    def waits(self, pending: Pending) -> bool:
        return any(one is pending for one in self.queue) or any(
            one is pending for _, batch in self.proposed.values() for one in batch
        )

    # -- proposing ----------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether `flush` has anything to look at."""
        return bool(self.queue or self.adopted or self.replica.handover is not None)

    @property
    def crowded(self) -> bool:
        """Whether those who produce to this group should wait before they send more."""
        return self.queue_bytes > self.config.queue_bytes_max

    @property
    def room(self) -> int:
        """How many bytes may come before it is crowded; 0 until much of a crowd has gone."""
        waiting, limit = self.queue_bytes, self.config.queue_bytes_max
        return limit - waiting if waiting <= limit // 2 else 0

    @property
    def waiting(self) -> tuple[int, int]:
        """The commands that are still to be proposed here, and their bytes."""
        return len(self.queue), self.queue_bytes

    def flush(self, now: Now, step: Step) -> None:
        """Propose what is queued, as far as the window allows; call at the end of each round."""
        replica = self.replica
        target = replica.forwarding_to(now)
        if target is not None:
            self._handing = target
            queued, self.queue, self.queue_bytes = self.queue, deque(), 0
            for pending in queued:
                if is_fenced(pending.chunks[0]):  # of use to nobody else: it waits
                    self.queue.append(pending)
                    self.queue_bytes += pending.size
                else:
                    self.forwards.append(Forward(target, pending, handing=True))
            if not self.proposed:  # what is applied has been answered, too
                handover.try_to_send(replica, now, step)
            return
        if self.adopted and replica.acting(now):
            self.queue.extendleft(reversed(self.adopted))
            self.queue_bytes += self.adopted_bytes
            self.adopted.clear()
            self.adopted_bytes = 0
        while self.queue and self._has_room() and self._ripe(now) and replica.can_propose(now):
            batch = self._take_batch()
            slot, entry = replica.propose(now, _payload(batch), step)
            self.gathering.proposed(now, len(batch))
            outbid = self.proposed.pop(slot, None)
            if outbid is not None:  # proposed there at an older ballot, and not found at ours
                self.proposed_bytes -= outbid[0].size
                self.gathering.forgotten(len(outbid[1]))
                self._bounce(outbid[1], Why.UNKNOWN, now)
            self.proposed[slot] = (entry, batch)
            self.proposed_bytes += entry.size

    def _has_room(self) -> bool:
        return not self.proposed or self.proposed_bytes < self.config.undecided_bytes_max

    def _ripe(self, now: Now) -> bool:
        return (
            not self.proposed
            or self.queue_bytes >= self.config.batch_bytes_min
            or now.boot_ns - self.queue[0].since_boot_ns >= self.config.batch_wait_ns
        )

    def _take_batch(self) -> list[Pending]:
        batch = [self.queue.popleft()]
        size = batch[0].size
        while self.queue and size + self.queue[0].size <= self.config.entry_bytes_max:
            pending = self.queue.popleft()
            size += pending.size
            batch.append(pending)
        self.queue_bytes -= size
        return batch

    # -- answers ------------------------------------------------------------------------------

    def applied(self, now: Now, slot: Slot, entry: Entry, results: list[bytes]) -> None:
        """The state machine has applied `slot`; `results` are those of its commands in order."""
        waiting = self.proposed.pop(slot, None)
        if waiting is None:
            return
        ours, batch = waiting
        self.proposed_bytes -= ours.size
        self.gathering.answered(now, len(batch))
        if ours.same_as(entry) and self.replica.acting(now):
            assert len(results) == len(batch)
            for pending, result in zip(batch, results, strict=True):
                pending.done(Done(result))
        else:
            self._bounce(batch, Why.UNKNOWN, now)

    @property
    def rests(self) -> bool:
        """Whether `tick` has nothing to look at: nobody waits here, and no handover goes on."""
        return not (
            self.queue
            or self.proposed
            or self.adopted
            or self._handing is not None
            or self.replica.handover is not None
        )

    def tick(self, now: Now) -> None:
        """Answer what can no longer be answered well: we are not master any more, or never were."""
        replica = self.replica
        self.handover_seen(now)
        if self.queue and not replica.acting(now) and replica.handover is None:
            queued, self.queue, self.queue_bytes = list(self.queue), deque(), 0
            self._bounce(queued, Why.NOT_MASTER, now)
        if self.proposed and not replica.acting(now) and not replica.suspended:
            self.forget_proposed(now)
        while self.adopted and (
            now.boot_ns - self.adopted[0].since_boot_ns > self.config.adopt_wait_ns
        ):
            pending = self.adopted.popleft()
            self.adopted_bytes -= pending.size
            pending.done(Elsewhere(Why.NOT_MASTER, self._holder(now)))

    def close(self, now: Now) -> None:
        """This node gives the group up: whoever waits is told, once."""
        queued = [*self.queue, *self.adopted]
        self.queue, self.adopted = deque(), deque()
        self.queue_bytes = self.adopted_bytes = 0
        self._bounce(queued, Why.NOT_MASTER, now)
        self.forget_proposed(now)

    def forget_proposed(self, now: Now) -> None:
        """Nobody can say any more what has become of what we proposed. Call it as well when the
        group's state came from a peer: slots that it covers are not applied here."""
        proposed, self.proposed, self.proposed_bytes = self.proposed, {}, 0
        for _, batch in proposed.values():
            self.gathering.forgotten(len(batch))
            self._bounce(batch, Why.UNKNOWN, now)

    def steal_refused(self, now: Now) -> None:
        """The master keeps the group after all: what it forwarded goes back with a hint."""
        adopted, self.adopted, self.adopted_bytes = list(self.adopted), deque(), 0
        self._bounce(adopted, Why.NOT_MASTER, now)

    def handover_seen(self, now: Now) -> None:
        """Call after each step: if a handover ended well, forward to its target for a while."""
        replica = self.replica
        if replica.handing_to is not None:
            self._handing = replica.handing_to
        elif self._handing is not None:
            if replica.lease.holder in (self._handing, NOBODY):
                self._grace_to = self._handing
                self._grace_until = now.boot_ns + self.config.forward_grace_ns
            self._handing = None

    def _bounce(self, batch: list[Pending], why: Why, now: Now) -> None:
        holder = self._holder(now)
        for pending in batch:
            pending.done(Elsewhere(why, holder))

    def _holder(self, now: Now) -> NodeId | None:
        lease = self.replica.lease
        if lease.holder == NOBODY or lease.free(now, 0):
            return None
        return lease.holder
