"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: Kafka's names for placing.

A partition's preferred leader is the ideal master of its group, and the balancer steals every group
that is not there without being asked: to elect it is to wait for that steal. To reassign a
partition to the very nodes it is on, another one first, is to pin its group to that node; no other
reassignment exists, because a group's members are those of the cluster. Both concern a group, and
so all partitions that live in it.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from balancer.records import PARTITIONS_MAX, TOPICS_MAX
from balancer.registry_commands import Done, PinGroup
from broker.context import Broker, Request
from broker.guard import gather, guarded, refuse_more_than
from broker.handlers.changes import DONE, Verdict, deadline_of, refused, submit
from broker.registry_calls import Answer
from paxos.ids import GroupId, NodeId
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectPartitionResult,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)

PREFERRED: Final = 0
UNKNOWN: Final = Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
NOT_NEEDED: Final = Verdict(ErrorCode.ELECTION_NOT_NEEDED, "it has its preferred leader")
NOT_YET: Final = Verdict(
    ErrorCode.REQUEST_TIMED_OUT,
    "the balancer has not moved it yet: `evenkeel balance show` says why",
)
NOTHING_TO_CANCEL: Final = Verdict(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "nobody has asked for a move that is not done yet"
)
TWICE: Final = Verdict(ErrorCode.INVALID_REQUEST, "the request names the partition twice")


class Place(NamedTuple):
    """A partition as a client names it."""

    topic: str
    number: int


def _group_of(broker: Broker, place: Place) -> GroupId | None:
    topic = broker.registry.topic(place.topic)
    if topic is None or not 0 <= place.number < len(topic.partitions):
        return None
    return topic.partitions[place.number].group


def _all_places(broker: Broker) -> list[Place]:
    return [
        Place(topic.name, index)
        for topic in broker.registry.topics.values()
        for index in range(len(topic.partitions))
    ]


def _by_topic(answers: Mapping[Place, Verdict]) -> dict[str, list[tuple[int, Verdict]]]:
    """In the order in which the topics came."""
    topics: dict[str, list[tuple[int, Verdict]]] = defaultdict(list)
    for place, verdict in answers.items():
        topics[place.topic].append((place.number, verdict))
    return topics


# ---- ElectLeaders --------------------------------------------------------------------------------


def handle_elect(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ElectLeadersRequest)
    asked = message.topic_partitions
    if asked is None:
        places = _all_places(broker)
    else:
        named = [Place(one.topic, index) for one in asked for index in one.partitions]
        if refuse_more_than(PARTITIONS_MAX, named, request):
            return
        places = list(dict.fromkeys(named))
    deadline = deadline_of(broker, message.timeout_ms)
    preferred = message.election_type == PREFERRED
    begun = {place: _elect(broker, place, preferred=preferred) for place in places}
    groups = {
        group
        for place, verdict in begun.items()
        if verdict is None and (group := _group_of(broker, place)) is not None
    }

    def settled() -> bool:
        return all(_is_home(broker, group) for group in groups)

    def answer() -> None:
        verdicts = {place: verdict or _elected(broker, place) for place, verdict in begun.items()}
        if asked is None:  # as Kafka: who asks for all is told of what was to be done
            verdicts = {place: one for place, one in verdicts.items() if one is not NOT_NEEDED}
        _answer_elect(request, verdicts)

    broker.holds.until(settled, deadline, guarded(broker, request, answer))


def _is_home(broker: Broker, group: GroupId) -> bool:
    ideal = broker.registry.placement.get(group)
    return ideal is None or broker.groups.master(group) == ideal


def _elect(broker: Broker, place: Place, *, preferred: bool) -> Verdict | None:
    """What can be said at once; None: the balancer is on it."""
    group = _group_of(broker, place)
    if group is None:
        return UNKNOWN
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
        problem = "the group has no ideal master yet"
    elif node.draining:
        problem = f"node {ideal} is draining"
    elif registry.paused or group in registry.paused_groups:
        problem = "an operator has paused the balancer, or this group"
    return Verdict(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, problem) if problem else None


def _elected(broker: Broker, place: Place) -> Verdict:
    group = _group_of(broker, place)
    if group is None:
        return UNKNOWN  # its topic was deleted meanwhile
    return DONE if _is_home(broker, group) else NOT_YET


def _answer_elect(request: Request, verdicts: Mapping[Place, Verdict]) -> None:
    results = [
        ReplicaElectionResult(
            topic,
            [ElectPartitionResult(index, one.error, one.message) for index, one in partitions],
        )
        for topic, partitions in _by_topic(verdicts).items()
    ]
    response = ElectLeadersResponse(replica_election_results=results)
    request.reply.complete(encode_response(request.header, response))


# ---- AlterPartitionReassignments -----------------------------------------------------------------


class _Wish(NamedTuple):
    """What one partition's reassignment asks of its group; node None: cancel."""

    group: GroupId
    node: NodeId | None


def handle_reassign(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, AlterPartitionReassignmentsRequest)
    named = [
        (Place(topic.name, one.partition_index), one.replicas)
        for topic in message.topics
        for one in topic.partitions
    ]
    if refuse_more_than(PARTITIONS_MAX, named, request):
        return
    answers: dict[Place, Verdict] = {}
    wishes: dict[Place, _Wish] = {}
    for place, replicas in named:
        if place in answers or place in wishes:
            wishes.pop(place, None)
            answers[place] = TWICE
            continue
        wish = _wish(broker, place, replicas)
        if isinstance(wish, Verdict):
            answers[place] = wish
        else:
            wishes[place] = wish
    for place in _contradictory(wishes):
        answers[place] = Verdict(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "it shares its group with another partition that is to go elsewhere",
        )
        del wishes[place]
    order = list(dict.fromkeys(place for place, _ in named))
    _pin(broker, request, message.timeout_ms, wishes, partial(_merge, request, order, answers))


def _wish(broker: Broker, place: Place, replicas: list[int] | None) -> _Wish | Verdict:
    group = _group_of(broker, place)
    if group is None:
        return UNKNOWN
    if replicas is None:
        pinned = group in broker.registry.pins and not _is_home(broker, group)
        return _Wish(group, None) if pinned else NOTHING_TO_CANCEL
    members = broker.groups.members(group)
    if sorted(replicas) != sorted(members):
        told = ", ".join(map(str, sorted(members)))
        return Verdict(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the partition lives in group {group}, whose members are {told}: name all of them, "
            "and first the one that is to be its master",
        )
    return _Wish(group, NodeId(replicas[0]))


def _contradictory(wishes: Mapping[Place, _Wish]) -> list[Place]:
    """Partitions of one group that are to go to different nodes."""
    targets: dict[GroupId, set[NodeId | None]] = defaultdict(set)
    for wish in wishes.values():
        targets[wish.group].add(wish.node)
    return [place for place, wish in wishes.items() if len(targets[wish.group]) > 1]


def _pin(
    broker: Broker,
    request: Request,
    timeout_ms: int,
    wishes: Mapping[Place, _Wish],
    finish: Callable[[Mapping[Place, Verdict]], None],
) -> None:
    """One command for each group; every partition of it gets its verdict."""
    groups = list(dict.fromkeys(wishes.values()))

    def decided(verdicts: Sequence[Verdict]) -> None:
        of = dict(zip(groups, verdicts, strict=True))
        finish({place: of[wish] for place, wish in wishes.items()})

    put = gather(len(groups), decided)
    deadline = deadline_of(broker, timeout_ms)
    for index, wish in enumerate(groups):
        command = PinGroup(wish.group, wish.node)
        here = partial(_is_pinned, broker, wish)
        decide = partial(put, index)
        submit(broker, request, command, deadline, _judge_pinned, here, decide)


def _judge_pinned(answer: Answer) -> Verdict:
    return DONE if isinstance(answer.result, Done) else refused(answer.result)


def _is_pinned(broker: Broker, wish: _Wish) -> bool:
    return broker.registry.pins.get(wish.group) == wish.node


def _merge(
    request: Request,
    order: Iterable[Place],
    answers: Mapping[Place, Verdict],
    pinned: Mapping[Place, Verdict],
) -> None:
    known = {**answers, **pinned}
    verdicts = {place: known[place] for place in order}
    responses = [
        ReassignableTopicResponse(
            topic,
            [
                ReassignablePartitionResponse(index, one.error, one.message)
                for index, one in partitions
            ],
        )
        for topic, partitions in _by_topic(verdicts).items()
    ]
    response = AlterPartitionReassignmentsResponse(responses=responses)
    request.reply.complete(encode_response(request.header, response))


# ---- ListPartitionReassignments ------------------------------------------------------------------


def handle_reassignments(broker: Broker, request: Request) -> None:
    """The partitions whose group is on its way to its ideal master."""
    message = request.message
    assert isinstance(message, ListPartitionReassignmentsRequest)
    if message.topics is None:
        places = _all_places(broker)
    elif refuse_more_than(TOPICS_MAX, message.topics, request):
        return
    else:
        places = [
            Place(one.name, index) for one in message.topics for index in one.partition_indexes
        ]
        if refuse_more_than(PARTITIONS_MAX, places, request):
            return
    topics: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for place in dict.fromkeys(places):
        group = _group_of(broker, place)
        if group is not None and not _is_home(broker, group):
            ideal = broker.registry.placement[group]
            others = [node for node in broker.groups.members(group) if node != ideal]
            under_way = OngoingPartitionReassignment(place.number, [ideal, *others])
            topics[place.topic].append(under_way)
    response = ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name, found) for name, found in topics.items()]
    )
    request.reply.complete(encode_response(request.header, response))
