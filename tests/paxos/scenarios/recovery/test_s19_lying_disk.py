"""Scenario 19: a disk lied about a promise: the node stops voting, and votes again later."""

from paxos.messages import Accepted, Prepare, Progress, Promise
from paxos.timing import WINDOW_MAX
from simulator.node.disk import RecordDisk
from simulator.script import GROUP, Script


def test_lying_disk() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 5)
    script.prepare(1)
    script.until(lambda: len(script.masters()) == 1)
    script.write_all(script.masters()[0], 3, start=6)
    promised = script.replica(2).acceptor.promised
    script.crash(2)
    disk = script.node(2).disk
    assert isinstance(disk, RecordDisk)
    disk.lose_tail(12)
    script.boot(2)
    began_ns = script.loop.now_ns
    assert script.replica(2).acceptor.promised < promised, "it has forgotten a promise"

    script.until(lambda: script.replica(2).rejoin is not None)
    assert script.noticed_count("non-voting") == 1
    master = script.masters()[0]
    script.write_all(master, 20, start=9)
    script.same_everywhere()  # it still learns
    voted = [s for s in script.sent(Promise, Accepted, since_ns=began_ns) if s.source == 2]
    assert voted == [], "and says nothing that it might contradict"
    script.crash(2)
    script.boot(2)
    assert script.replica(2).rejoin is not None, "the state survives a restart"

    script.write_all(master, WINDOW_MAX + 10, start=29)
    script.until(lambda: script.replica(2).rejoin is None)
    assert script.replica(2).acceptor.promised >= promised
    script.crash(({0, 1} - {master}).pop())
    script.until_acknowledged(script.write(master, 1, client=201))  # its vote is needed and counts


def test_what_an_earlier_life_was_told_comes_again() -> None:
    """What the old answers say does not cover what that life did later: the node stays silent (seed
    122)."""
    script = Script()
    script.elect(0)
    script.write_all(0, 5)
    script.prepare(1)
    script.until(lambda: len(script.masters()) == 1)
    script.write_all(script.masters()[0], 3, start=6)
    promised = script.replica(2).acceptor.promised
    script.crash(2)
    disk = script.node(2).disk
    assert isinstance(disk, RecordDisk)
    assert disk.lose_promise(GROUP)
    script.isolate(2, outbound=False)  # nobody can tell it anything now
    old = [sent for sent in script.sent(Progress) if sent.target == 2]
    script.boot(2)
    began_ns = script.loop.now_ns
    forgotten = [sent for sent in script.sent(Prepare) if sent.message.ballot == promised]
    script.mend()
    now = script.hold(Progress, target=2)
    for sent in [*old, *forgotten]:
        script.wire.deliver(sent)
    script.wait(50)
    assert script.node(2).told == set()
    said = [s for s in script.sent(Promise, Accepted, since_ns=began_ns) if s.source == 2]
    assert said == [], "it would promise once more what it has promised, and conceal its votes"
    script.release(now)
    script.until(lambda: script.replica(2).rejoin is not None)
    assert script.node(2).told
