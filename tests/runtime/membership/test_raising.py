"""When the cluster version rises: every member has said that it reads the next one."""

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from balancer.registry.commands import Command, Decided, FoundCluster
from balancer.registry.registry import Registry
from balancer.registry.versions import (
    NoteReads,
    RaiseClusterVersion,
    Reads,
)
from paxos.ids import MS, Incarnation, NodeId, Now, Slot
from runtime.admin.versions import VersionAdmin
from runtime.http.server import Answer, BadRequest, json_answer
from runtime.membership.peer_versions import PeerVersions
from runtime.membership.raising import NEW_SLOTS_MAX, Raising, RaisingConfig
from runtime.membership.versions import OURS, UNTOLD
from tests.balancer.literals import register
from tests.runtime.doubles import Recorder
from wire.software import CLUSTER_VERSION_NEWEST as NEWEST

NODES = tuple(NodeId(node) for node in (1, 2, 3))
MINUTE_MS = 60_000


@attrs.define
class Harness:
    """Node 1, the registry's master, with a clock that the test moves."""

    registry: Registry
    peers: PeerVersions
    raising: Raising
    proposed: list[Command]
    ms: int = 0

    def tell(self, *nodes: int) -> None:
        for node in nodes:
            self.peers.told(NodeId(node), OURS)

    def tick(self, after_ms: int = 2_000, *, master: bool = True) -> list[Command]:
        """What is proposed now; the registry applies it."""
        self.ms += after_ms
        self.proposed.clear()
        self.raising.tick(Now(self.ms * MS, self.ms * MS), master=master)
        for command in self.proposed:
            self.registry.apply_command(command, self.registry.applied + 1)
        return [one.command if isinstance(one, Decided) else one for one in self.proposed]


Make = Callable[..., Harness]


@pytest.fixture
def make() -> Make:
    def made(*, founded: bool = True, registered: int = 3, **config: Any) -> Harness:
        registry, peers, proposed = Registry(), PeerVersions(), []
        client: Any = SimpleNamespace(
            registry=registry, propose=lambda command, _done: proposed.append(command)
        )

        def found() -> None:
            registry.apply_command(Decided(Slot(0), FoundCluster("c", 2, NODES, 3)), 1)
            for node in NODES[:registered]:
                registry.apply_command(register(node, 1), 2)

        if founded:
            found()
        raising = Raising(NodeId(1), client, peers, RaisingConfig(**config), Recorder().journal)
        if not founded:
            found()
        return Harness(registry, peers, raising, proposed)

    return made


def test_it_rises_when_the_last_member_has_told_that_it_reads_it(make: Make) -> None:
    one = make()
    one.tell(2)
    assert one.tick() == []
    assert one.raising.waits_for() == "node 3 has not told its version: is it down?"
    one.tell(3)
    assert one.tick() == [RaiseClusterVersion(NEWEST)]
    assert one.registry.cluster_version.version == NEWEST
    assert one.raising.waits_for() == ""


def test_a_node_of_before_holds_it_back_and_is_named(make: Make) -> None:
    one = make()
    one.tell(2)
    one.peers.told(NodeId(3), UNTOLD)
    assert one.tick() == []
    assert one.raising.waits_for().startswith("node 3 runs a version of Evenkeel from before")


def test_a_node_that_is_down_counts_with_what_it_told_last(make: Make) -> None:
    one = make(after_ns=MINUTE_MS * MS)
    one.tell(2, 3)
    one.peers.greeted(NodeId(3), Incarnation(5))  # a new process, which has told nothing yet
    assert one.tick() == []
    assert "node 3 has not told its version" in one.raising.waits_for()


def test_a_founder_that_never_registered_is_a_member(make: Make) -> None:
    one = make(registered=2)
    one.tell(2)
    assert one.tick() == []
    one.tell(3)
    assert one.tick() == [], "it must be in the registry, too, or a lost vote could miss it"


def test_only_the_registrys_master_raises_it(make: Make) -> None:
    one = make()
    one.tell(2, 3)
    assert one.tick(master=False) == []
    assert one.tick() == [RaiseClusterVersion(NEWEST)]


def test_after_an_upgrade_there_is_time_to_go_back(make: Make) -> None:
    one = make(after_ns=10 * MINUTE_MS * MS)
    one.tell(2, 3)
    assert one.tick() == []
    assert one.tick(9 * MINUTE_MS) == []
    one.peers.told(NodeId(2), UNTOLD)  # it went back
    assert one.tick() == []
    one.tell(2)
    assert one.tick(5 * MINUTE_MS) == [], "the time begins again"
    assert one.tick(10 * MINUTE_MS) == [RaiseClusterVersion(NEWEST)]


def test_a_new_cluster_does_not_wait(make: Make) -> None:
    one = make(founded=False, after_ns=10 * MINUTE_MS * MS)
    one.tell(2, 3)
    assert one.tick() == [RaiseClusterVersion(NEWEST)]


def test_a_node_with_an_empty_directory_does_not_make_an_old_cluster_new(make: Make) -> None:
    """A disk was replaced during the upgrade, and its node is the registry's master now."""
    one = make(founded=False, after_ns=10 * MINUTE_MS * MS)
    one.registry.apply_command(register(NodeId(1), 2), Slot(NEW_SLOTS_MAX + 1))
    one.tell(2, 3)
    assert one.tick() == []
    assert one.tick(10 * MINUTE_MS) == [RaiseClusterVersion(NEWEST)]


def test_by_hand_it_never_rises_by_itself(make: Make) -> None:
    one = make(automatic=False)
    one.tell(2, 3)
    assert one.tick() == []
    assert "by-hand" in one.raising.waits_for()
    assert one.raising.possible() == NEWEST


def test_from_version_2_on_the_registry_knows_what_nodes_read(make: Make) -> None:
    one = make()
    one.tell(2, 3)
    one.tick()
    assert one.tick() == [NoteReads(NodeId(1), OURS.reads)]
    assert one.tick() == []
    later = Reads(2, 3, "0.4.0")
    one.registry.apply_command(NoteReads(NodeId(2), later), one.registry.applied + 1)
    one.peers.greeted(NodeId(2), Incarnation(7))  # it is down, and has told this process nothing
    assert one.raising.reads(NodeId(2)) == later


def test_the_registry_refuses_what_a_node_cannot_read_and_any_fall(make: Make) -> None:
    one = make()
    registry = one.registry
    old = NoteReads(NodeId(2), Reads(1, 1, "0.2.0"))
    registry.apply_command(old, registry.applied + 1)
    result: Any = registry.apply_command(RaiseClusterVersion(2), registry.applied + 1)
    assert result.detail == "node 2 runs Evenkeel 0.2.0, which reads cluster versions 1 to 1"
    registry.apply_command(NoteReads(NodeId(2), OURS.reads), registry.applied + 1)
    registry.apply_command(RaiseClusterVersion(2), registry.applied + 1)
    result = registry.apply_command(RaiseClusterVersion(1), registry.applied + 1)
    assert result.detail == "the cluster version is 2, and never falls"
    assert registry.cluster_version.version == 2


# -- over HTTP ------------------------------------------------------------------------------------


def admin(one: Harness) -> VersionAdmin:
    async def propose(command: Command) -> Answer:
        one.registry.apply_command(command, one.registry.applied + 1)
        return json_answer({"version": 1})

    return VersionAdmin(one.raising, propose)


def said(answer: Answer) -> str:
    assert answer.status == 409
    return str(json.loads(answer.body)["error"])


async def test_by_hand_it_is_raised_at_once_if_every_node_reads_it(make: Make) -> None:
    one = make(automatic=False)
    by_hand = admin(one)
    one.tell(2)
    refused = said(await by_hand.change({"set": 2}))
    assert refused == (
        "not every node can read cluster version 2: node 3 has not told its version: is it down?"
    )
    one.tell(3)
    assert (await by_hand.change({"set": 2})).status == 200
    assert one.registry.cluster_version.version == 2
    assert "never falls" in said(await by_hand.change({"set": 1}))
    assert f"up to {NEWEST}" in said(await by_hand.change({"set": NEWEST + 1}))


async def test_it_is_shown_with_what_each_node_reads(make: Make) -> None:
    one = make()
    one.tell(2)
    view = json.loads((await admin(one).show(None)).body)
    assert (view["version"], view["possible"], view["newest"]) == (1, 1, NEWEST)
    assert [row["newest"] for row in view["nodes"]] == [NEWEST, NEWEST, None]
    assert view["waits_for"] == "node 3 has not told its version: is it down?"


async def test_a_hold_stops_the_automatic_raise(make: Make) -> None:
    one = make()
    await admin(one).change({"hold": True})
    one.tell(2, 3)
    assert one.tick() == []
    assert "an operator holds it" in one.raising.waits_for()
    await admin(one).change({"hold": False})
    assert one.tick() == [RaiseClusterVersion(NEWEST)]


@pytest.mark.parametrize(
    "body", [{}, {"set": "2"}, {"set": True}, {"hold": 1}, {"set": 2, "hold": True}]
)
async def test_what_is_no_request_is_refused(make: Make, body: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match="expected"):
        await admin(make()).change(body)
