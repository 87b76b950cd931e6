"""One replica driven by hand: tests give it events and look at the effects it asks for."""

import random

import attrs

from paxos import invariants
from paxos.entry import Entry, batch
from paxos.ids import BALLOT_ZERO, MS, Ballot, GroupId, Incarnation, NodeId, Now, Slot
from paxos.liveness import timers as paxos_timers
from paxos.messages import Accept, Accepted, Learned, Message, Progress, Promise, Trimmed
from paxos.multigroup import MultiGroup
from paxos.replica import Replica
from paxos.state.core import Recovered
from paxos.step import Send, Step
from paxos.timing import Timing

GROUP = GroupId(1)
START_NS = 10_000 * MS
LIFE = Incarnation(1)
"""A member's incarnation unless the test gives another."""


def ballot(round_: int, node: int) -> Ballot:
    return Ballot(round_, NodeId(node))


def some(text: str) -> Entry:
    return batch((text.encode(),))


@attrs.define(eq=False)
class Member:
    """Node `me` of a group. Its clocks agree and move only when a test moves them."""

    multi: MultiGroup
    replica: Replica
    now_ns: int = START_NS

    @property
    def now(self) -> Now:
        return Now(self.now_ns, self.now_ns)

    def give(self, sender: int, message: Message) -> Step:
        """Deliver a message; what a Learned teaches counts as asked for."""
        step = Step()
        if isinstance(message, Learned | Trimmed):
            self.replica.peer(NodeId(sender)).asked = True
        self.multi.on_message(self.now, NodeId(sender), message, step)
        invariants.check(self.replica, self.now)
        return step

    def tick(self, ms: float = 20) -> Step:
        self.now_ns += int(ms * MS)
        step = Step()
        paxos_timers.tick(self.replica, self.now, step)
        invariants.check(self.replica, self.now)
        return step

    def verify(self) -> None:
        """Every other member says that it remembers nothing of us: now we may vote."""
        for other in self.replica.others(self.replica.members):
            self.give(other, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))

    def prepare(self) -> Step:
        step = Step()
        self.replica.prepare(self.now, step)
        return step

    def lead(self, votes: tuple[tuple[Slot, Ballot, Entry], ...] = ()) -> Step:
        """Prepare and receive promises from all; the others report `votes`."""
        self.prepare()
        mine = self.replica.proposer.ballot
        own = self.replica.acceptor.votes_from(self.replica.proposer.lo)
        self.give(self.replica.me, Promise(GROUP, mine, own))
        step = Step()
        for other in self.replica.others(self.replica.members):
            if self.replica.proposer.role.value == "P":
                step = self.give(other, Promise(GROUP, mine, votes))
        return step

    def place(self, entry: Entry) -> Step:
        """Propose without asking for a lease."""
        step = Step()
        self.replica.place(self.now, entry, step)
        return step

    def accepted(self, slot: int, *by: int) -> list[Step]:
        mine = self.replica.proposer.ballot
        return [self.give(node, Accepted(GROUP, mine, Slot(slot))) for node in by]


def member(
    me: int = 0,
    nodes: int = 3,
    *,
    incarnation: int = LIFE,
    recovered: Recovered | None = None,
    timing: Timing | None = None,
    verified: bool = True,
) -> Member:
    multi = MultiGroup(NodeId(me), Incarnation(incarnation), timing or Timing(), random.Random(me))
    replica = multi.add(GROUP, [NodeId(n) for n in range(nodes)], recovered)
    one = Member(multi, replica)
    replica.replayed(one.now, Step())
    if verified:
        one.verify()
    return one


def messages(sends: list[Send], *kinds: type) -> list[Message]:
    return [send.message for send in sends if not kinds or isinstance(send.message, kinds)]


def accept(round_: int, node: int, slot: int, entry: Entry, counted: int = 0) -> Accept:
    return Accept(GROUP, ballot(round_, node), Slot(slot), entry, Slot(1), Slot(counted))
