"""What a replica remembers, and the few operations that all its parts share.

Nothing here knows its callers. The parts that decide (paxos/changes), those that only keep things
going (paxos/liveness) and the one that hands out messages (paxos/replica.py) all work on this. Who
may write which field is a table, tests/paxos/writers.py. The rules are those of docs/protocol.md.
"""

from collections.abc import Iterable, Mapping

import attrs

from paxos import entry as entries
from paxos.acceptor import Acceptor, Vote
from paxos.base import Base
from paxos.chain import ChainHash
from paxos.entry import BeMaster, Entry
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, GroupId, Incarnation, NodeId, Now, Slot
from paxos.learner import Learner
from paxos.lease import Lease
from paxos.messages import Accept, Commit, Prepare, Promise, StealAbort
from paxos.proposer import Proposer, Role
from paxos.quorum import is_quorum
from paxos.state.handover import Handover, Stage
from paxos.state.membership import Change
from paxos.state.peers import Peer
from paxos.state.rejoin import Allegation, Rejoin
from paxos.step import Notice, Send, Step
from paxos.timing import Timing


@attrs.frozen
class Recovered:
    """What a restart found on disk for one group; `votes` and `learned` only beyond `applied`.
    The first slot to be replayed is the next after the base's; without a base, slot 1."""

    promised: Ballot = BALLOT_ZERO
    votes: Mapping[Slot, Vote] = attrs.Factory(dict)
    learned: Mapping[Slot, Entry] = attrs.Factory(dict)
    voting: bool = True
    floor: Ballot = BALLOT_ZERO
    base: Base | None = None
    proven: Slot = SLOT_ZERO
    """All slots up to here are chosen. If that is beyond what can be replayed, damage has left a
    gap, and `votes` lacks what was voted there."""
    lost: Mapping[Slot, Ballot] = attrs.Factory(dict)
    """For slots in that gap, if it is known: the ballot of the vote that had the entry."""


class Core:
    """`heard` (boot time a node was last heard) and `incarnations` are shared by all groups."""

    def __init__(
        self,
        group: GroupId,
        me: NodeId,
        incarnation: Incarnation,
        members: Iterable[NodeId],
        timing: Timing,
        *,
        heard: dict[NodeId, int],
        incarnations: dict[NodeId, Incarnation],
        recovered: Recovered,
    ) -> None:
        self.group, self.me, self.incarnation = group, me, incarnation
        self.timing = timing
        self.heard, self.incarnations = heard, incarnations

        # The acceptor, the proposer, the learner and what is applied: each writes its own fields.
        self.acceptor = Acceptor(
            group=group,
            promised=max(recovered.promised, recovered.floor),
            votes=dict(recovered.votes),
            voting=recovered.voting,
            votes_bytes=sum(vote[1].size for vote in recovered.votes.values()),
        )
        self.proposer = Proposer()
        self.learner = Learner()
        self.lease = Lease()
        self.chain = ChainHash()
        self.round_seen = self.acceptor.promised.round
        self.commit_due = False
        """We have counted a quorum and told nobody yet."""

        self.members: tuple[NodeId, ...] = tuple(sorted(members))
        self.configured: Slot = SLOT_ZERO
        """The slot of the Config that made them the members."""
        self.contacts: tuple[NodeId, ...] = ()
        """Whom to ask besides the members. A node that begins a group knows for certain only its
        first members; of later ones it knows by hearsay, which must not count in a quorum."""
        self.changing: Change | None = None

        self.handover: Handover | None = None
        self.suspended: Slot = SLOT_ZERO
        """`susp`: the slot of our unresolved Steal; while set we do not act (R3, R7)."""
        self.settle_since = 0

        self.rejoin: Rejoin | None = None if recovered.voting else Rejoin()
        self.incomplete_to: Slot = SLOT_ZERO
        """One of two votes again but may lack what the other had voted for, up to this slot: the
        other's disk may have the only copy (changes/rejoin.py). 0: nothing is lacking."""
        self.verified: set[NodeId] = set()
        """Members among the witnesses that know of no promise we forgot: `can_vote` counts them."""
        self.witnesses: set[NodeId] = set()
        """Nodes that have told this life of ours what they remember of earlier ones. They have no
        more to tell (ADR 45)."""
        self.alleged: dict[NodeId, Allegation] = {}
        """Nodes that say that we have forgotten a promise: each is asked once more."""
        self.proven = recovered.proven
        """All slots up to here are chosen (`has_gap`)."""
        self.lost = dict(recovered.lost)
        """Chosen slots whose entry our log has lost, and the ballot of the vote that had it."""

        self.diverged: set[NodeId] = set()
        """Members whose log differs from ours: empty unless something is badly broken."""
        self.doubt = self.hopeless = False
        """Our log may be the wrong one; and no majority can clear it (changes/doubt.py)."""

        self.peers: dict[NodeId, Peer] = {}

    # -- what may be done ---------------------------------------------------------------------

    def acting(self, now: Now) -> bool:
        """Whether this node may answer for the group at this moment (R11, R12, R13)."""
        return (
            self.suspended == SLOT_ZERO
            and not self.doubt
            and self.lease.held_by(self.me, self.incarnation)
            and self.lease.safely_before_expiry(now, self.timing.margin_ns)
        )

    def ready(self) -> bool:
        """Whether we may propose: leading, and everything phase 1 found is applied."""
        proposer = self.proposer
        return (
            proposer.role is Role.LEADER
            and self.learner.applied >= proposer.recover_to
            and proposer.next <= proposer.hi
        )

    def can_propose(self, now: Now) -> bool:
        """Whether clients' commands may go into a new entry now (not while the window is full)."""
        return (
            len(self.proposer.in_flight) < self.timing.window
            and self.changing is None
            and (self.handover is None or self.serves_on(now))
            and self.ready()
            and self.acting(now)
        )

    def serves_on(self, now: Now) -> bool:
        """Whether a master that hands its group over still takes commands. It does, nearly to the
        end, if it only lets its lease run out (paxos/strategies)."""
        assert self.handover is not None
        last_ns = self.timing.last_commands_ns
        return (
            self.handover.stage is Stage.EXPIRING
            and self.acting(now)
            and self.lease.safely_before_expiry(now, self.timing.margin_ns + last_ns)
        )

    def can_vote(self) -> bool:
        """Whether we may promise and vote: not while rejoining or in doubt, nor before a quorum of
        the present members, counting us, has told us what it remembers of us (ADR 4), nor with a
        gap (ADR 46)."""
        known = is_quorum((*self.verified, self.me), self.members)
        at_odds = self.rejoin is not None or self.doubt or self.alleged
        return known and not at_odds and not self.has_gap()

    def speaks_for_the_chosen(self) -> bool:
        """Whether this member votes, and may tell others what was chosen: a vote of one of two that
        has just come back counts, but its disk is not a second copy yet (changes/rejoin.py)."""
        return self.can_vote() and not self.incomplete_to

    def has_gap(self) -> bool:
        """Whether our log lost votes for chosen slots, and we have not learned the entries again. A
        Promise would not report these votes, and another value might be chosen there (ADR 46)."""
        return self.learner.applied < self.proven

    @property
    def handing_to(self) -> NodeId | None:
        """The node the group is being handed to, from the drain until the Steal's fate is known."""
        return None if self.handover is None else self.handover.target

    def forwarding_to(self, now: Now) -> NodeId | None:
        """The node commands should go to instead of us, while we hand the group to it."""
        if self.handover is None or self.serves_on(now):
            return None
        return self.handover.target

    # -- what a proposer does -----------------------------------------------------------------

    def prepare(self, now: Now, step: Step) -> None:
        """Start phase 1 for all open slots, with a ballot that was never used before (R1).

        Our own Promise is one of the quorum, so a node that may not vote may not prepare: it would
        not report votes that it has forgotten (ADR 4, ADR 46).
        """
        assert self.me in self.members
        assert self.can_vote()
        ballot = Ballot(1 + max(self.round_seen, self.acceptor.promised.round), self.me)
        self.see(ballot)
        self.acceptor.promise_own(ballot, step)
        start = Slot(self.learner.applied + 1)
        self.proposer.start_preparing(ballot, start, self.members, now.boot_ns)
        message = Prepare(self.group, ballot, start)
        step.after.extend(Send(peer, message) for peer in self.others(self.members))
        own = Promise(self.group, ballot, self.acceptor.votes_from(start))
        step.after.append(Send(self.me, own))

    def place(self, now: Now, entry: Entry, step: Step) -> Slot:
        """Propose an entry in the next slot we own, and vote for it (R2)."""
        self.wake()
        proposer = self.proposer
        slot = proposer.place(entry, now.boot_ns)
        self.send_accept(slot, entry, self.others(proposer.members), step)
        self.commit_due = False  # the Accept carries what was counted
        # Not `can_vote`: this vote is new, in a ballot we prepared when we could vote, and it says
        # nothing of what may be forgotten. A node that rejoins casts no vote at all.
        if proposer.ballot >= self.acceptor.promised and self.rejoin is None:
            self.acceptor.vote_own(
                self.me, slot, proposer.ballot, entry, self.learner.applied, step
            )
        return slot

    def send_accept(self, slot: Slot, entry: Entry, to: Iterable[NodeId], step: Step) -> None:
        proposer = self.proposer
        message = Accept(self.group, proposer.ballot, slot, entry, proposer.lo, proposer.counted_to)
        step.before.extend(Send(peer, message) for peer in to)

    def flush_commit(self, step: Step) -> None:
        """Tell the members what we have counted that no Accept has carried yet."""
        self.commit_due = False
        proposer = self.proposer
        if proposer.role is Role.LEADER and proposer.counted_to >= proposer.lo:
            commit = Commit(self.group, proposer.ballot, proposer.lo, proposer.counted_to)
            step.before.extend(Send(peer, commit) for peer in self.others(proposer.members))

    def lease_entry(self, now: Now) -> Entry:
        expires = now.wall_ns + self.timing.lease_ns
        return entries.be_master(BeMaster(self.me, self.incarnation, self.lease.ver, expires))

    def step_down(self, now: Now, step: Step) -> None:
        """Give up the role, but neither the lease nor a suspension (R7). A handover or a change of
        members that has given nothing up yet is called off."""
        if self.proposer.role is Role.LEADER:
            step.notices.append(Notice(self.group, "stepped-down", f"{self.proposer.ballot}"))
        self.proposer.step_down()
        if self.changing is not None:
            self.call_off_change("stepped down", step)
        if self.handover is not None and self.handover.draining:
            self.call_off_handover("stepped down", step)

    def call_off_handover(self, reason: str, step: Step) -> None:
        """Call off a steal that has given nothing up yet: the master carries on."""
        handover = self.handover
        assert handover is not None
        assert handover.stage is not Stage.SENT
        abort = StealAbort(self.group, self.lease.ver, reason)
        step.before.append(Send(handover.target, abort))
        step.notices.append(Notice(self.group, "steal-called-off", reason))
        self.handover = None

    def call_off_change(self, reason: str, step: Step) -> None:
        """Call off a change of members that was not proposed yet."""
        self.changing = None
        step.notices.append(Notice(self.group, "change-called-off", reason))

    # -- what others write here ---------------------------------------------------------------

    def become_members(self, members: Iterable[NodeId], configured: Slot) -> None:
        """An applied Config, or a base that covers one, says who decides from now on (R10)."""
        self.members, self.configured = tuple(sorted(members)), configured
        if self.me in self.members:
            self.contacts = ()

    def ask_also(self, nodes: Iterable[NodeId]) -> None:
        """Nodes that may tell us something, though they are not members as far as we know."""
        self.contacts = tuple(nodes)

    def see(self, ballot: Ballot) -> None:
        """Our next ballot has to be above all ballots that we know of."""
        if ballot.round > self.round_seen:
            self.round_seen = ballot.round

    def wake(self) -> None:
        """Something has happened, or is about to: the timers must look again (liveness/live.py)."""

    # -- other nodes --------------------------------------------------------------------------

    def peer(self, node: NodeId) -> Peer:
        peer = self.peers.get(node)
        if peer is None:
            peer = self.peers[node] = Peer()
        return peer

    def others(self, members: tuple[NodeId, ...]) -> list[NodeId]:
        return [node for node in members if node != self.me]

    def others_to_ask(self) -> list[NodeId]:
        """All nodes that may tell us something: members and contacts."""
        others = self.others(self.members)
        return others + [node for node in self.others(self.contacts) if node not in others]

    def is_heard(self, node: NodeId, now: Now) -> bool:
        heard = self.heard.get(node)
        return heard is not None and now.boot_ns - heard < self.timing.heard_ns
