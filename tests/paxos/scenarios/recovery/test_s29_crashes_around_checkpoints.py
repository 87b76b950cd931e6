"""Scenario 29: a crash between any two steps of a checkpoint, or of a state transfer."""

import random

import pytest

from paxos.ids import NodeId
from simulator.node.crash_points import AT_CHECKPOINTS, Boundary, CrashPoint
from simulator.node.disk import Disk, RecordDisk
from simulator.node.wal_disk import WalDisk
from simulator.script import GROUP, Script

EVERY = 10
OWN = (Boundary.STATE_TAKEN, Boundary.STATE_SAVED, Boundary.LOG_RETIRED)


def with_disks(kind: str) -> Script:
    script = Script(checkpoint_slots=EVERY)
    if kind == "wal":
        for node in script.nodes.values():
            script.crash(node.me)
            node.disk = WalDisk(node.me)
            node.boot()
    return script


def crashed(script: Script, ident: int) -> None:
    """The node crashes at that point and boots again."""
    script.until(lambda: not script.node(ident).up)
    script.boot(ident)


@pytest.mark.parametrize("kind", ["records", "wal"])
@pytest.mark.parametrize("boundary", AT_CHECKPOINTS)
def test_nothing_is_lost(boundary: Boundary, kind: str) -> None:
    """Every promise, vote and applied entry is there again, and the group goes on."""
    script = with_disks(kind)
    script.nemesis.died = lambda node: script.nemesis.crash(node, random.Random(1))  # type: ignore[method-assign] # no dice
    script.elect(0)
    script.write_all(0, 3)
    script.same_everywhere()
    own = boundary in OWN
    if own:
        script.node(2).doom = CrashPoint(boundary)
    else:
        script.isolate(2)
    promised = script.replica(2).acceptor.promised
    script.write_all(0, 4 * EVERY, start=4)
    if not own:
        script.until(lambda: script.held(0).log_start > 1 and script.held(1).log_start > 1)
        script.node(2).doom = CrashPoint(boundary)
        script.mend()
    crashed(script, 2)
    assert script.replica(2).acceptor.promised >= promised
    assert script.replica(2).rejoin is None
    script.until(lambda: script.node(2).up)
    script.same_everywhere()
    assert script.machine(2).value() == script.machine(0).value()
    script.crash(0)
    script.until(lambda: script.masters() in ([1], [2]))
    script.until_acknowledged(script.write(script.masters()[0], 4 * EVERY + 4))


def newest_checkpoint_damaged(disk: Disk) -> None:
    if isinstance(disk, RecordDisk):
        disk.damage_checkpoint(GROUP)
    else:
        assert isinstance(disk, WalDisk)
        disk.damage_checkpoint(GROUP)


@pytest.mark.parametrize("kind", ["records", "wal"])
def test_the_older_checkpoint_serves_where_the_newer_is_damaged(kind: str) -> None:
    script = with_disks(kind)
    script.elect(0)
    script.write_all(0, 4 * EVERY)
    script.until(lambda: script.held(2).log_start > 1)
    script.same_everywhere()
    applied = script.replica(2).learner.applied
    script.crash(2)
    newest_checkpoint_damaged(script.node(2).disk)
    script.boot(2)
    assert script.replica(2).learner.applied + 2 >= applied  # except for what no record proves
    assert script.replica(2).rejoin is None


@pytest.mark.parametrize("kind", ["records", "wal"])
def test_a_peers_state_that_is_damaged_is_forgotten_and_told(kind: str) -> None:
    """The log has a gap: the node no longer knows what was decided in it, so it does not vote."""
    script = with_disks(kind)
    script.elect(0)
    script.write_all(0, 3)
    script.isolate(2)
    script.write_all(0, 4 * EVERY, start=4)
    script.until(lambda: script.held(0).log_start > 1 and script.held(1).log_start > 1)
    script.mend()
    script.until(lambda: script.noticed_count("installed") > 0)
    script.wait(50)
    script.crash(2)
    newest_checkpoint_damaged(script.node(2).disk)
    script.boot(2)
    assert script.replica(2).rejoin is not None
    script.until(lambda: script.replica(2).rejoin is None)
    script.same_everywhere()
    assert script.machine(2).value() == script.machine(0).value()
    assert NodeId(2) in script.replica(0).members
