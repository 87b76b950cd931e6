"""Adding and removing nodes over HTTP: what is proposed, and what is refused without force."""

import json
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from balancer.registry.commands import AddNode, Command, FoundCluster, NoteMembers, RemoveNode
from balancer.registry.registry import Registry
from paxos.ids import MS, GroupId, NodeId, Slot
from runtime.admin.nodes import NodeAdmin
from runtime.engine.engine import Engine
from runtime.http.server import Answer, BadRequest, json_answer
from tests.balancer.literals import register
from tests.runtime.engines import Net

FOUNDERS = tuple(NodeId(node) for node in (1, 2, 3))


@attrs.define
class Harness:
    """The admin of node 1, and its proposals."""

    admin: NodeAdmin
    registry: Registry
    net: Net
    proposed: list[Command]

    async def change(self, **body: Any) -> Answer:
        return await self.admin.change(body)

    async def refusal(self, **body: Any) -> str:
        answer = await self.change(**body)
        assert answer.status == 409
        return str(json.loads(answer.body)["error"])


@pytest.fixture
def harness() -> Harness:
    """Three nodes found the cluster, and a fourth is added; all are up."""
    net, registry, proposed = Net(4, groups=(0, 1)), Registry(), []
    registry.apply_command(FoundCluster("test", 2, FOUNDERS, 3), 1)
    for node in FOUNDERS:
        registry.apply_command(register(node, 1), 2)
    net.advance(100)

    async def propose(command: Command) -> Answer:
        proposed.append(command)
        return json_answer({"version": 1})

    engine: Engine = net[1].engine
    raising: Any = SimpleNamespace(registry=registry, reads=lambda _node: None)
    admin = NodeAdmin(engine, raising, registry.members, propose)
    return Harness(admin, registry, net, cast("list[Command]", proposed))


@pytest.mark.parametrize("group", [-1, 3, 2**40, True, "1", None, [1]])
async def test_replicas_of_a_group_that_does_not_exist_are_refused(
    harness: Harness, group: object
) -> None:
    with pytest.raises(BadRequest, match="expected a Paxos group from 0 to 2"):
        await harness.admin.replicas({"group": group, "nodes": [1, 2, 3]})
    assert harness.proposed == []
    answer = await harness.admin.replicas({"group": 2, "nodes": [1, 2, 3]})
    assert answer.status == 200


async def test_a_node_is_added_with_its_address(harness: Harness) -> None:
    answer = await harness.change(do="add", node=4, peer="[::1]:7094", zone="b")
    assert answer.status == 200
    (command,) = harness.proposed
    assert isinstance(command, AddNode)
    assert (command.node, tuple(command.peer), command.zone) == (4, ("::1", 7094), "b")


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"do": "add", "node": 4},
        {"do": "add", "node": 4, "peer": "nowhere"},
        {"do": "add", "node": 4, "peer": "a:1", "zone": 3},
        {"do": "add", "node": 0, "peer": "a:1"},
        {"do": "add", "node": True, "peer": "a:1"},
        {"do": "remove", "node": "4"},
        {"do": "remove", "node": 4, "force": 1},
        {"do": "explode", "node": 4},
    ],
)
async def test_nonsense_is_refused(harness: Harness, body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        await harness.change(**body)
    assert harness.proposed == []


async def test_fewer_nodes_than_copies_need_force(harness: Harness) -> None:
    why = await harness.refusal(do="remove", node=2)
    assert "2 nodes would be left, and every Paxos group has 3 copies: add a node first" in why
    assert (await harness.change(do="remove", node=2, force=True)).status == 200
    assert harness.proposed == [RemoveNode(NodeId(2))]


async def test_a_group_without_a_majority_needs_force(harness: Harness) -> None:
    """A fourth node makes room, but one of the others is down."""
    registry = harness.registry
    peer = register(4, 1).peer
    registry.apply_command(AddNode(NodeId(4), peer), 3)
    registry.apply_command(register(4, 1), 4)
    for node in (2, 4):
        harness.net.crash(node)
    harness.net.system.advance(10_000 * MS)
    harness.net.advance(500)
    why = await harness.refusal(do="remove", node=3)
    assert "the registry would have no majority: only 1 of its other members run" in why
    registry.apply_command(NoteMembers(GroupId(0), Slot(9), (NodeId(1), NodeId(3))), 5)
    assert "no majority" in await harness.refusal(do="remove", node=3)
    assert harness.proposed == []


async def test_what_there_is(harness: Harness) -> None:
    harness.registry.apply_command(AddNode(NodeId(4), register(4, 1).peer, "b"), 3)
    harness.registry.apply_command(RemoveNode(NodeId(3)), 4)
    view = json.loads((await harness.admin.show(None)).body)
    assert [(row["id"], row["life"], row["groups"]) for row in view["nodes"]] == [
        (1, "active", 3),
        (2, "active", 3),
        (3, "leaving", 3),
        (4, "added", 0),
    ]
    assert (view["founders"], view["replicas"], view["moves_left"]) == ([1, 2, 3], 3, 0)


async def test_machines_are_told_with_what_their_loss_would_stop(harness: Harness) -> None:
    registry = harness.registry
    assert json.loads((await harness.admin.show(None)).body)["machines"] == []
    for node, zone in ((1, "a"), (2, "b"), (3, "a")):
        registry.apply_command(register(node, 2, zone), 5)
    one, other = json.loads((await harness.admin.show(None)).body)["machines"]
    assert (one["machine"], one["nodes"], one["groups"]) == ("a", [1, 3], 3)
    assert one["crowded"] == one["stopped_without"] == [0, 1, 2]
    assert "3 Paxos groups have two or more copies on machine a" in one["problem"]
    assert (other["machine"], other["alive"], other["crowded"], other["problem"]) == (
        "b",
        [2],
        [],
        "",
    )
