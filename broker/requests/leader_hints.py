"""Where a partition's leader has gone, named in the answer itself (KIP-951).

Clients act on it immediately instead of asking for metadata after a backoff. It is sent only if the
leader is known to be a node other than the one that was asked.
"""

from collections.abc import Iterable

from broker.requests.context import Broker
from paxos.ids import GroupId
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint


def other_leader(broker: Broker, group: GroupId, uid: int) -> LeaderIdAndEpoch | None:
    """The partition's leader, if it is known and not this node."""
    leader = broker.leaders.of(group)
    if leader.node is None or leader.node == broker.me:
        return None
    return LeaderIdAndEpoch(leader.node, leader.epoch + broker.registry.epoch_base(uid))


def endpoints(broker: Broker, named: Iterable[LeaderIdAndEpoch | None]) -> list[NodeEndpoint]:
    """The addresses of the leaders that are named, each once."""
    nodes = broker.registry.nodes
    found = []
    for leader_id in sorted({leader.leader_id for leader in named if leader is not None}):
        node = next((one for one in nodes.values() if one.node == leader_id), None)
        if node is not None:
            host, port = node.kafka
            found.append(NodeEndpoint(leader_id, host, port, node.zone or None))
    return found
