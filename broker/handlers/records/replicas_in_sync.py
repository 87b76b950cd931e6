"""min.insync.replicas: acks=all is refused while fewer replicas are in sync than a topic wants.

In sync are the members of the Paxos group that this node has heard of lately, as Metadata says. An
acknowledged record is on a majority whatever the setting says; above that the setting keeps
producers from going on while a replica is away, and does not wait for one that is slow (ADR 52).
The master decides, and a former one for a producer that has not been told of the move, because it
forwards what that sends (ADR 50): elsewhere the producer is sent to the master.
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
    moved_ns, now_ns = groups.moved_ns(group), groups.now().boot_ns
    forwards = not moves and connection.misses_move(topic.name, moved_ns, now_ns)
    if not groups.acting(group) and not forwards:
        return False
    in_sync = groups.alive().intersection(groups.members(group))
    return len(in_sync) < replicas_needed(configs)
