"""A whole node: what it reports in /readyz, /status and /metrics."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from balancer.registry.catalogue import INTERNAL_TOPICS
from balancer.registry.commands import AddNode, CreateTopic, DeleteTopic
from balancer.registry.records import Address
from broker.proposals.commands import CommandKind, opaque, records
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from coordinator.model import ConsumerGroupId
from coordinator.replicated.commands import DropGroup, encode
from node import Node
from paxos.ids import NOBODY, GroupId, NodeId, Slot
from runtime.config.fields import ConfigError
from runtime.metrics.collector import TICK_GAPS_KEPT
from runtime.metrics.status import node_status
from storage.disk.space import SpaceConfig
from storage.format import OFFSET_BITS, OFFSET_MASK, RECORD_HEADER_BYTES, segment_name
from tests.runtime.one_node import LEASE_MS, one_node, run_until
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with one_node(tmp_path) as node:
        yield node


def scraped(node: Node) -> str:
    return generate_latest(node.metrics_registry).decode()


def ready(node: Node) -> Node:
    run_until(node, lambda: not node.shell.not_ready())
    return node


# -- readiness ------------------------------------------------------------------------------------


def test_a_node_becomes_ready_by_itself(node: Node) -> None:
    assert "not registered" in node.shell.not_ready()
    ready(node)
    assert node.loop.masters(node.engine.now()) == [0, 1, 2, 3]


def test_a_disk_below_the_mark_is_told_and_refuses_writes_and_recovers(tmp_path: Path) -> None:
    with one_node(tmp_path, f"storage.low_water_bytes={1 << 50}") as node:
        run_until(node, lambda: node.engine.disk_pressure.low and node.shell.not_ready() == "")
        group = GroupId(1)
        run_until(node, lambda: node.engine.acting(group))
        outcomes: list[Outcome] = []
        chunks = opaque(CommandKind.CONSUMER_GROUP, encode(DropGroup(ConsumerGroupId("g"))))
        node.engine.submit(group, chunks, outcomes.append)
        assert outcomes == [NotDone(FailureReason.OVERLOADED, NodeId(1))]
        assert "evenkeel_disk_low 1.0" in scraped(node)
        node.writer._space._config = SpaceConfig(low_water_bytes=0)  # somebody has made room
        run_until(node, lambda: not node.engine.disk_pressure.low)
        node.engine.submit(group, chunks, outcomes.append)
        run_until(node, lambda: len(outcomes) == 2)
        assert isinstance(outcomes[1], Done)


def test_what_a_reader_has_met_is_looked_at_by_the_scrubber(tmp_path: Path) -> None:
    with one_node(tmp_path) as node:
        group = GroupId(1)
        run_until(node, lambda: node.engine.acting(group))
        place = node.wal.find(group, Slot(1))[0]
        long = encode(DropGroup(ConsumerGroupId("g" * 10_000)))  # the last block is written again
        outcomes: list[Outcome] = []
        node.engine.submit(group, opaque(CommandKind.CONSUMER_GROUP, long), outcomes.append)
        run_until(node, lambda: outcomes)
        path = tmp_path / "data" / segment_name(place >> OFFSET_BITS)
        with path.open("r+b") as file:
            file.seek((place & OFFSET_MASK) + RECORD_HEADER_BYTES)
            file.write(b"\xff")
        node.statistics.damaged_at.append(place + RECORD_HEADER_BYTES)
        run_until(node, lambda: node.engine.repairs.found == 1)
        assert "evenkeel_log_damage_total 1.0" in scraped(node)
        assert node.engine.acting(group), "what it has promised is written again"


def test_without_a_majority_it_is_not_registered(tmp_path: Path) -> None:
    with one_node(tmp_path, peers=(1, 2, 3)) as node:
        for _ in range(20):
            node.shell.tick()
        assert "waiting for 2 nodes to say that they know" in node.shell.not_ready()
        assert node.engine.admission is not None
        node.engine.admission.settled = True
        assert "clock has not been compared" in node.shell.not_ready()
        node.clock.trust.compared = node.clock.trusted = True
        assert "not registered with the cluster yet" in node.shell.not_ready()
        node.clock.trusted = False  # found with real nodes: it cannot register for that very reason
        assert "clock is off" in node.shell.not_ready()


def test_each_reason_not_to_send_clients_has_a_text(node: Node) -> None:
    ready(node)
    replica = node.multi.replicas[GroupId(2)]

    replica.learner.note_chosen(Slot(replica.learner.applied + 100))
    assert node.shell.not_ready() == "group 2 is 100 slots behind"
    replica.learner.chosen_to = replica.learner.applied

    holder, replica.lease.holder = replica.lease.holder, NOBODY
    assert node.shell.not_ready() == "group 2 has no master yet"
    replica.lease.holder = holder

    node.clock.trusted = False
    assert "clock is off" in node.shell.not_ready()
    node.clock.trusted = True

    assert node.shell.not_ready() == ""
    node.loop.start_draining()
    assert node.shell.not_ready() == "draining"


def test_another_founding_than_the_clusters_is_refused(tmp_path: Path) -> None:
    """The founding was chosen once for all; with another one a node would have different groups."""
    with one_node(tmp_path, groups=3) as node:
        ready(node)
    founded = 'the cluster was founded with count = 3, replicas = 3, founders = "1"'
    for sets, groups in (((), 2), (("groups.replicas=2",), 3), (("groups.founders=1,2",), 3)):
        with pytest.raises(ConfigError, match=founded), one_node(tmp_path, *sets, groups=groups):
            pytest.fail("it must not come this far")
    with one_node(tmp_path, groups=3) as node:
        ready(node)


def test_a_restart_finds_everything_again(tmp_path: Path) -> None:
    """Its incarnation is the next one, or one derived from the wall clock if that is later."""
    with one_node(tmp_path) as node:
        ready(node)
        done: list[object] = []
        node.client.propose(CreateTopic("kept", b"0" * 16, 3, 1), done.append)
        run_until(node, lambda: done)
        incarnation = node.multi.incarnation
    with one_node(tmp_path) as node:
        assert node.multi.incarnation > incarnation
        ready(node)
        assert set(node.registry.topics) - INTERNAL_TOPICS == {"kept"}


def test_a_restart_does_not_bring_a_deleted_topic_back_into_memory(tmp_path: Path) -> None:
    """Its batches are still in the log and are replayed."""
    with one_node(tmp_path) as node:
        ready(node)
        done: list[object] = []
        node.client.propose(CreateTopic("short-lived", b"0" * 16, 1, 1), done.append)
        run_until(node, lambda: done)
        (uid, group), *_ = node.registry.topics["short-lived"].partitions
        batch = memoryview(build_batch([Record(b"value")]))
        node.engine.submit(group, records(uid, batch), done.append)
        run_until(node, lambda: len(done) == 2)
        assert node.machines[group].partitions[uid].next_offset == 1
        node.client.propose(DeleteTopic("short-lived"), done.append)
        run_until(node, lambda: len(done) == 3)
        run_until(node, lambda: uid not in node.machines[group].partitions)
    with one_node(tmp_path) as node:
        ready(node)
        assert uid not in node.machines[group].partitions


# -- status ---------------------------------------------------------------------------------------


def test_status_is_plain_json(node: Node) -> None:
    ready(node)
    text = json.dumps(
        node_status(
            node.config,
            node.engine,
            node.broker,
            node.loop,
            node.handovers,
            node.upkeep,
            node.started_boot_ns,
        )
    )
    status = json.loads(text)
    assert (status["node"], status["durability"], status["clock_trusted"]) == (1, "fsync", True)
    assert [row["group"] for row in status["groups"]] == [0, 1, 2, 3]
    assert all(row["acting"] and row["master"] == 1 for row in status["groups"])
    assert status["nodes"] == [
        {"id": 1, "kafka": "127.0.0.1:1", "http": "127.0.0.1:3", "zone": "", "alive": True}
    ]


# -- metrics --------------------------------------------------------------------------------------


def scrape(node: Node) -> dict[str, dict[tuple[str, ...], float]]:
    """Sample name -> label values -> value, read back by Prometheus's own parser."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    text = generate_latest(node.metrics_registry).decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = tuple(sample.labels.values())
            assert labels not in found.setdefault(sample.name, {}), f"{sample.name} twice"
            found[sample.name][labels] = sample.value
    return found


def test_every_documented_metric_is_there(node: Node) -> None:
    """Also those without samples yet, by the name of their family."""
    ready(node)
    rows = re.findall(r"^\| `(evenkeel_[a-z0-9_]+)", REFERENCE.read_text(), re.MULTILINE)
    assert len(rows) > 40
    text = generate_latest(node.metrics_registry).decode()
    families = {family.name for family in text_string_to_metric_families(text)}
    families = {name for name in families if not name.startswith("process_")}
    assert {row.removesuffix("_total") for row in rows} == families


def test_metrics_say_what_is(node: Node) -> None:
    ready(node)
    for _ in range(3):
        node.metrics.tick()
    shown = scrape(node)
    assert shown["evenkeel_groups"] == {("1",): 4, ("none",): 0}
    assert set(shown["evenkeel_group_acting"].values()) == {1}
    assert shown["evenkeel_clock_trusted"] == {(): 1}
    assert 0 < max(shown["evenkeel_lease_remaining_seconds"].values()) <= LEASE_MS / 1000
    assert shown["evenkeel_wal_syncs_total"][()] >= shown["evenkeel_wal_sync_seconds_count"][()] > 0
    assert shown["evenkeel_entries_applied_total"][()] > 0
    assert shown["evenkeel_proposals_total"][()] > 0
    assert shown["process_resident_memory_bytes"][()] > 10_000_000


def test_links_to_peers_have_metrics(tmp_path: Path) -> None:
    with one_node(tmp_path, peers=(1, 2, 3)) as node:
        node.clock.on_reading(NodeId(2), 5_000_000, 0)
        node.peers.outgoing[NodeId(3)].dropped = 7
        shown = scrape(node)
        assert shown["evenkeel_peer_up"] == {("2",): 0, ("3",): 0}
        assert shown["evenkeel_peer_dropped_total"] == {("2",): 0, ("3",): 7}
        assert shown["evenkeel_clock_offset_seconds"] == {("2",): 0.005}
        assert shown["evenkeel_groups"] == {("none",): 4}


def gap_s(node: Node) -> float:
    return scrape(node)["evenkeel_tick_gap_seconds"][()]


def test_scraping_changes_nothing(node: Node) -> None:
    """Two scrapers, or a curious operator, must not hide from each other how long the loop hung."""
    node.engine.statistics.loop_lag_ns_max = 700_000_000
    assert [gap_s(node), gap_s(node)] == [0.7, 0.7]
    node.metrics.tick()
    node.engine.statistics.loop_lag_ns_max = 20_000_000
    for _ in range(TICK_GAPS_KEPT - 1):
        node.metrics.tick()
        assert gap_s(node) == 0.7
    node.metrics.tick()
    assert gap_s(node) < 0.7


def test_links_of_a_restarted_node_are_those_of_its_log(tmp_path: Path) -> None:
    """Its configuration may be from before other nodes came; without their links it may find no
    majority."""
    with one_node(tmp_path) as node:
        ready(node)
        for number in (4, 5):  # the second one proves that the first is chosen
            done: list[object] = []
            node.client.propose(AddNode(NodeId(number), Address("10.0.0.4", number)), done.append)
            run_until(node, lambda done=done: done)
        assert list(node.peers.outgoing) == [4, 5]
    with one_node(tmp_path) as node:
        assert 4 in node.peers.outgoing
