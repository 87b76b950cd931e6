"""Admission: before a node votes, its peers confirm that it still has its own data directory.

If a directory is empty, or an old copy, it lacks promises and votes that its node once made. The
node cannot know that. So at each start it says which incarnation last used its directory and how
far its log goes (Life), and the others compare that (Verdict):

* With the registry, which every node has on its disk: the incarnation registered last must be in
  the directory's past. A node registers only after it was admitted, or has durably stopped voting.
* With how far its log went when they last heard of it. This finds a copy taken while the same
  incarnation was running, and a tail that was lost in a power cut and merely looks torn. They have
  that on their disks, too (storage.witness): otherwise two old copies of three, restored while all
  nodes were down, would be a majority that does not know what it has forgotten.
* A directory without any record must be a node's first one: unknown to every node that has voted in
  a group of its, or taken part in this life. Promises of earlier lives do not count (ADR 16).

A node that learns that it has forgotten something becomes non-voting in all its groups, and comes
back by the rule of paxos.changes.rejoin. Until this is settled, a node sends nothing in any group.
It goes on asking peers that have not answered: a late verdict is better than none.

One false message must not have that effect (docs/adr/0045). A verdict only counts as the answer to
a question, and if it is consistent. A verdict that would cost this node its votes, or stop it, must
come twice: after the first one the node takes part in nothing and asks again, as it asked when it
started. It believes the claim if a second node says the same, or if the node that said it is not
heard any more or has restarted. How far a log goes must also be said twice: peers keep that on
their disks, and it will be used against the node that it is about.

How many must answer: usually as many members of the registry's group as are a majority together
with this node; more would keep a cluster that has lost a node from restarting. Nodes with an empty
directory that do not take part yet only count if all have answered. For an empty directory: all of
[peers], or one that knows better. Then every quorum that it may ever have been part of has a member
among those that answer, whichever nodes have its groups. So a new cluster begins when all its nodes
are up, and none of them comes late and seems to have forgotten something. An empty directory that
was admitted asks no more: its log is no longer empty.

A node that is not a founder need not ask. It begins every group that it becomes a member of as
non-voting (runtime.balancing.hosting), as if it had been a member and had forgotten everything; so
a new node and one with a replaced disk are treated alike. The set of nodes may change while it
asks.

A node of a new cluster cannot be mistaken for one that has forgotten something. A node answers on
its own link, which begins with its own Life. So a node can only be admitted (and begin to have a
log) by peers that have heard before that its directory was empty, and that remember it.
"""

import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import attrs

from balancer.registry.records import Node
from paxos.codec import PeerError
from paxos.ids import INCARNATION_MAX, INCARNATION_ZERO, Incarnation, NodeId
from paxos.quorum import quorum_size
from storage.errors import DirectoryRefused
from storage.format import Place
from storage.lives import BELIEVED_MAX

_LIFE: Final = struct.Struct(">QQQB")
_VERDICT: Final = struct.Struct(">QBQ")
WAIT_FOR_OTHERS_NS: Final = 2_000_000_000
"""Many times the time in which nodes that start together find one another. Only a cluster that
starts as a whole, and without one of its nodes, waits for this long."""
_SETTLED: Final = 1
_ASKS: Final = 2


class Judgement(IntEnum):
    KNOWN = 1
    FORGETFUL = 2
    """The directory is not the one that the node had, or not all of it."""
    OUTDATED = 3
    """The incarnation itself was used before: the node must not even run."""


@attrs.frozen
class Life:
    """What a node says about itself. `previous` is 0 if the directory has no record."""

    incarnation: Incarnation
    previous: Incarnation
    place: Place
    """How far its log goes, as found at the start or written since."""
    settled: bool
    asks: bool
    """Whether it wants a verdict."""

    def encode(self) -> bytes:
        flags = (_SETTLED if self.settled else 0) | (_ASKS if self.asks else 0)
        return _LIFE.pack(self.incarnation, self.previous, self.place, flags)

    @classmethod
    def decode(cls, body: memoryview) -> "Life":
        if len(body) != _LIFE.size:
            raise PeerError(f"a life of {len(body)} bytes")
        incarnation, previous, place, flags = _LIFE.unpack(body)
        if flags & ~(_SETTLED | _ASKS):
            raise PeerError(f"a life with flags {flags}")
        if not previous < incarnation < INCARNATION_MAX:
            raise PeerError(f"a life {incarnation} after {previous}")
        settled, asks = bool(flags & _SETTLED), bool(flags & _ASKS)
        return cls(Incarnation(incarnation), Incarnation(previous), place, settled, asks)


@attrs.frozen
class Verdict:
    """The answer to the Life of an incarnation; `known` is the one registered last."""

    incarnation: Incarnation
    judgement: Judgement
    known: Incarnation

    def encode(self) -> bytes:
        return _VERDICT.pack(self.incarnation, self.judgement, self.known)

    @classmethod
    def decode(cls, body: memoryview) -> "Verdict":
        if len(body) != _VERDICT.size:
            raise PeerError(f"a verdict of {len(body)} bytes")
        incarnation, judgement, known = _VERDICT.unpack(body)
        if not 1 <= judgement <= len(Judgement):
            raise PeerError(f"a verdict of kind {judgement}")
        return cls(Incarnation(incarnation), Judgement(judgement), Incarnation(known))


class Claim(NamedTuple):
    """A peer has said that this node has forgotten something, or must not run: when, and in which
    incarnation of its own."""

    since_boot_ns: int
    life: Incarnation | None
    verdict: Verdict


class Admission:
    """`nodes` is the registry's list. `untouched`: whether our log has nothing of this life, and
    nothing but promises of earlier ones in the groups that a node was founded with.

    `quorum_sets`: sets of nodes; enough of each must answer. `witnessed`: what earlier incarnations
    of this node have heard.
    """

    def __init__(
        self,
        me: NodeId,
        incarnation: Incarnation,
        previous: Incarnation,
        *,
        quorum_sets: Callable[[], Iterable[Collection[NodeId]]],
        nodes: Callable[[], Mapping[NodeId, Node]],
        untouched: Callable[[NodeId], bool],
        witnessed: Mapping[NodeId, tuple[Incarnation, Place]] = MappingProxyType({}),
    ) -> None:
        self.me, self.incarnation, self.previous = me, incarnation, previous
        self._nodes, self._untouched = nodes, untouched
        self._quorum_sets = quorum_sets
        self._known_by: set[NodeId] = set()
        self._met: dict[NodeId, Incarnation] = {}
        """Nodes of whose empty directory we heard while our own log was untouched."""
        self._blank: set[NodeId] = set()
        """Nodes whose directory is empty, and that do not take part yet."""
        self._unknown: dict[NodeId, Incarnation] = {}
        """The last life of each node of which we said that it has forgotten something, until that
        life takes part and asks no more: then it has noted durably that it does not vote."""
        self._witnessed = dict(witnessed)
        self._last_lives: dict[NodeId, tuple[Incarnation, Place]] = {}
        """How far each node's log goes according to its last Life; believed once it is repeated."""
        self._claims: dict[NodeId, Claim] = {}
        self._asked: set[NodeId] = set()
        """Nodes that were asked and have not answered yet."""
        self._found: Place | None = None
        """How far our log went when we first said so."""
        self._settled: set[NodeId] = set()
        """Peers that take part themselves, according to their last Life."""
        self._first_look_ns: int | None = None
        self._has_waited = False
        self.forgetful = False
        self.outlived_by: Incarnation | None = None
        """A later incarnation of this node that peers know: the next start must begin above it."""
        self.settled = self._is_known()
        """Admitted, or durably non-voting: this node may take part."""
        self.noted = False
        """Whether the directory says so (storage.lives). Only then are peers told that this node
        takes part: what they witness of a life can then be held against older copies."""

    @property
    def asks(self) -> bool:
        """Whether a verdict that is still missing could change something."""
        if self.forgetful:
            return False
        if self._claims:
            return True
        return not self.settled or (self.previous > 0 and not self._others() <= self._known_by)

    @property
    def doubted(self) -> bool:
        """Whether a peer has made a claim that would cost this node its votes: until it is decided,
        this node takes part in nothing."""
        return bool(self._claims)

    @property
    def waits_for(self) -> int:
        """How many more nodes must say that they know this directory."""
        return 0 if self.settled else self._missing()

    def _others(self) -> set[NodeId]:
        return {node for one_set in self._quorum_sets() for node in one_set} - {self.me}

    def _is_known(self) -> bool:
        """Whether enough nodes have answered, and are not all old copies. A peer that has just
        started as well may be as old a copy as this node: its answer alone is not enough until
        other nodes, which may remember more, have had the time to come up."""
        if self.forgetful or self._missing():
            return False
        return (
            not self._others() - self._known_by
            or not self._settled.isdisjoint(self._known_by)
            or self._has_waited
        )

    def _missing(self) -> int:
        """How many more nodes must answer, for the set that lacks most answers."""
        return max((self._missing_of(frozenset(one)) for one in self._quorum_sets()), default=0)

    def _missing_of(self, one_set: frozenset[NodeId]) -> int:
        others = one_set - {self.me}
        if not self.previous:
            needed = len(others)
        elif self.me in one_set:
            needed = len(one_set) // 2
        else:
            needed = quorum_size(one_set)
        known_by = self._known_by & others
        if self.previous and known_by != others:
            known_by -= self._blank
        return max(0, needed - len(known_by))

    def life(self, place: Place) -> Life:
        """Our own Life. After a claim it is the same as at the start, because peers judge by how
        far our log goes, and it goes further now."""
        if self._found is None:
            self._found = place
        if self._claims:
            return Life(self.incarnation, self.previous, self._found, settled=False, asks=True)
        settled = self.settled and self.noted
        return Life(self.incarnation, self.previous, place, settled, self.asks)

    def asked(self, node: NodeId) -> None:
        """Take note that our Life was sent to a node."""
        if self.asks:
            self._asked.add(node)

    # -- judging others -----------------------------------------------------------------------

    def judge(self, node: NodeId, life: Life) -> Verdict:
        registered = self._nodes().get(node)
        known = Incarnation(0) if registered is None else registered.incarnation
        judgement = self._judgement(node, life, known)
        if judgement is Judgement.FORGETFUL:
            self._unknown[node] = life.incarnation
        return Verdict(life.incarnation, judgement, known)

    def _judgement(self, node: NodeId, life: Life, known: Incarnation) -> Judgement:
        if life.incarnation < known:
            return Judgement.OUTDATED
        seen, reached = self._witnessed.get(node, (life.incarnation, life.place))
        # A log whose past lacks a life that took part is a copy of an older one, perhaps longer. So
        # is one that begins a life before it: a start is later than all in the directory's past.
        lacks = life.place < reached or 0 < life.previous < seen
        if seen > life.incarnation or (seen < life.incarnation and lacks):
            return Judgement.FORGETFUL
        if life.previous and self._unknown.get(node) == life.previous:
            return Judgement.FORGETFUL
        if known:
            # A life that we called forgetful may have registered before it heard of that.
            registered = life.incarnation == known and self._unknown.get(node) != known
            mine = registered or life.previous >= known
            return Judgement.KNOWN if mine else Judgement.FORGETFUL
        if life.previous:
            return Judgement.KNOWN
        if self._untouched(node):
            self._met[node] = life.incarnation
        met = self._met.get(node) == life.incarnation
        return Judgement.KNOWN if met else Judgement.FORGETFUL

    def hear(self, node: NodeId, life: Life) -> None:
        """Take in a peer's Life: whether it takes part, and if so, how far its log goes."""
        self._blank.discard(node)
        if not life.settled:
            self._settled.discard(node)
            if not life.previous:
                self._blank.add(node)
            return
        self._settled.add(node)
        self.settled |= self._is_known()
        if not life.asks and self._unknown.get(node) == life.incarnation:
            del self._unknown[node]
        self.witness(node, life)

    def witness(self, node: NodeId, life: Life) -> None:
        """Take note of how far a settled node's log goes: the lower of its last two values, so that
        one false value is not kept, and two false ones are corrected by the next two."""
        if self._unknown.get(node) == life.incarnation:
            return  # else an old copy would be compared with itself
        before = self._last_lives.get(node)
        self._last_lives[node] = (life.incarnation, life.place)
        if before is not None and before[0] == life.incarnation:
            self._witnessed[node] = (life.incarnation, min(before[1], life.place))

    @property
    def witnessed(self) -> dict[NodeId, tuple[Incarnation, Place]]:
        """What to keep on the disk: a copy."""
        return dict(self._witnessed)

    # -- answers of others --------------------------------------------------------------------

    def on_verdict(
        self, node: NodeId, verdict: Verdict, boot_ns: int = 0, life: Incarnation | None = None
    ) -> None:
        """Take in an answer of a node, in its incarnation `life`; this may change `settled`,
        `doubted` and `forgetful`.

        Raises:
            PeerError: no honest node gives this answer.
            DirectoryRefused: this incarnation was used before.
        """
        if verdict.incarnation != self.incarnation or not self.asks or node not in self._others():
            return
        self._check(verdict)
        if node not in self._asked:
            return  # it answers no question of ours
        self._asked.discard(node)
        claim = self._claims.get(node)
        if claim is not None and claim.life != life:  # after a restart it may have forgotten it
            self._believe(node)
        elif verdict.judgement is Judgement.KNOWN:
            self._claims.pop(node, None)
            self._known_by.add(node)
            self.settled |= self._is_known()
        else:
            said_before = bool(self._claims)  # by the same node, or by another
            self._claims[node] = Claim(boot_ns, life, verdict)
            if said_before:
                self._believe(node)

    def tick(
        self, boot_ns: int, patience_ns: int, is_heard: Callable[[NodeId, Incarnation | None], bool]
    ) -> None:
        """Believe the claim of a node that cannot be asked again: it may have been the only one to
        know. `is_heard`: whether a node is heard, in that incarnation. After WAIT_FOR_OTHERS_NS
        also stop waiting for nodes that do not come up.

        Raises:
            DirectoryRefused: this incarnation was used before.
        """
        if self._first_look_ns is None:
            self._first_look_ns = boot_ns
        self._has_waited = boot_ns - self._first_look_ns >= WAIT_FOR_OTHERS_NS
        self.settled |= self._is_known()
        for node, claim in self._claims.items():
            if boot_ns - claim.since_boot_ns > patience_ns and not is_heard(node, claim.life):
                self._believe(node)
                return

    def _check(self, verdict: Verdict) -> None:
        """Refuse a verdict that contradicts this node's Life (`_judgement`).

        Raises:
            PeerError: it does.
        """
        known, judgement = verdict.known, verdict.judgement
        outdated = judgement is Judgement.OUTDATED
        known_of = known in (INCARNATION_ZERO, self.incarnation) or self.previous >= known
        if outdated != (self.incarnation < known) or (
            judgement is Judgement.KNOWN and not known_of
        ):
            raise PeerError(f"a verdict {judgement.name} of one that knows life {known}")

    def _believe(self, node: NodeId) -> None:
        verdict = self._claims[node].verdict
        self._claims.clear()
        if verdict.judgement is Judgement.FORGETFUL:
            self.forgetful, self.settled = True, False  # until it is durable that we do not vote
            return
        raise DirectoryRefused(self._outlived(node, verdict.known))

    def _outlived(self, node: NodeId, known: Incarnation) -> str:
        """Keep the number for the next start, if it leaves room for later ones; returns what the
        operator must do."""
        story = (
            f"node {node} knows incarnation {known} of this node, and this is {self.incarnation}: "
            "the directory is an old copy or empty, and the clock was ahead once or is behind now. "
        )
        if known > BELIEVED_MAX:
            return f"{story}That number cannot be right: look for what is wrong with node {node}"
        self.outlived_by = known
        return (
            f"{story}Check the clock and start again: the node then begins a later life and learns "
            "from its peers"
        )
