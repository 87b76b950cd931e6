"""A change that reaches the registry's log late undoes nothing that was acknowledged since."""

import pytest

from balancer.registry.commands import (
    AddNode,
    Command,
    ConfigureTopic,
    CreatePartitions,
    CreateTopic,
    Decided,
    DeleteTopic,
    DrainNode,
    FoundCluster,
    PauseBalancer,
    PinGroup,
    Refusal,
    Refused,
    RemoveNode,
    Result,
    SetReplicaSets,
    TopicCreated,
)
from balancer.registry.records import Address
from balancer.registry.registry import Registry
from paxos.ids import GroupId, NodeId, Slot
from tests.balancer.literals import placement, register, run

ID, OTHER_ID = bytes([1] * 16), bytes([2] * 16)
NODES = tuple(map(NodeId, (1, 2, 3)))


def founded() -> Registry:
    """Three nodes and a topic "a"; slots of decisions are remembered from the founding on."""
    registry = Registry()
    run(registry, Decided(Slot(0), FoundCluster("c", 4, NODES, 3)), *map(register, NODES))
    run(registry, placement({0: 1, 1: 2}), CreateTopic("a", ID, 2))
    return registry


def decide(registry: Registry, command: Command) -> Decided:
    return Decided(registry.applied, command)


def overtaken(result: Result) -> bool:
    return isinstance(result, Refused) and result.reason is Refusal.OVERTAKEN


def settings(value: str) -> ConfigureTopic:
    return ConfigureTopic("a", ID, {"retention.ms": value})


HOME, SECOND = Address("10.0.0.4", 7000), Address("10.0.0.2", 7000)
LATE: dict[str, tuple[Command, tuple[Command, ...]]] = {
    "a setting": (settings("1"), (settings("2"),)),
    "a setting that was so already": (settings("1"), (settings("2"), settings("2"))),
    "back to the defaults": (ConfigureTopic("a", ID, {}, replace=True), (settings("2"),)),
    "a deletion after somebody has configured it": (DeleteTopic("a", ID), (settings("2"),)),
    "a topic that was deleted": (
        CreateTopic("b", OTHER_ID, 1),
        (CreateTopic("b", OTHER_ID, 1), DeleteTopic("b", OTHER_ID)),
    ),
    "partitions of another topic of that name": (
        CreatePartitions("a", 5),
        (DeleteTopic("a", ID), CreateTopic("a", OTHER_ID, 1)),
    ),
    "a pause": (PauseBalancer(True), (PauseBalancer(False),)),
    "a pause of one group": (
        PauseBalancer(False, GroupId(1)),
        (PauseBalancer(True, GroupId(1)),),
    ),
    "a drain": (DrainNode(NodeId(2), True), (DrainNode(NodeId(2), False),)),
    "a removal": (RemoveNode(NodeId(2)), (RemoveNode(NodeId(2)), AddNode(NodeId(2), SECOND))),
    "an addition": (AddNode(NodeId(4), HOME), (AddNode(NodeId(4), HOME), RemoveNode(NodeId(4)))),
    "a pin": (PinGroup(GroupId(1), NodeId(2)), (PinGroup(GroupId(1), None),)),
    "a pin after a placement by hand": (
        PinGroup(GroupId(1), NodeId(2)),
        (placement({0: 1, 1: 1}),),
    ),
    "a replica set": (
        SetReplicaSets(None, {GroupId(1): NODES[:2]}),
        (SetReplicaSets(None, {GroupId(1): NODES[1:]}),),
    ),
}


@pytest.mark.parametrize("what", LATE)
def test_what_was_decided_before_is_refused(what: str) -> None:
    """F1: a client that was answered meanwhile, even that nothing had to change, finds it so
    afterwards."""
    late, since = LATE[what]
    registry = founded()
    decision = decide(registry, late)
    assert not any(isinstance(told, Refused) for told in run(registry, *since))
    before = registry.snapshot()
    assert overtaken(run(registry, decision)[0])
    registry.applied = Slot(registry.applied - 1)
    assert registry.snapshot() == before


@pytest.mark.parametrize("what", LATE)
def test_the_same_decision_is_carried_out_once(what: str) -> None:
    """Both copies were on their way, because the fate of the first was unknown."""
    command, _ = LATE[what]
    registry = founded()
    decision = decide(registry, command)
    first = run(registry, decision)[0]
    assert not isinstance(first, Refused)
    again = run(registry, decision)[0]
    if isinstance(first, TopicCreated):
        assert again == first
    elif isinstance(command, DeleteTopic):
        assert isinstance(again, Refused)
        assert again.reason is Refusal.UNKNOWN_TOPIC
    else:
        assert overtaken(again)


def test_decisions_on_different_things_do_not_disturb_each_other() -> None:
    registry = founded()
    run(registry, CreateTopic("b", OTHER_ID, 2))
    decisions = [
        decide(registry, command)
        for command in (
            settings("1"),
            CreatePartitions("b", 3),
            CreateTopic("c", bytes([3] * 16), 1),
            CreateTopic("d", bytes([4] * 16), 1),
            PinGroup(GroupId(1), NodeId(2)),
            PinGroup(GroupId(2), NodeId(2)),
            PauseBalancer(True),
            PauseBalancer(True, GroupId(1)),
            DrainNode(NodeId(1), True),
            DrainNode(NodeId(2), True),
            SetReplicaSets(None, {GroupId(1): NODES[:2]}),
            SetReplicaSets(None, {GroupId(2): NODES[:2]}),
        )
    ]
    assert not any(isinstance(told, Refused) for told in run(registry, *decisions))


def test_a_refused_change_overtakes_nobody() -> None:
    registry = founded()
    decision = decide(registry, settings("1"))
    assert isinstance(run(registry, CreatePartitions("a", 1))[0], Refused)
    assert not isinstance(run(registry, decision)[0], Refused)


def test_nothing_is_remembered_of_a_topic_that_is_gone() -> None:
    registry = founded()
    kept = len(registry.image().decided)
    for _ in range(3):
        run(registry, CreateTopic("b", OTHER_ID, 1), DeleteTopic("b", OTHER_ID))
    assert len(registry.image().decided) == kept + 1


def test_where_an_older_version_has_kept_the_log_the_first_decision_begins() -> None:
    """The basis of the decision may have changed unseen. Replicas that continue from an older
    checkpoint must reach the same result as those that have the log."""
    registry = Registry()
    run(registry, FoundCluster("c", 4, NODES, 2), *map(register, NODES), CreateTopic("a", ID, 2))
    first = decide(registry, settings("1"))
    assert registry.image().fenced_since == 0
    assert overtaken(run(registry, first)[0])
    assert registry.image().fenced_since == registry.applied
    assert not isinstance(run(registry, decide(registry, settings("1")))[0], Refused)
