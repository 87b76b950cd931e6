"""How long a node waits for a command it has forwarded."""

from broker.proposals.intake import FailureReason, NotDone, Outcome, Pending
from paxos.ids import MS, Incarnation, NodeId, Now
from runtime.engine.forwarding import FORWARD_TIMEOUT_NS, Forwards
from tests.runtime.doubles import Recorder

TWO = NodeId(2)


def at(ms: int) -> Now:
    return Now(ms * MS, ms * MS)


def test_a_large_command_is_waited_for_longer_and_keeps_nobody_waiting() -> None:
    """Seen with 40 producers of 10 MB while masters moved: it waited for 3 s behind others as
    large, its producer was told that its fate is unknown, and it was there twice."""
    forwards = Forwards(Incarnation(1), Recorder().journal)
    told: dict[str, Outcome] = {}
    for name, size in (("large", 10_000_000), ("small", 100)):
        pending = Pending((b"",), size, lambda outcome, name=name: told.update({name: outcome}))
        forwards.begin(at(0), TWO, pending)
    forwards.time_out(at(FORWARD_TIMEOUT_NS // MS - 1))
    assert not told
    forwards.time_out(at(FORWARD_TIMEOUT_NS // MS + 100))
    assert told == {"small": NotDone(FailureReason.UNKNOWN)}
    forwards.time_out(at(FORWARD_TIMEOUT_NS // MS + 9_900))
    assert forwards.under_way == 1
    forwards.time_out(at(FORWARD_TIMEOUT_NS // MS + 10_100))
    assert told["large"] == NotDone(FailureReason.UNKNOWN)
    assert (forwards.under_way, forwards.timeouts) == (0, 2)
