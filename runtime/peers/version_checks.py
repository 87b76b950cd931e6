"""The part of the links that keeps out nodes that cannot read what is in the logs.

Such a node must neither send (it is refused) nor be sent anything: it would take part in groups
whose entries it cannot apply.
"""

from paxos.ids import NodeId
from runtime.membership.handshake import Refusal, RefusalReason, Refused
from runtime.membership.peer_versions import PeerVersions
from runtime.peers.incoming import Incoming
from runtime.peers.outgoing import Outgoing


class VersionChecks:
    def __init__(self) -> None:
        self.versions = PeerVersions()
        self.outgoing: dict[NodeId, Outgoing] = {}
        self._incoming: dict[NodeId, Incoming] = {}

    def _ping_one(self, node: NodeId) -> None:
        raise NotImplementedError

    @property
    def refusals(self) -> list[str]:
        """Why peers refuse this node, each reason once."""
        refused = (link.refusal for link in self.outgoing.values() if link.opened is None)
        return list(dict.fromkeys(filter(None, refused)))

    def check_versions(self, node: NodeId) -> None:
        """Called for the first frame behind a HELLO, and when a node has told its versions.

        Raises:
            Refused: the node cannot read what is in the logs.
        """
        problem = self.versions.problem(node)
        if problem:
            raise Refused(Refusal(RefusalReason.FORMAT, problem))
        link = self.outgoing.get(node)
        if link is not None:
            link.version = self.versions.link(node)
        if link is not None and link.channel is None and link.opened is not None:
            link.channel = link.opened
            self._ping_one(node)

    def cluster_version_is(self, version: int) -> None:
        """What is in the logs from now on: end the links of nodes that cannot read it."""
        self.versions.cluster_version = version
        for node, incoming in [*self._incoming.items()]:
            problem = self.versions.problem(node)
            if problem:
                incoming.refuse(Refusal(RefusalReason.FORMAT, problem))
                if node in self.outgoing:
                    self.outgoing[node].channel = None
