"""Where a partition's leader has gone, said in the answer itself (KIP-951).

Clients act on it at once instead of asking for metadata after a back-off. It is sent only where the
leader is known to be another node than the one that was asked.
"""

from collections.abc import Iterable

from broker.requests.context import Broker
from paxos.ids import GroupId
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint


def other_leader(broker: Broker, group: GroupId, uid: int) -> LeaderIdAndEpoch | None:
    """The partition's leader, unless that is nobody or ourselves."""
    leader = broker.leaders.of(group)
    if leader.node is None or leader.node == broker.me:
        return None
    return LeaderIdAndEpoch(leader.node, leader.epoch + broker.registry.epoch_base(uid))


def endpoints(broker: Broker, named: Iterable[LeaderIdAndEpoch | None]) -> list[NodeEndpoint]:
    """The addresses of the leaders that were named, each once."""
    nodes = broker.registry.nodes
    found = []
    for leader_id in sorted({leader.leader_id for leader in named if leader is not None}):
        node = next((one for one in nodes.values() if one.node == leader_id), None)
        if node is not None:
            host, port = node.kafka
            found.append(NodeEndpoint(leader_id, host, port, node.zone or None))
    return found
