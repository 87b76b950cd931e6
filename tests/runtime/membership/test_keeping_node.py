"""A whole node: what it has witnessed survives it, and an operator's orders are carried out."""

import errno
import shutil
from pathlib import Path

import pytest

from balancer.registry.commands import CreateTopic
from cli import main as cli
from node import Node
from paxos.entry import NOOP
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, Incarnation, NodeId, Slot
from paxos.messages import Progress
from paxos.step import AcceptRecord, PromiseRecord, Record, Step, VotingRecord
from runtime.membership.admission import Admission, Judgement, Life, Verdict
from runtime.membership.local_records import LocalRecords
from runtime.system.worker import Worker
from storage.disk.memory import MemoryDisk
from storage.disk.space import RESERVE_NAME
from storage.errors import DirectoryRefused
from storage.evidence import evidence_name
from storage.format import segment_name
from storage.lives import read_lives
from storage.unsafe_recovery import UNSAFE_NAME
from tests.runtime.doubles import Recorder
from tests.runtime.one_node import one_node, run_until

PEER = NodeId(2)
REACHED = 5_000


def life(incarnation: int, place: int, *, settled: bool) -> Life:
    one, before = Incarnation(incarnation), Incarnation(incarnation - 1)
    return Life(one, before, place, settled, asks=not settled)


def test_what_a_node_has_witnessed_is_known_to_its_next_life(tmp_path: Path) -> None:
    witness = tmp_path / "data" / "witness"
    with one_node(tmp_path, peers=(1, 2)) as node:
        for _ in range(2):  # a single report may be wrong
            node.engine.on_life(PEER, life(7, REACHED, settled=True))
        run_until(node, witness.exists)
    with one_node(tmp_path, peers=(1, 2)) as node:
        admission = node.engine.admission
        assert admission is not None
        old_copy, all_of_it = life(8, REACHED - 1, settled=False), life(8, REACHED, settled=False)
        assert admission.judge(PEER, old_copy).judgement is Judgement.FORGETFUL
        assert admission.judge(PEER, all_of_it).judgement is Judgement.KNOWN


@pytest.mark.parametrize("more", ["promise", "vote", "non-voting", "promise of this life"])
def test_whose_log_has_only_promises_knows_an_empty_directory(tmp_path: Path, more: str) -> None:
    """Nothing can have been chosen with votes that such a directory has lost."""
    group, mine = GroupId(1), Ballot(3, NodeId(1))
    records: dict[str, Record] = {
        "promise": PromiseRecord(group, mine),
        "vote": AcceptRecord(group, Slot(1), mine, NOOP, Slot(0)),
        "non-voting": VotingRecord(group, False, mine),
        "promise of this life": PromiseRecord(group, mine),
    }
    with one_node(tmp_path, peers=(1, 2)) as node:
        write(node, PromiseRecord(group, mine), records[more])
    with one_node(tmp_path, peers=(1, 2)) as node:
        if more == "promise of this life":
            write(node, PromiseRecord(group, Ballot(4, NodeId(1))))
        admission = node.engine.admission
        assert admission is not None
        empty = Life(Incarnation(8), Incarnation(0), 1, settled=False, asks=True)
        judgement = Judgement.KNOWN if more == "promise" else Judgement.FORGETFUL
        assert admission.judge(PEER, empty).judgement is judgement


def test_a_directory_that_was_told_halfway_votes_in_no_group(tmp_path: Path) -> None:
    """It was emptied, and its node had voted but not registered yet: no peer can tell it again."""
    with one_node(tmp_path, peers=(1, 2)) as node:
        write(node, VotingRecord(GroupId(1), False, BALLOT_ZERO))
    with one_node(tmp_path, peers=(1, 2)) as node:
        assert not node.engine.takes_part
        run_until(node, lambda: node.engine.takes_part)
        assert {one.group for one in node.multi.replicas.values()} >= {0, 2, 3}
        assert not any(one.can_vote() for one in node.multi.replicas.values())
    with one_node(tmp_path, peers=(1, 2)) as node:
        assert not any(one.can_vote() for one in node.multi.replicas.values())


def write(node: Node, *records: Record) -> None:
    for record in records:
        node.wal.stage(record)
    batch = node.wal.take()
    assert batch is not None
    node.wal.write(batch)
    node.wal.written(batch)


def test_a_log_that_differs_is_told_and_kept(tmp_path: Path) -> None:
    """With two members nobody can tell whose log is wrong."""
    group = GroupId(1)
    with one_node(tmp_path, peers=(1, 2)) as node:
        replica, step = node.multi.replicas[group], Step()
        assert node.engine.admission is not None
        node.engine.admission.settled = True
        applied = replica.learner.applied
        word = Progress(group, applied, applied, BALLOT_ZERO, Incarnation(1), chain=7)
        replica.on_message(node.engine.now(), PEER, word, step)
        for notice in step.notices:
            node.shell.on_notice(node.engine.now(), notice)
        assert "the log of group 1 differs from that of node 2" in node.shell.not_ready()
        assert not replica.can_vote()
        folder = tmp_path / "data" / evidence_name(group)
        run_until(node, lambda: (folder / segment_name(1)).exists())


def test_a_life_that_the_peers_know_to_be_later_is_followed_by_a_still_later_one(
    tmp_path: Path,
) -> None:
    """World 732: a life begun by a clock 15 hours ahead, then an old copy of the directory."""
    with one_node(tmp_path, peers=(1, 2)) as node:
        mine = node.multi.incarnation
        known = Incarnation(mine + 54_000)
        outdated = Verdict(mine, Judgement.OUTDATED, known)
        assert node.engine.life(PEER) is not None, "it asks"
        node.engine.on_verdict(PEER, outdated)
        assert node.engine.life(PEER) is not None, "once may be wrong"
        with pytest.raises(DirectoryRefused, match="Check the clock and start again"):
            node.engine.on_verdict(PEER, outdated)
    with one_node(tmp_path, peers=(1, 2)) as node:
        assert node.multi.incarnation == known + 1
        told = node.engine.life(PEER)
        assert told is not None
        assert told.previous < known, "the peers must not take it for the directory they know"


def outlived(disk: MemoryDisk, recorder: Recorder) -> LocalRecords:
    """The records of a node of which the peers know life 150; it stops, and has not registered."""
    records = LocalRecords(disk, Path(), Worker("reader", lambda: None), recorder.journal)
    records.admission = Admission(
        NodeId(1),
        Incarnation(99),
        Incarnation(50),
        quorum_sets=lambda: [(NodeId(1), PEER)],
        nodes=dict,
        untouched=lambda _node: False,
    )
    records.admission.outlived_by = Incarnation(150)
    return records


def test_what_the_peers_know_finds_room_on_a_full_disk() -> None:
    """Otherwise every start would be refused like this one, until the clock had caught up."""
    disk = MemoryDisk()
    disk.create(RESERVE_NAME)
    disk.fail("write", errno.ENOSPC)
    outlived(disk, Recorder()).close()
    assert read_lives(disk).above == 150
    assert RESERVE_NAME not in disk.names()


def test_a_full_disk_does_not_hide_why_the_directory_was_refused() -> None:
    disk, recorder = MemoryDisk(), Recorder()
    disk.fail("write", errno.ENOSPC)
    outlived(disk, recorder).close()
    assert recorder.said("local records not written")


# -- a node that is a cluster of its own ----------------------------------------------------------


def propose(node: Node, name: str) -> None:
    done: list[object] = []
    node.client.propose(CreateTopic(name, name.encode().ljust(16), 1, 1), done.append)
    run_until(node, lambda: done)


def ready(node: Node) -> None:
    run_until(node, lambda: not node.shell.not_ready())


def test_who_is_alone_refuses_damage_until_it_is_ordered_to_go_on_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with one_node(tmp_path) as node:
        ready(node)
        for name in ("before", "damaged", "after"):
            propose(node, name)
    segment = data / segment_name(1)
    content = bytearray(segment.read_bytes())
    content[content.index(b"damaged".ljust(16)) + 1] ^= 0x10
    segment.write_bytes(content)
    other = tmp_path / "other"  # a process that refuses to start keeps its lock until it ends
    shutil.copytree(data, other / "data")
    with pytest.raises(DirectoryRefused, match="evenkeel data unsafe-recover"), one_node(other):
        pytest.fail("it must not come this far")
    recover = ["data", "unsafe-recover", str(data)]
    assert cli.run(recover) == 2
    assert "can lose acknowledged" in capsys.readouterr().out
    assert not (data / UNSAFE_NAME).exists(), "it is only told"
    assert cli.run([*recover, "--lose-data"]) == 0
    with one_node(tmp_path) as node:
        ready(node)
        assert {"before", "after"} <= set(node.registry.topics)
        assert "damaged" not in node.registry.topics
        propose(node, "later")
    assert not (data / UNSAFE_NAME).exists()
    with one_node(tmp_path) as node:
        ready(node)
        assert {"before", "after", "later"} <= set(node.registry.topics)
    assert cli.run(recover) == 1, "all groups vote"


def test_a_node_registers_only_a_life_that_its_disk_knows_to_be_admitted(tmp_path: Path) -> None:
    """Otherwise the directory would be told at its next start that it is an old copy."""
    with one_node(tmp_path) as node:
        me = node.multi.incarnation
        run_until(node, lambda: NodeId(1) in node.registry.nodes)
        assert dict(read_lives(node.disk).starts)[me] == me


def test_no_handover_goes_on_in_a_group_that_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with one_node(tmp_path) as node:
        ended: list[GroupId] = []
        monkeypatch.setattr(node.handovers, "dropped", ended.append)
        node.hosting.dropped(GroupId(1), node.machines[GroupId(1)])
        assert ended == [GroupId(1)]
