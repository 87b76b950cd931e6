"""min.insync.replicas: acks=all is refused while fewer replicas are in sync than a topic wants.

In sync are the members of the Paxos group that this node has heard of lately, as Metadata says. An
acknowledged record is on a majority whatever the setting says; above that the setting keeps
producers from going on while a replica is away, and does not wait for one that is slow (ADR 52).
The master decides: elsewhere the producer is sent to it, or its batch is.
"""

from balancer.registry.records import Topic
from broker.requests.context import Broker
from broker.topic_configs import MIN_INSYNC_REPLICAS, replicas_needed
from paxos.ids import GroupId


def lacks_replicas(broker: Broker, topic: Topic, group: GroupId) -> bool:
    configs, groups = topic.configs, broker.groups
    if not configs or MIN_INSYNC_REPLICAS not in configs or not groups.acting(group):
        return False
    in_sync = groups.alive().intersection(groups.members(group))
    return len(in_sync) < replicas_needed(configs)
