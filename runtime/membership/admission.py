"""Is this the directory this node has always had? The peers are asked before it votes.

A directory that is empty, or an old copy, knows less than its node once promised and voted for. It
cannot know that itself, so every node says at each start which incarnation used its directory last
and how far its log goes (Life), and the others compare (Verdict):

* with the registry, which every node has on its disk: the incarnation registered last must be in
  the directory's past. A node registers only after it was admitted or has durably stopped voting;
* with how far its log went when they heard of it last: this finds a copy taken while the same
  incarnation was running, and a tail that was lost with the power and looks merely torn. They have
  that on their disks, too (storage.witness): two old copies of three, put back while all nodes were
  down, would otherwise be a majority that knows of nothing it has forgotten;
* and a directory without any record must be somebody's first one: known to nobody who has a log.

Whoever is told that it has forgotten something becomes non-voting in all its groups and comes back
by the rule of paxos.rejoin. Until that is settled, a node says nothing in any group. It goes on
asking those who have not answered: better late than never.

One wrong word must not do that (docs/adr/0045). A verdict counts as the answer to a question, if it
is possible. What would cost this node its votes, or its life, has to be said twice: from the first
time on it takes part in nothing, and asks again, as it asked when it started. It is believed when a
second node says so as well, and when the one that said it is not heard any more or was born again.
How far a log goes has to be said twice, too: the word is kept on the disk, and will be held against
the node that it is about.

How many have to answer. Usually as many members of the registry's group as make a majority with
this node: more would keep a cluster from restarting that has lost a node. For an empty directory
all of [peers], or one that knows better: then every quorum it may ever have been part of has a
member among those who answer, whichever nodes its groups are on. So a new cluster begins when all
its nodes are up, and none of them comes late and is thought to have forgotten something. An empty
directory that was admitted asks no further: its log is not empty any more.

A node that is no founder need not ask. Whatever group it becomes a member of, it begins that as one
that does not vote (runtime.balancing.hosting), as if it had been there and had forgotten all; so a
new node, and one whose disk was replaced, are the same thing. Which nodes there are may change
while it asks.

No node of a new cluster can be mistaken for one that has forgotten: a node answers on its own link,
which begins with its own Life, so it cannot be admitted (and begin to have a log) by somebody who
has not heard it say before that its directory is empty, and who remembers that.
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
"""As long as nodes that are started together need to find one another, many times over. Only a
cluster that starts as a whole, without one of its nodes, waits for so long."""
_SETTLED: Final = 1
_ASKS: Final = 2


class Judgement(IntEnum):
    KNOWN = 1
    FORGETFUL = 2
    """This directory is not the one the node had, or not all of it."""
    OUTDATED = 3
    """The incarnation itself was used before: such a node must not even run."""


@attrs.frozen
class Life:
    """What a node says of itself. `previous` is 0 where the directory holds no record."""

    incarnation: Incarnation
    previous: Incarnation
    place: Place
    """How far its log goes: what it found at its start, or has written since."""
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
    """The answer to the Life of one incarnation; `known` is the one registered last."""

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
    """A peer says that this node has forgotten something, or must not run: when, and in which life
    of its own."""

    since_boot_ns: int
    life: Incarnation | None
    verdict: Verdict


class Admission:
    """`nodes` is the registry's list, `untouched` whether our own log has no record of a group.

    `quorum_sets`: sets of nodes, of each of which enough have to answer. `witnessed`: what an
    earlier life of ours has heard.
    """

    def __init__(
        self,
        me: NodeId,
        incarnation: Incarnation,
        previous: Incarnation,
        *,
        quorum_sets: Callable[[], Iterable[Collection[NodeId]]],
        nodes: Callable[[], Mapping[NodeId, Node]],
        untouched: Callable[[], bool],
        witnessed: Mapping[NodeId, tuple[Incarnation, Place]] = MappingProxyType({}),
    ) -> None:
        self.me, self.incarnation, self.previous = me, incarnation, previous
        self._nodes, self._untouched = nodes, untouched
        self._quorum_sets = quorum_sets
        self._known_by: set[NodeId] = set()
        self._met: dict[NodeId, Incarnation] = {}
        """Whose empty directory we heard of while our own log was untouched."""
        self._witnessed = dict(witnessed)
        self._last_lives: dict[NodeId, tuple[Incarnation, Place]] = {}
        """How far each node's log goes by its last word, which is believed when said again."""
        self._claims: dict[NodeId, Claim] = {}
        self._asked: set[NodeId] = set()
        """Whose answer is on its way."""
        self._found: Place | None = None
        """How far our log went when we said so for the first time."""
        self._settled: set[NodeId] = set()
        """Peers that take part themselves, by their last word."""
        self._first_look_ns: int | None = None
        self._has_waited = False
        self.forgetful = False
        self.outlived_by: Incarnation | None = None
        """A later life of this node that the peers know: the next start must begin above it."""
        self.settled = self._is_known()
        """Admitted, or durably non-voting: this node may take part."""

    @property
    def asks(self) -> bool:
        """Whether there is anybody left whose verdict would change something."""
        if self.forgetful:
            return False
        if self._claims:
            return True
        return not self.settled or (self.previous > 0 and not self._others() <= self._known_by)

    @property
    def doubted(self) -> bool:
        """Somebody has said once what would cost this node its votes: it takes part in nothing."""
        return bool(self._claims)

    @property
    def waits_for(self) -> int:
        """How many more have to say that they know this directory."""
        return 0 if self.settled else self._missing()

    def _others(self) -> set[NodeId]:
        return {node for one_set in self._quorum_sets() for node in one_set} - {self.me}

    def _is_known(self) -> bool:
        """Whether enough have answered, and are more than copies of one another. Who has only just
        started, too, may be as old a copy as this one: its word alone is not enough while another
        node, which may remember more, has had no time to come up."""
        if self.forgetful or self._missing():
            return False
        return (
            not self._others() - self._known_by
            or not self._settled.isdisjoint(self._known_by)
            or self._has_waited
        )

    def _missing(self) -> int:
        """How many more have to answer, of the circle that lacks most."""
        return max((self._missing_of(frozenset(one)) for one in self._quorum_sets()), default=0)

    def _missing_of(self, one_set: frozenset[NodeId]) -> int:
        others = one_set - {self.me}
        if not self.previous:
            needed = len(others)
        elif self.me in one_set:
            needed = len(one_set) // 2
        else:
            needed = quorum_size(one_set)
        return max(0, needed - len(self._known_by & others))

    def life(self, place: Place) -> Life:
        """What to say of ourselves. Who doubts us is asked what it was asked at first: it answers
        by how far our log goes, which is further now."""
        if self._found is None:
            self._found = place
        if self._claims:
            return Life(self.incarnation, self.previous, self._found, settled=False, asks=True)
        return Life(self.incarnation, self.previous, place, self.settled, self.asks)

    def asked(self, node: NodeId) -> None:
        """Our life was sent to it."""
        if self.asks:
            self._asked.add(node)

    # -- others ask us ------------------------------------------------------------------------

    def judge(self, node: NodeId, life: Life) -> Verdict:
        registered = self._nodes().get(node)
        known = Incarnation(0) if registered is None else registered.incarnation
        return Verdict(life.incarnation, self._judgement(node, life, known), known)

    def _judgement(self, node: NodeId, life: Life, known: Incarnation) -> Judgement:
        if life.incarnation < known:
            return Judgement.OUTDATED
        seen = self._witnessed.get(node)
        if seen is not None and seen[0] < life.incarnation and life.place < seen[1]:
            return Judgement.FORGETFUL
        if known:
            mine = life.incarnation == known or life.previous >= known
            return Judgement.KNOWN if mine else Judgement.FORGETFUL
        if life.previous:
            return Judgement.KNOWN
        if self._untouched():
            self._met[node] = life.incarnation
        met = self._met.get(node) == life.incarnation
        return Judgement.KNOWN if met else Judgement.FORGETFUL

    def hear(self, node: NodeId, life: Life) -> None:
        """A peer says whether it takes part, and how far its log goes if it does."""
        if not life.settled:
            self._settled.discard(node)
            return
        self._settled.add(node)
        self.settled |= self._is_known()
        self.witness(node, life)

    def witness(self, node: NodeId, life: Life) -> None:
        """A settled node says how far its log goes. The last two words count, by the lesser: what
        is wrong once is not kept, and what was wrong twice is put right by the next two."""
        before = self._last_lives.get(node)
        self._last_lives[node] = (life.incarnation, life.place)
        if before is not None and before[0] == life.incarnation:
            self._witnessed[node] = (life.incarnation, min(before[1], life.place))

    @property
    def witnessed(self) -> dict[NodeId, tuple[Incarnation, Place]]:
        """What to write down: a copy."""
        return dict(self._witnessed)

    # -- they answer --------------------------------------------------------------------------

    def on_verdict(
        self, node: NodeId, verdict: Verdict, boot_ns: int = 0, life: Incarnation | None = None
    ) -> None:
        """One answer, of this `life` of the node's; `settled`, `doubted` or `forgetful` may have
        changed now.

        Raises:
            PeerError: no honest node answers so.
            DirectoryRefused: this incarnation was used before.
        """
        if verdict.incarnation != self.incarnation or not self.asks or node not in self._others():
            return
        self._check(verdict)
        if node not in self._asked:
            return  # it is the answer to nothing
        self._asked.discard(node)
        claim = self._claims.get(node)
        if claim is not None and claim.life != life:  # who is born again may have forgotten
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
        """Who cannot be asked once more is believed: it may have been the only one to know.
        `is_heard`: whether a node is there, and in that life. And who does not come is not waited
        for any longer.

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
        """Refuse what does not follow from what this node says of itself (`_judgement`).

        Raises:
            PeerError: saying what.
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
            self.forgetful = True
            return
        raise DirectoryRefused(self._outlived(node, verdict.known))

    def _outlived(self, node: NodeId, known: Incarnation) -> str:
        """Keep the number for the next start, if it leaves room for later ones; what to do."""
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
