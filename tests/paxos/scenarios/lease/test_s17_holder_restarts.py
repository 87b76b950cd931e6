"""Scenario 17: the holder restarts during its lease and takes over at once by BeMaster (R11)."""

from paxos.ids import MS
from paxos.messages import Prepare
from simulator.script import Script


def test_holder_restarts() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 3)
    timing, epoch = script.options.timing, script.replica(0).lease.epoch
    ballot = script.replica(0).proposer.ballot
    script.crash(0)
    script.wait(10)
    script.boot(0)
    began_ns = script.loop.now_ns
    assert script.replica(0).lease.holder == 0
    assert not script.acting(0), "never on a replayed lease"
    script.until(lambda: script.masters() == [0])
    assert script.loop.now_ns - began_ns < timing.progress_every_ns + 100 * MS < timing.lease_ns
    assert script.replica(0).lease.epoch > epoch, "a new incarnation is a new epoch"
    assert min(script.ballots(Prepare, since_ns=began_ns)) > ballot
    script.until_acknowledged(script.write(0, 4))
