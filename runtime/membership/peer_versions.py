"""What each peer has told of its versions, kept when its link is lost: it may be down for a while,
and is still a member."""

from paxos.ids import Incarnation, NodeId
from runtime.membership.lease_terms import LeaseTerms
from runtime.membership.versions import LINK_OLDEST, OURS, UNTOLD, Versions, common_link, problem
from wire.software import CLUSTER_VERSION_BASE as BASE


class PeerVersions:
    def __init__(self) -> None:
        self.ours = OURS
        self.cluster_version = BASE
        self._told: dict[NodeId, Versions] = {}
        self._lives: dict[NodeId, Incarnation] = {}

    def greeted(self, node: NodeId, incarnation: Incarnation) -> None:
        """A new process may be of another version: what the last one told no longer counts."""
        if self._lives.get(node) != incarnation:
            self._lives[node] = incarnation
            self._told.pop(node, None)

    def told(self, node: NodeId, versions: Versions) -> None:
        self._told[node] = versions

    def has_told(self, node: NodeId) -> bool:
        return node in self._told

    def of(self, node: NodeId) -> Versions | None:
        """None: its present process, or the one before it is down, has told nothing yet."""
        return self._told.get(node)

    def link(self, node: NodeId) -> int:
        """The version of the link in which this node writes to another one."""
        return common_link(self.ours, self._told.get(node, UNTOLD)) or LINK_OLDEST

    def problem(self, node: NodeId) -> str:
        """Why a node that has greeted cannot take part; "" if it can."""
        theirs = self._told.get(node, UNTOLD)
        return problem(node, self.ours, theirs, self.cluster_version)

    def terms(self, lease: LeaseTerms) -> bytes:
        """The body of TERMS."""
        return lease.encode() + self.ours.encode()
