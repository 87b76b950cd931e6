"""ElectLeaders: waiting for the balancer.

A partition's preferred leader is the ideal master of its group, and the balancer steals every group
that is not there without being asked: to elect it is to wait for that steal. It concerns a group,
and so all partitions that live in it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from broker.handlers.topics.known_names import before_denying, denied
from broker.handlers.topics.places import (
    UNKNOWN,
    Place,
    all_places,
    by_topic,
    group_of,
    has_unknown,
    is_home,
)
from broker.handlers.topics.registry_changes import DONE, Verdict, deadline_of
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.placement import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectPartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
NOT_NEEDED: Final = Verdict(ErrorCode.ELECTION_NOT_NEEDED, "it has its preferred leader")
NOT_YET: Final = Verdict(
    ErrorCode.REQUEST_TIMED_OUT,
    "the balancer has not moved it yet: `evenkeel balance show` says why",
)


def handle_elect(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ElectLeadersRequest)
    asked = message.topic_partitions
    if asked is None:
        places = all_places(broker)
    else:
        named = [Place(one.topic, index) for one in asked for index in one.partitions]
        places = list(dict.fromkeys(named))
    go_on = partial(_elect_known, broker, request, message, places)
    before_denying(broker, request, partial(has_unknown, broker, places), go_on)


def _elect_known(
    broker: Broker, request: Request, message: ElectLeadersRequest, places: Sequence[Place]
) -> None:
    asked = message.topic_partitions
    deadline = deadline_of(broker, message.timeout_ms)
    preferred = message.election_type == PREFERRED
    begun = {place: _elect(broker, place, preferred=preferred) for place in places}
    groups = {
        group
        for place, verdict in begun.items()
        if verdict is None and (group := group_of(broker, place)) is not None
    }

    def settled() -> bool:
        return all(is_home(broker, group) for group in groups)

    def answer() -> None:
        verdicts = {place: verdict or _elected(broker, place) for place, verdict in begun.items()}
        if asked is None:  # as Kafka: who asks for all is told of what was to be done
            verdicts = {place: one for place, one in verdicts.items() if one is not NOT_NEEDED}
        _answer_elect(request, verdicts)

    broker.delayed_operations.until(settled, deadline, guarded(broker, request, answer))


def _elect(broker: Broker, place: Place, *, preferred: bool) -> Verdict | None:
    """What can be said at once; None: the balancer is on it."""
    group = group_of(broker, place)
    if group is None:
        return denied(broker, UNKNOWN)
    registry = broker.registry
    master, ideal = broker.groups.master(group), registry.placement.get(group)
    if not preferred:
        if master is not None:
            return NOT_NEEDED
        why = "only a majority elects, and never an unclean leader: start more nodes"
        return Verdict(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)
    if master is not None and master == ideal:
        return NOT_NEEDED
    problem = ""
    node = None if ideal is None else registry.nodes.get(ideal)
    if ideal is None or node is None:
        problem = "the Paxos group has no ideal master yet"
    elif node.draining:
        problem = f"node {ideal} is draining"
    elif registry.paused or group in registry.paused_groups:
        problem = "an operator has paused the balancer, or this Paxos group"
    return Verdict(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, problem) if problem else None


def _elected(broker: Broker, place: Place) -> Verdict:
    group = group_of(broker, place)
    if group is None:
        return UNKNOWN  # its topic was deleted meanwhile
    return DONE if is_home(broker, group) else NOT_YET


def _answer_elect(request: Request, verdicts: Mapping[Place, Verdict]) -> None:
    results = [
        ReplicaElectionResult(
            topic,
            [ElectPartitionResult(index, one.error, one.message) for index, one in partitions],
        )
        for topic, partitions in by_topic(verdicts).items()
    ]
    response = ElectLeadersResponse(replica_election_results=results)
    request.reply.complete(encode_response(request.header, response))
