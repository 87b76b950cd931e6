"""AlterPartitionReassignments and ListPartitionReassignments: which nodes keep a partition.

A partition's replicas are those of its Paxos group: reassigning one changes the replica set of the
group, and so moves all partitions in it. The first node named is the preferred leader: the group is
pinned there. Naming the present nodes in another order only sets that pin, and the order in which
clients are told the replicas: `kafka-reassign-partitions --verify` compares it. The planner leaves
such a set alone until the group is unpinned (docs/balancer.md).

Under way is what changes replicas, as in Kafka; a master that has yet to move to its ideal node is
an election to come (ADR 57).

In a cluster older than replica sets every node has every group, and only the order can be changed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from balancer.registry.commands import Command, Done, PinGroup, SetReplicaSets
from balancer.registry.records import PARTITIONS_MAX, TOPICS_MAX, ReplicaChange
from broker.handlers.topics.known_names import before_denying, denied
from broker.handlers.topics.places import (
    UNKNOWN,
    Place,
    by_topic,
    every_partition,
    group_of,
    has_unknown,
    in_order,
)
from broker.handlers.topics.registry_changes import DONE, Verdict, deadline_of, refused, submit
from broker.registry_calls import Answer
from broker.requests.context import Broker
from broker.requests.guard import gather
from broker.requests.refusals import answer_aside, refuse_more_than
from broker.requests.request import Request
from broker.requests.steps import STEP
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

TRIGGER: Final = "reassignment"
"""The reason that the registry records for such a change."""
CANCELLED: Final = "cancelled"
"""The reason recorded for one that calls another off: where it leads, the group has been."""
NOTHING_TO_CANCEL: Final = Verdict(
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "there is no unfinished move of this partition"
)
NO_WAY_BACK: Final = Verdict(
    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    "it cannot return: a node that it came from has left or is leaving, or it is not known any "
    "more where it came from. Name the nodes instead",
)
TWICE: Final = Verdict(ErrorCode.INVALID_REQUEST, "the request names the partition twice")


class _Reassignment(NamedTuple):
    """What a reassignment asks of a Paxos group."""

    group: GroupId
    nodes: tuple[NodeId, ...] | None
    """Its replica set from now on, ascending; None: unchanged."""
    order: tuple[NodeId, ...]
    """Of its replicas, the preferred leader first; empty: left to the planner again."""

    @property
    def first(self) -> NodeId | None:
        return self.order[0] if self.order else None


# ---- what is asked -------------------------------------------------------------------------------


def handle_reassign(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, AlterPartitionReassignmentsRequest)
    named = [
        (Place(topic.name, one.partition_index), one.replicas)
        for topic in message.topics
        for one in topic.partitions
    ]
    go_on = partial(_reassign_known, broker, request, message, named)
    places = [place for place, _ in named]
    before_denying(broker, request, partial(has_unknown, broker, places), go_on)


def _reassign_known(
    broker: Broker,
    request: Request,
    message: AlterPartitionReassignmentsRequest,
    named: Sequence[tuple[Place, list[int] | None]],
) -> None:
    answers: dict[Place, Verdict] = {}
    requested: dict[Place, _Reassignment] = {}
    for place, replicas in named:
        if place in answers or place in requested:
            requested.pop(place, None)
            answers[place] = TWICE
            continue
        reassignment = _requested(broker, place, replicas)
        if isinstance(reassignment, Verdict):
            answers[place] = reassignment
        else:
            requested[place] = reassignment
    for place in _contradictory(requested):
        answers[place] = Verdict(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "it shares its Paxos group with another partition of this request that goes elsewhere "
            "or is to have its replicas in another order",
        )
        del requested[place]
    order = list(dict.fromkeys(place for place, _ in named))
    _carry_out(
        broker, request, message.timeout_ms, requested, partial(_merge, request, order, answers)
    )


def _requested(broker: Broker, place: Place, replicas: list[int] | None) -> _Reassignment | Verdict:
    group = group_of(broker, place)
    if group is None:
        return denied(broker, UNKNOWN)
    if replicas is None:
        return _cancelled(broker, group)
    wanted = broker.registry.replica_set(group)
    if sorted(replicas) == sorted(wanted or broker.groups.members(group)):
        return _Reassignment(group, None, tuple(map(NodeId, replicas)))
    problem = _problem(broker, group, replicas, wanted)
    if problem is not None:
        return problem
    order = tuple(map(NodeId, replicas))
    return _Reassignment(group, tuple(sorted(order)), order)


def _problem(
    broker: Broker, group: GroupId, replicas: Sequence[int], wanted: tuple[NodeId, ...]
) -> Verdict | None:
    """Why a Paxos group cannot move to these nodes; None if it can."""

    def wrong(text: str, error: ErrorCode = ErrorCode.INVALID_REPLICA_ASSIGNMENT) -> Verdict:
        return Verdict(error, f"the partition lives in Paxos group {group}, {text}")

    if not wanted or group == REGISTRY_GROUP:
        members = ", ".join(map(str, sorted(wanted or broker.groups.members(group))))
        return wrong(
            f"whose members are {members}: name all of them, and first the one that is to be its "
            "master"
        )
    if not replicas or len(set(replicas)) < len(replicas):
        return wrong("which can be on each node only once, and needs at least one")
    nodes = broker.registry.nodes
    for node in map(NodeId, replicas):
        if node not in nodes:
            return wrong(f"and there is no node {node}")
        if nodes[node].leaving:
            return wrong(f"and node {node} is leaving the cluster")
    cluster = broker.registry.cluster
    assert cluster is not None, "it has partitions"
    size = min(cluster.replicas, sum(not one.leaving for one in nodes.values()))
    if len(replicas) != size:
        text = f"and Paxos groups have {size} members in this cluster"
        return wrong(text, ErrorCode.INVALID_REPLICATION_FACTOR)
    return None


def _cancelled(broker: Broker, group: GroupId) -> _Reassignment | Verdict:
    """Cancel the move under way: the set as it was, and no preferred leader. One that is cancelled
    already stays so: clients repeat a request whose answer they have missed."""
    wanted = broker.registry.replica_set(group)
    if not wanted or set(broker.groups.members(group)) == set(wanted):
        return NOTHING_TO_CANCEL
    before = _origin(broker, group)
    return NO_WAY_BACK if before is None else _Reassignment(group, before, ())


def _origin(broker: Broker, group: GroupId) -> tuple[NodeId, ...] | None:
    """The replica set that the Paxos group has had and is leaving, if it can return to it."""
    registry = broker.registry
    changes = [
        change
        for record in reversed(registry.replica_history)
        for change in record.changes
        if change.group == group
    ]
    if not changes or changes[0].after != registry.replica_set(group):
        return None  # the registry remembers only so many
    origin = _left(changes, frozenset(broker.groups.members(group)))
    nodes = [registry.nodes.get(node) for node in origin]
    return origin if all(node is not None and not node.leaving for node in nodes) else None


def _left(changes: Sequence[ReplicaChange], members: frozenset[NodeId]) -> tuple[NodeId, ...]:
    """Which set the members come from, by the changes of it, the last one first. A set that was
    wanted for a while, until another one was, need not have been reached: then there are members
    that it does not explain, or it lacks some, though none is removed before all are added."""
    wanted = changes[0].after
    explained = set(wanted)
    for change in changes:
        if change.reason == CANCELLED:
            return change.after
        explained.update(change.before)
        whole = members.issuperset(change.before) or members.issuperset(wanted)
        if whole and members <= explained:
            return change.before
    return changes[0].before


def _contradictory(requested: Mapping[Place, _Reassignment]) -> list[Place]:
    """Partitions of one Paxos group that are to go to different nodes, or in different orders."""
    targets: dict[GroupId, set[_Reassignment]] = defaultdict(set)
    for reassignment in requested.values():
        targets[reassignment.group].add(reassignment)
    return [
        place for place, reassignment in requested.items() if len(targets[reassignment.group]) > 1
    ]


# ---- what is done --------------------------------------------------------------------------------


def _carry_out(
    broker: Broker,
    request: Request,
    timeout_ms: int,
    requested: Mapping[Place, _Reassignment],
    finish: Callable[[Mapping[Place, Verdict]], None],
) -> None:
    """Once for each Paxos group; all its partitions get its verdict."""
    groups = list(dict.fromkeys(requested.values()))

    def decided(verdicts: Sequence[Verdict]) -> None:
        of = dict(zip(groups, verdicts, strict=True))
        finish({place: of[reassignment] for place, reassignment in requested.items()})

    put = gather(len(groups), decided)
    deadline = deadline_of(broker, timeout_ms)
    for index, reassignment in enumerate(groups):
        _change(broker, request, reassignment, deadline, partial(put, index))


def _change(
    broker: Broker,
    request: Request,
    reassignment: _Reassignment,
    deadline: int,
    decide: Callable[[Verdict], None],
) -> None:
    """The replica set first: a group can only be pinned to a node that is to have it."""

    def ask(command: Command, here: Callable[[], bool], then: Callable[[Verdict], None]) -> None:
        submit(broker, request, lambda: command, deadline, _judge, here, then)

    def pin(verdict: Verdict = DONE) -> None:
        if verdict.error != ErrorCode.NONE:
            decide(verdict)
            return
        ask(
            PinGroup(reassignment.group, reassignment.first, reassignment.order),
            partial(_is_pinned, broker, reassignment),
            decide,
        )

    if reassignment.nodes is None:
        pin()
        return
    command = SetReplicaSets(
        None,
        {reassignment.group: reassignment.nodes},
        by_hand=reassignment.first is not None,
        wall_ns=broker.groups.now().wall_ns,
        node=broker.me,
        trigger=TRIGGER,
        reasons={reassignment.group: TRIGGER if reassignment.order else CANCELLED},
    )
    ask(command, partial(_is_set, broker, reassignment), pin)


def _judge(answer: Answer) -> Verdict:
    return DONE if isinstance(answer.result, Done) else refused(answer.result)


def _is_pinned(broker: Broker, reassignment: _Reassignment) -> bool:
    registry, group = broker.registry, reassignment.group
    same_order = registry.orders.get(group, ()) == reassignment.order
    return registry.pins.get(group) == reassignment.first and same_order


def _is_set(broker: Broker, reassignment: _Reassignment) -> bool:
    return broker.registry.replica_set(reassignment.group) == reassignment.nodes


def _merge(
    request: Request,
    order: Iterable[Place],
    answers: Mapping[Place, Verdict],
    carried_out: Mapping[Place, Verdict],
) -> None:
    known = {**answers, **carried_out}
    verdicts = {place: known[place] for place in order}
    responses = [
        ReassignableTopicResponse(
            topic,
            [
                ReassignablePartitionResponse(index, one.error, one.message)
                for index, one in partitions
            ],
        )
        for topic, partitions in by_topic(verdicts).items()
    ]
    response = AlterPartitionReassignmentsResponse(responses=responses)
    request.reply.complete(encode_response(request.header, response))


# ---- what is under way ---------------------------------------------------------------------------


def handle_reassignments(broker: Broker, request: Request) -> None:
    """The partitions whose Paxos group is on its way to its replica set: all of the group, whoever
    asked for which of them, since all of them move."""
    message = request.message
    assert isinstance(message, ListPartitionReassignmentsRequest)
    partitions: Iterable[tuple[str, int, GroupId]]
    if message.topics is None:
        partitions = every_partition(broker)
    elif refuse_more_than(TOPICS_MAX, message.topics, broker, request):
        return
    else:
        places = [
            Place(one.name, index) for one in message.topics for index in one.partition_indexes
        ]
        if refuse_more_than(PARTITIONS_MAX, places, broker, request):
            return
        partitions = _known(broker, dict.fromkeys(places))
    topics: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)

    def answer() -> None:
        count = sum(map(len, topics.values()))
        answer_aside(broker, request, count, partial(_reassignments, topics))

    broker.portions.in_steps(broker, request.reply, _look(broker, partitions, topics), answer)


def _known(broker: Broker, places: Iterable[Place]) -> Iterator[tuple[str, int, GroupId]]:
    for place in places:
        group = group_of(broker, place)
        if group is not None:
            yield place.topic, place.number, group


def _look(
    broker: Broker,
    partitions: Iterable[tuple[str, int, GroupId]],
    topics: dict[str, list[OngoingPartitionReassignment]],
) -> Iterator[None]:
    """Those under way, by topic; with a Paxos group, all its partitions are."""
    known: dict[GroupId, tuple[list[int], list[int], list[int]] | None] = {}
    for number, (topic, index, group) in enumerate(partitions, 1):
        if group not in known:
            known[group] = _under_way(broker, group)
        moving = known[group]
        if moving is not None:
            topics[topic].append(OngoingPartitionReassignment(index, *moving))
        if number % STEP == 0:
            yield


def _reassignments(
    topics: Mapping[str, list[OngoingPartitionReassignment]],
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        topics=[OngoingTopicReassignment(name, found) for name, found in topics.items()]
    )


def _under_way(broker: Broker, group: GroupId) -> tuple[list[int], list[int], list[int]] | None:
    """The replicas, those being added and those being removed, of each of its partitions. As in
    Kafka, the replicas are the present and the future ones."""
    members = broker.groups.members(group)
    wanted = broker.registry.replica_set(group) or members
    adding = [node for node in wanted if node not in members]
    removing = [node for node in members if node not in wanted]
    if not adding and not removing:
        return None
    replicas = in_order(broker, group, {*wanted, *members}, removing)
    return list(map(int, replicas)), list(map(int, adding)), list(map(int, removing))
