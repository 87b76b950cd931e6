"""The way of a command into a Paxos group's log: queue, propose, wait until applied, answer once.

One Intake per group and node, pure: time comes in, effects go out. For each command it chooses
between proposing here, forwarding to the node the group is being handed to (E17), queueing for a
group that is just being handed to us, and "ask there". What was proposed is never answered with a
definite failure (docs/protocol.md F2); what was forwarded once is never forwarded again.
"""

from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import chain
from typing import ClassVar, Final, NamedTuple, TypeAlias

import attrs

from broker.config import IntakeConfig
from broker.proposals.commands import is_fenced
from broker.proposals.group_commit import GroupCommit
from broker.proposals.successor import Successor
from paxos.changes import handover
from paxos.entry import Buffer, Entry
from paxos.ids import MS, NOBODY, NodeId, Now, Slot
from paxos.replica import Replica
from paxos.step import Step

JOINED_BYTES_MAX: Final = 4096
"""Commands of up to this many bytes on average are joined into one buffer when they share an entry:
it spares every later step work, which is worth more than one copy."""


class FailureReason(Enum):
    """Why a command was not carried out here. Only with UNKNOWN may it still be applied."""

    NOT_MASTER = "not master"
    UNKNOWN = "unknown"
    OVERLOADED = "overloaded"


@attrs.define
class Done:
    """Chosen, applied in order, and this node was still acting when that was checked (R14)."""

    result: bytes
    at_home: bool = False
    """Another node did it, and has a connection of this very producer
    (broker/producers/producer_connections.py)."""


@attrs.frozen
class NotDone:
    """Not answered here; `master` is the node to ask, if known."""

    why: FailureReason
    master: NodeId | None = None


Outcome: TypeAlias = Done | NotDone


@attrs.define(eq=False)
class Pending:
    """One command under way; `done` is called exactly once. For frequent commands, a subclass has
    `done` as a method, which saves two objects each."""

    chunks: tuple[Buffer, ...]
    size: int
    done: Callable[[Outcome], None]
    since_boot_ns: int = 0
    anywhere: bool = False
    """Whether to forward it to the master, wherever that is, even without a handover. An ordered
    command is forwarded only by a node that has handed the group over."""

    ordered: ClassVar[bool] = False
    """Whether it must not overtake others of its client, whatever way it takes."""
    forwarded_in: ClassVar[bool] = False
    """Whether another node forwarded it: it is returned there rather than forwarded again, where it
    might meet those behind it on their way here."""

    def overtakes(self) -> bool:
        """Whether a command that its client sent earlier was refused after this one arrived."""
        return False

    def misses_move(self, moved_ns: int, now_ns: int) -> bool:
        """Whether its client may still not know that the group moved then (ADR 50)."""
        return False


def _payload(batch: list[Pending]) -> tuple[Buffer, ...]:
    """Their payload as an entry: one buffer if they are small."""
    chunks = tuple(chain.from_iterable([pending.chunks for pending in batch]))
    count = len(batch)
    if count == len(chunks) > 1 and sum(map(len, chunks)) <= count * JOINED_BYTES_MAX:
        return (b"".join(chunks),)
    return chunks


HANDING: Final = 1
ORDERED: Final = 2
FIRST: Final = 4
"""A flag of a forwarded command, as a number (runtime/peers/peers.py)."""
LATE: Final = 8
"""Set by the receiving node: the client no longer waits."""
ASKS: Final = 16
"""No command, but a question how far the master has come (runtime.engine.read_index)."""


@attrs.frozen
class Forward:
    """Send this command to `to` over the peer link; its answer comes back through `settle`."""

    to: NodeId
    pending: Pending
    handing: bool
    """The group is being, or has just been, handed to `to`: the command should wait for it
    there."""
    ordered: bool = False
    """Once `to` has refused one of these, it also refuses those behind it ..."""
    first: bool = False
    """... up to the next one that says that nothing is in flight before it."""
    unaware: bool = False
    """The handover is long over: only clients that do not know of it need this."""

    @property
    def flags(self) -> int:
        return HANDING * self.handing | ORDERED * self.ordered | FIRST * self.first


class _ForwardedOut(Pending):
    """A command that must not be overtaken, while another node has it."""

    def __init__(self, intake: "Intake", pending: Pending, to: NodeId, number: int) -> None:
        self.intake, self.pending, self.to, self.number = intake, pending, to, number
        self.chunks, self.size, self.since_boot_ns = pending.chunks, pending.size, 0

    def overtakes(self) -> bool:
        return self.pending.overtakes()

    def done(self, outcome: Outcome) -> None:
        self.intake.on_forward_outcome(self, outcome)


class _ForwardedIn(Pending):
    """A command from another node that must not be overtaken."""

    ordered = forwarded_in = True
    anywhere = False

    def __init__(self, pending: Pending, origin: NodeId, refused: set[NodeId]) -> None:
        self.pending, self.origin, self.refused = pending, origin, refused
        self.chunks, self.size = pending.chunks, pending.size

    def overtakes(self) -> bool:
        return self.origin in self.refused

    def done(self, outcome: Outcome) -> None:
        if type(outcome) is NotDone:
            self.refused.add(self.origin)
        self.pending.done(outcome)


FORWARD_AGAIN_NS: Final = 20 * MS
"""How long before commands are sent again to a node that has refused one."""
FORWARD_PATIENCE_NS: Final = 3_000 * MS
"""How long a command may look for its master."""
COMMAND_BYTES_MAX: Final = 20 * 1024 * 1024


def _already_answered(_outcome: Outcome) -> None:
    """Its client has been answered."""


class _Route(NamedTuple):
    """`to` NOBODY: it waits for a master to be known."""

    to: NodeId
    handing: bool
    unaware: bool = False


class Intake:
    """`group_commit` is told what is in flight; a node's intakes share theirs.

    Ordered commands leave in the order in which they came, whatever way they take (F4).
    A command that is abroad (forwarded, outcome unknown) is not overtaken by one that goes another
    way, and takes its old place here if it comes back undone. If an outcome is not a success,
    waiting commands of the same client and partition are refused as well (`overtakes`).
    """

    def __init__(
        self, replica: Replica, config: IntakeConfig, group_commit: GroupCommit | None = None
    ) -> None:
        self.replica, self.config = replica, config
        self.group_commit = GroupCommit() if group_commit is None else group_commit
        self.queue: deque[Pending] = deque()
        self.queue_bytes = 0
        self.adopted: deque[Pending] = deque()
        self.adopted_bytes = 0
        self.proposed: dict[Slot, tuple[Entry, list[Pending]]] = {}
        self.proposed_bytes = 0
        self.forwards: list[Forward] = []
        """For the shell to send after each call; it empties the list."""
        self.suspect = False
        """Something was refused: a waiting command might overtake it."""
        self.closed = False
        self.forwarded = self.forwarded_bytes = self._forwarded_number = 0
        self._forwarded_to: NodeId = NOBODY
        self._returned: list[_ForwardedOut] = []
        self._returned_by: NodeId = NOBODY
        self._again_at = 0
        self._turned_away: set[NodeId] = set()
        """Nodes that had a command refused and may not know it yet."""
        self._declined_until = 0
        """The master keeps the group that we asked for: no need to wait for it until then."""
        self.successor = Successor(config)
        self.told: Callable[[], NodeId | None] = lambda: None
        """Who says that it is the master, where the log here names none."""
        self._handing: NodeId | None = None

    # -- commands in --------------------------------------------------------------------------

    def submit(self, now: Now, pending: Pending, *, anywhere: bool = False) -> None:
        """A command from a client of this node; `anywhere`: forward it to the master if need be."""
        pending.since_boot_ns = now.boot_ns
        replica = self.replica
        if replica.handover is None and self._handing is None and replica.acting(now):
            self.enqueue(pending)  # nearly always
            return
        if replica.handover is None and self._handing is not None:
            self.handover_seen(now)  # the Steal is applied in this very round: its grace begins
        self._handing = replica.forwarding_to(now) or self._handing
        if anywhere:
            pending.anywhere = True
        route = self._route(now, pending)
        if route is None:
            pending.done(NotDone(FailureReason.NOT_MASTER, self._holder(now)))
        elif route.to in (replica.me, NOBODY) or self.queue or not self._sent(now, pending, route):
            self.enqueue(pending)

    def _route(self, now: Now, pending: Pending) -> _Route | None:
        """Where a command has to go now; None: no node is known that would accept it."""
        replica = self.replica
        target = replica.forwarding_to(now)
        fenced = is_fenced(pending.chunks[0])
        if pending.forwarded_in and (target is not None or not replica.acting(now)):
            return None
        if target is not None and not fenced:
            return _Route(target, handing=True)
        if replica.acting(now):
            return _Route(replica.me, handing=False)  # a fenced one may wait until that is sure
        if fenced:
            return None
        holder = self._holder(now)
        successor = self.successor
        if holder in (None, successor.node) and successor.in_grace(now):
            return _Route(successor.node, handing=True)
        if not successor.is_missed_by(now, pending):
            return None
        if holder is not None and holder != replica.me:
            return _Route(holder, handing=False, unaware=pending.ordered)
        waits = pending.ordered and now.boot_ns - pending.since_boot_ns <= FORWARD_PATIENCE_NS
        return _Route(NOBODY, handing=False) if waits else None

    def _sent(self, now: Now, pending: Pending, route: _Route) -> bool:
        """Forward a command; False if it has to wait, for room or for one it must not overtake."""
        to, handing, unaware = route
        if not pending.ordered:
            self.forwards.append(Forward(to, pending, handing))
            return True
        first = not self.forwarded
        if self._returned or not (first or self._may_follow(to, pending.size)):
            return False
        if to == self._returned_by and now.boot_ns < self._again_at:
            return False
        self._forwarded_number += 1
        self.forwarded += 1
        self.forwarded_bytes += pending.size
        self._forwarded_to = to
        forwarded = _ForwardedOut(self, pending, to, self._forwarded_number)
        forward = Forward(to, forwarded, handing, ordered=True, first=first, unaware=unaware)
        self.forwards.append(forward)
        return True

    def _may_follow(self, to: NodeId, size: int) -> bool:
        """Nothing overtakes on one link; what is queued there is bounded like undecided
        commands."""
        fits = self.forwarded_bytes + size <= self.config.undecided_bytes_max
        return to == self._forwarded_to and fits

    def on_forward_outcome(self, forwarded: _ForwardedOut, outcome: Outcome) -> None:
        """The outcome of a forwarded command. A node that refuses one as not the master refuses
        those behind it, too, so they can all take their places again."""
        self.forwarded -= 1
        undone = type(outcome) is NotDone and outcome.why is FailureReason.NOT_MASTER
        if undone and not self.closed:
            self._returned.append(forwarded)
            self._returned_by = forwarded.to
            return
        self.forwarded_bytes -= forwarded.size
        if type(outcome) is NotDone:
            self.suspect = True
        forwarded.pending.done(outcome)

    def _take_back(self, now: Now) -> None:
        self._again_at = now.boot_ns + FORWARD_AGAIN_NS
        self.suspect = True  # they were not here at the last check
        returned, self._returned = sorted(self._returned, key=lambda one: -one.number), []
        for forwarded in returned:
            pending = forwarded.pending
            self.forwarded_bytes -= pending.size
            self.queue.appendleft(pending)
            self.queue_bytes += pending.size
        while self.queue and now.boot_ns - self.queue[0].since_boot_ns > FORWARD_PATIENCE_NS:
            pending = self.queue.popleft()
            self.queue_bytes -= pending.size
            self._return_to_senders([pending], FailureReason.NOT_MASTER, now)

    def submit_forwarded(
        self,
        now: Now,
        pending: Pending,
        refusal: NotDone | None = None,
        /,
        *,
        handing: bool,
        origin: NodeId = NOBODY,
        ordered: bool = False,
        first: bool = True,
        late: bool = False,
    ) -> None:
        """A command that another node forwarded; `handing`: it is just handing the group to us.
        With `late`, its client was told that the outcome is unknown, and has retried elsewhere.
        With a `refusal` neither it nor those behind it are accepted."""
        if ordered:
            if first:
                self._turned_away.discard(origin)
            pending = _ForwardedIn(pending, origin, self._turned_away)
        pending.since_boot_ns = now.boot_ns
        replica = self.replica
        ours = replica.forwarding_to(now) is None
        coming = handing and ours and now.boot_ns >= self._declined_until
        taken = coming or self.adopted or (ours and replica.acting(now))
        if late or pending.overtakes() or not taken:
            refusal = NotDone(FailureReason.NOT_MASTER, self._holder(now))
        if refusal is not None:
            pending.done(refusal)
        elif ours and replica.acting(now):
            self.enqueue(pending)
        elif self.adopted_bytes + pending.size > self.config.queue_bytes_max:
            pending.done(NotDone(FailureReason.OVERLOADED, None))
        else:
            self.adopted.append(pending)
            self.adopted_bytes += pending.size

    def enqueue(self, pending: Pending) -> None:
        """Let it wait for the next `flush`, which checks again whether this node is the master."""
        size = self.queue_bytes + pending.size
        if size > self.config.refuse_bytes_max and self.queue:
            pending.done(NotDone(FailureReason.OVERLOADED, self.replica.me))
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
        """Whether `flush` has anything to do."""
        waits = self.queue or self.adopted or self._returned
        return bool(waits) or self.replica.handover is not None

    @property
    def backlogged(self) -> bool:
        """Whether producers to this group should wait before they send more."""
        return self.queue_bytes + self.forwarded_bytes > self.config.backlog_bytes

    @property
    def room(self) -> int:
        """How many bytes may come before it is backlogged; 0 until much of a backlog is done."""
        waiting, limit = self.queue_bytes + self.forwarded_bytes, self.config.backlog_bytes
        return limit - waiting if waiting <= limit // 2 else 0

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of commands still to be proposed here, and their bytes."""
        return len(self.queue), self.queue_bytes

    def flush(self, now: Now, step: Step) -> None:
        """Propose what is queued, as far as the window allows; call it at the end of each round."""
        replica = self.replica
        if self._returned and not self.forwarded:
            self._take_back(now)
        while self.suspect:
            self._drop_overtakers()
        target = replica.forwarding_to(now)
        if target is not None or not replica.acting(now):
            self._send_queued(now)
            if target is None:
                return
            self._handing = target
            if not self.proposed:  # what is applied has been answered, too
                handover.try_to_send(replica, now, step)
            return
        if self.adopted:
            self.queue.extendleft(reversed(self.adopted))
            self.queue_bytes += self.adopted_bytes
            self.adopted.clear()
            self.adopted_bytes = 0
        if self.forwarded or not self.queue:
            return
        if self.proposed and replica.can_propose(now):
            self._look_for_outbid(now)
        while (
            self.queue
            and self._has_room()
            and self._ready_to_propose(now)
            and replica.can_propose(now)
        ):
            batch = self._take_batch()
            slot, entry = replica.propose(now, _payload(batch), step)
            self.group_commit.proposed(now, len(batch))
            assert slot not in self.proposed
            self.proposed[slot] = (entry, batch)
            self.proposed_bytes += entry.size

    def _look_for_outbid(self, now: Now) -> None:
        """Commands proposed at an older ballot of ours and not found at this one may still be
        chosen through others; nothing that waits may precede them before their client knows."""
        if next(reversed(self.proposed)) >= self.replica.proposer.next:
            self.forget_proposed(now)
            self._drop_overtakers()

    def _doubt_proposed(self, now: Now) -> None:
        """The outcome of one is unknown: then those behind it that are already proposed get the
        same answer. They may be in the log without it; their client retries both, in order."""
        for _, batch in self.proposed.values():
            for index, pending in enumerate(batch):
                if pending.overtakes():
                    batch[index] = Pending((), 0, _already_answered)
                    pending.done(NotDone(FailureReason.UNKNOWN, self._holder(now)))

    def _drop_overtakers(self) -> None:
        """Refuse what waits here behind something that was refused."""
        self.suspect = False
        found = [one for one in chain(self.queue, self.adopted) if one.overtakes()]
        if not found:
            return
        for kept, bytes_name in ((self.queue, "queue_bytes"), (self.adopted, "adopted_bytes")):
            left = [one for one in kept if not one.overtakes()]
            kept.clear()
            kept.extend(left)
            setattr(self, bytes_name, sum(one.size for one in left))
        for one in found:
            one.done(NotDone(FailureReason.OVERLOADED, self.replica.me))

    def _send_queued(self, now: Now) -> None:
        """Forward what waits here, as long as nothing is overtaken; refuse what no node accepts."""
        queued, self.queue, self.queue_bytes = self.queue, deque(), 0
        blocked = False
        while queued:
            pending = queued.popleft()
            route = self._route(now, pending)
            if route is None:
                self._return_to_senders([pending], FailureReason.NOT_MASTER, now)
                continue
            fenced = route.to == self.replica.me  # valid for this node only: it waits
            waits = fenced or route.to == NOBODY or (blocked and pending.ordered)
            if waits or not self._sent(now, pending, route):
                blocked = blocked or not fenced
                self.queue.append(pending)
                self.queue_bytes += pending.size

    def _has_room(self) -> bool:
        return not self.proposed or self.proposed_bytes < self.config.undecided_bytes_max

    def _ready_to_propose(self, now: Now) -> bool:
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
        """The state machine has applied `slot`; `results` are its commands' results, in order."""
        waiting = self.proposed.pop(slot, None)
        if waiting is None:
            return
        ours, batch = waiting
        self.proposed_bytes -= ours.size
        self.group_commit.answered(now, len(batch))
        if ours.same_as(entry) and self.replica.acting(now):
            assert len(results) == len(batch)
            for pending, result in zip(batch, results, strict=True):
                pending.done(Done(result))
        else:
            self._return_to_senders(batch, FailureReason.UNKNOWN, now)
            self._doubt_proposed(now)

    @property
    def rests(self) -> bool:
        """Whether `tick` has nothing to do: nothing waits here, and no handover is going on."""
        return not (
            self.queue
            or self.proposed
            or self.adopted
            or self._returned
            or self._handing is not None
            or self.replica.handover is not None
        )

    def tick(self, now: Now) -> None:
        """Answer what no longer has a prospect: this node is not master any more, or never was."""
        replica = self.replica
        self.handover_seen(now)
        if self.queue and not replica.acting(now) and replica.handover is None:
            queued, self.queue = self.queue, deque()
            lost: list[Pending] = []
            for pending in queued:
                (lost if self._route(now, pending) is None else self.queue).append(pending)
            self.queue_bytes = sum(one.size for one in self.queue)
            self._return_to_senders(lost, FailureReason.NOT_MASTER, now)
        if self.proposed and not replica.acting(now) and not replica.suspended:
            self.forget_proposed(now)
        if self.adopted and (
            now.boot_ns - self.adopted[0].since_boot_ns > self.config.adopt_wait_ns
        ):  # with those behind it, which would overtake it
            self._return_adopted(now)

    def _return_adopted(self, now: Now) -> None:
        adopted, self.adopted, self.adopted_bytes = list(self.adopted), deque(), 0
        self._return_to_senders(adopted, FailureReason.NOT_MASTER, now)

    def close(self, now: Now) -> None:
        """This node gives the group up: everything that waits is answered, once."""
        self.closed = True
        returned = [one.pending for one in sorted(self._returned, key=lambda one: one.number)]
        queued = [*returned, *self.queue, *self.adopted]
        self.queue, self.adopted, self._returned = deque(), deque(), []
        self.queue_bytes = self.adopted_bytes = 0
        self._return_to_senders(queued, FailureReason.NOT_MASTER, now)
        self.forget_proposed(now)

    def forget_proposed(self, now: Now) -> None:
        """The outcome of what we proposed can no longer be known. Also call it when the group's
        state came from a peer: slots that it covers are not applied here."""
        proposed, self.proposed, self.proposed_bytes = self.proposed, {}, 0
        for _, batch in proposed.values():
            self.group_commit.forgotten(len(batch))
            self._return_to_senders(batch, FailureReason.UNKNOWN, now)

    def steal_refused(self, now: Now) -> None:
        """The master keeps the group after all: what it forwarded goes back with a hint."""
        self._declined_until = now.boot_ns + self.config.adopt_wait_ns
        self._return_adopted(now)

    def handover_seen(self, now: Now) -> None:
        """Call it after each step: if a handover succeeded, forward to its target for a while."""
        replica = self.replica
        if replica.handing_to is not None:
            self._handing = replica.handing_to
        elif self._handing is not None:
            if replica.lease.holder in (self._handing, NOBODY):
                self.successor.took_over(now, self._handing)
            self._handing = None

    def _return_to_senders(self, batch: list[Pending], why: FailureReason, now: Now) -> None:
        holder = self._holder(now)
        self.suspect = True
        for pending in batch:
            pending.done(NotDone(why, holder))

    def _holder(self, now: Now) -> NodeId | None:
        lease = self.replica.lease
        if lease.holder == NOBODY or lease.free(now, 0):
            return self.told()
        return lease.holder
