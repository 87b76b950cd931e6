"""Scenario 9: M stops between suspending and sending; it wakes after the lease has expired."""

from paxos.entry import EntryKind
from paxos.ids import MS
from simulator.script import Script, is_kind


def test_master_pauses_while_suspended() -> None:
    script = Script()
    script.elect(0)
    script.write_all(0, 2)
    timing = script.options.timing
    sending = script.hold(source=0, where=is_kind(EntryKind.STEAL))
    script.stall_disk(0)
    script.steal(1)
    script.until(lambda: script.replica(0).suspended > 0)
    script.pause(0, (timing.lease_ns + 2 * timing.margin_ns) / MS + 2_000)

    script.until(lambda: script.masters() != [])  # the lease ends, and another node takes it
    assert script.masters() != [0]
    script.until_acknowledged(script.write(script.masters()[0], 3))
    script.heal_disk(0)
    script.release(sending)  # M wakes and sends what it was about to send
    script.until(lambda: not script.replica(0).suspended)
    assert script.masters() != [0]
    script.wait(500)
    assert len(script.masters()) == 1
