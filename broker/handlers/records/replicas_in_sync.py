"""min.insync.replicas: acks=all is refused while fewer replicas are in sync than a topic wants.

In sync are the members of the Paxos group that this node has heard of lately, as Metadata says. An
acknowledged record is on a majority whatever the setting says; above that the setting keeps
producers from going on while a replica is away, and does not wait for one that is slow (ADR 52).
The master decides, and a former one about what it forwards: from all producers during a handover
and for a moment after it, and then from those that have not been told of the move (ADR 50).
Elsewhere the producer is sent to the master.
"""

from balancer.registry.records import Topic
from broker.ports import Connection
from broker.requests.context import Broker
from broker.topic_configs import MIN_INSYNC_REPLICAS, replicas_needed
from paxos.ids import GroupId


def lacks_replicas(
    broker: Broker, topic: Topic, group: GroupId, connection: Connection, *, moves: bool
) -> bool:
    """`moves`: its producer acts on a new leader that the answer names."""
    configs, groups = topic.configs, broker.groups
    if not configs or MIN_INSYNC_REPLICAS not in configs:
        return False
    if not groups.acting(group) and not groups.passes_on(group):
        moved_ns, now_ns = groups.moved_ns(group), groups.now().boot_ns
        if moves or not connection.misses_move(topic.name, moved_ns, now_ns):
            return False
    in_sync = groups.alive().intersection(groups.members(group))
    return len(in_sync) < replicas_needed(configs)
