"""Where a partition's leader has gone, named in the answer itself (KIP-951).

Clients act on it immediately instead of asking for metadata after a backoff. It is sent only if the
leader is known to be a node other than the one that was asked.
"""

from collections.abc import Iterable

from broker.ports import Reply
from broker.requests.context import Broker
from paxos.ids import GroupId, NodeId
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint


def other_leader(broker: Broker, group: GroupId, uid: int) -> LeaderIdAndEpoch | None:
    """The partition's leader, if it is known and not this node."""
    leader = broker.leaders.of(group)
    if leader.node is None or leader.node == broker.me:
        return None
    return LeaderIdAndEpoch(leader.node, leader.epoch + broker.registry.epoch_base(uid))


def endpoints(
    broker: Broker, reply: Reply, named: Iterable[LeaderIdAndEpoch | None]
) -> list[NodeEndpoint]:
    """The addresses of the leaders that are named, each once: those of the listener by which the
    request came."""
    registry, listener = broker.registry, reply.connection.listener.name
    found = []
    for leader_id in sorted({leader.leader_id for leader in named if leader is not None}):
        node = NodeId(leader_id)
        address = registry.address(node, listener)
        if address is not None:
            zone = registry.nodes[node].zone
            found.append(NodeEndpoint(leader_id, *address, zone or None))
    return found
