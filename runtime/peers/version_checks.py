"""The part of the links that keeps out nodes that cannot read what is in the logs.

Such a node must neither send (it is refused) nor be sent anything: it would take part in groups
whose entries it cannot apply.
"""

from collections.abc import Callable

from paxos.ids import NodeId
from runtime.membership.handshake import Refusal, RefusalReason, Refused
from runtime.membership.peer_versions import PeerVersions
from runtime.peers.incoming import Incoming
from runtime.peers.outgoing import Outgoing


class VersionChecks:
    """`let_in` is called with a node that can be sent messages from now on."""

    def __init__(self, let_in: Callable[[NodeId], None]) -> None:
        self._let_in = let_in
        self.versions = PeerVersions()
        self.outgoing: dict[NodeId, Outgoing] = {}
        self._incoming: dict[NodeId, Incoming] = {}

    @property
    def refusals(self) -> list[str]:
        """Why peers refuse this node, each reason once."""
        refused = (link.refusal for link in self.outgoing.values() if link.opened is None)
        return list(dict.fromkeys(filter(None, refused)))

    def connected(self, node: NodeId) -> bool:
        """Whether there are links to and from the node."""
        link = self.outgoing.get(node)
        return link is not None and link.channel is not None and node in self._incoming

    def encrypted(self, node: NodeId) -> bool:
        """Whether both connections with the node are."""
        link, incoming = self.outgoing.get(node), self._incoming.get(node)
        if link is None or incoming is None:
            return False
        return all(end is not None and end.encrypted for end in (link.channel, incoming.channel))

    def check_versions(self, node: NodeId) -> None:
        """Called for the first frame behind a HELLO, and when a node has told its versions.

        Raises:
            Refused: the node cannot read what is in the logs.
        """
        refusal = self._keep_out(node)
        if refusal is not None:
            raise Refused(refusal)
        link = self.outgoing.get(node)
        if link is not None:
            link.version = self.versions.link(node)
        if link is not None and link.channel is None and link.opened is not None:
            link.channel = link.opened
            self._let_in(node)

    def cluster_version_is(self, version: int) -> None:
        """What is in the logs from now on: end the links of nodes that cannot read it."""
        if version == self.versions.cluster_version:
            return  # each node was compared with it when it told its versions
        self.versions.cluster_version = version
        for node, incoming in [*self._incoming.items()]:
            refusal = self._keep_out(node)
            if refusal is not None:
                incoming.refuse(refusal)

    def _keep_out(self, node: NodeId) -> Refusal | None:
        """If the node cannot take part, send it nothing any more, whichever link came first: ours
        may have been opened on what its last process had told. Returns the reason."""
        problem = self.versions.problem(node)
        if not problem:
            return None
        if node in self.outgoing:
            self.outgoing[node].channel = None
        return Refusal(RefusalReason.FORMAT, problem)
