"""ElectLeaders: waiting for the balancer.

A partition's preferred leader is the ideal master of its Paxos group, and the balancer steals every
misplaced group unasked: electing the preferred leader means waiting for that steal. It concerns the
group, and so all partitions in it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from broker.handlers.topics.known_names import before_denying, denied
from broker.handlers.topics.places import (
    UNKNOWN,
    Place,
    by_topic,
    every_partition,
    group_of,
    has_unknown,
    is_home,
)
from broker.handlers.topics.registry_changes import DONE, Verdict, deadline_of
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.refusals import answer_aside
from broker.requests.request import Request
from broker.requests.steps import STEP
from paxos.ids import GroupId
from wire.error_codes import ErrorCode
from wire.messages.placement import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectPartitionResult,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNCLEAN: Final = 1
NOT_NEEDED: Final = Verdict(ErrorCode.ELECTION_NOT_NEEDED, "it has its preferred leader")
NOT_YET: Final = Verdict(
    ErrorCode.REQUEST_TIMED_OUT,
    "the balancer has not moved it yet: `evenkeel balance show` says why",
)


def handle_elect(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ElectLeadersRequest)
    asked = message.topic_partitions
    named = [Place(one.topic, index) for one in asked or () for index in one.partitions]
    places = list(dict.fromkeys(named))
    if message.election_type not in (PREFERRED, UNCLEAN):
        why = f"election type {message.election_type}: 0 is the preferred leader, 1 an unclean one"
        refused = dict.fromkeys(places, Verdict(ErrorCode.INVALID_REQUEST, why))
        _answer_elect(broker, request, refused, ErrorCode.INVALID_REQUEST)
        return
    if asked is None:
        _elect_all(broker, request, message)
        return
    go_on = partial(_elect_known, broker, request, message, places)
    before_denying(broker, request, partial(has_unknown, broker, places), go_on)


def _elect_all(broker: Broker, request: Request, message: ElectLeadersRequest) -> None:
    """By Paxos group: partitions may be many. As in Kafka, a client that asks for all is told only
    of those that needed an election."""
    deadline = deadline_of(broker, message.timeout_ms)
    preferred = message.election_type == PREFERRED
    groups = map(GroupId, broker.registry.groups)
    begun = {group: _elect_group(broker, group, preferred=preferred) for group in groups}
    waiting = [group for group, verdict in begun.items() if verdict is None]
    verdicts: dict[Place, Verdict] = {}

    def settled() -> bool:
        return all(is_home(broker, group) for group in waiting)

    def look(told: Mapping[GroupId, Verdict]) -> Iterator[None]:
        for number, (topic, index, group) in enumerate(every_partition(broker), 1):
            if group in told:
                verdicts[Place(topic, index)] = told[group]
            if number % STEP == 0:
                yield

    def answer() -> None:
        ended = {group: verdict or _elected(broker, group) for group, verdict in begun.items()}
        told = {group: one for group, one in ended.items() if one is not NOT_NEEDED}
        done = partial(_answer_elect, broker, request, verdicts)
        broker.portions.in_steps(broker, request.reply, look(told) if told else iter(()), done)

    broker.delayed_operations.until(settled, deadline, guarded(broker, request, answer))


def _elect_known(
    broker: Broker, request: Request, message: ElectLeadersRequest, places: Sequence[Place]
) -> None:
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
        verdicts = {
            place: verdict or _elected(broker, group_of(broker, place))
            for place, verdict in begun.items()
        }
        _answer_elect(broker, request, verdicts)

    broker.delayed_operations.until(settled, deadline, guarded(broker, request, answer))


def _elect(broker: Broker, place: Place, *, preferred: bool) -> Verdict | None:
    """The verdict if there is one already; None: the balancer is working on it."""
    group = group_of(broker, place)
    if group is None:
        return denied(broker, UNKNOWN)
    return _elect_group(broker, group, preferred=preferred)


def _elect_group(broker: Broker, group: GroupId, *, preferred: bool) -> Verdict | None:
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


def _elected(broker: Broker, group: GroupId | None) -> Verdict:
    if group is None:
        return UNKNOWN  # its topic was deleted meanwhile
    return DONE if is_home(broker, group) else NOT_YET


def _answer_elect(
    broker: Broker,
    request: Request,
    verdicts: Mapping[Place, Verdict],
    error: ErrorCode = ErrorCode.NONE,
) -> None:
    answer_aside(broker, request, len(verdicts), partial(_elect_response, verdicts, error))


def _elect_response(verdicts: Mapping[Place, Verdict], error: ErrorCode) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic,
            [ElectPartitionResult(index, one.error, one.message) for index, one in partitions],
        )
        for topic, partitions in by_topic(verdicts).items()
    ]
    return ElectLeadersResponse(error_code=error, replica_election_results=results)
