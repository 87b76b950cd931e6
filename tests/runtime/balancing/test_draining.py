"""A node that stops gives its groups away, and then answers what it has read."""

from paxos.ids import MS, Now
from runtime.balancing.draining import ANSWER_NS, Draining
from tests.runtime.doubles import Recorder


class Stopping:
    """A node with two groups, that owes an answer."""

    def __init__(self) -> None:
        self.now_ns, self.groups, self.owes = 1_000 * MS, 2, True
        self.said: list[str] = []
        self.draining = Draining(
            self,  # type: ignore[arg-type]  the part of the balancing loop that it uses
            lambda: self.said.append("tells"),
            lambda: self.said.append("reads no more"),
            lambda: self.owes,
            lambda: None,
            self.now,
            Recorder().journal,
        )

    def now(self) -> Now:
        return Now(self.now_ns, self.now_ns, True)

    # what Draining uses of a BalancingLoop

    def start_draining(self) -> None:
        self.said.append("drains")

    def drain_next(self, _now: Now) -> bool:
        self.groups -= 1
        return self.groups >= 0

    def masters(self, _now: Now) -> list[int]:
        return [1] * max(0, self.groups)


def test_connections_live_until_what_was_read_is_answered() -> None:
    """A client that lost one with a request under way would have to send it again."""
    node = Stopping()
    assert node.draining.step()
    assert node.draining.step()
    assert node.said == ["drains", "tells"]
    assert node.draining.step()
    assert node.said[-1] == "reads no more"
    assert node.draining.step()
    node.owes = False
    assert not node.draining.step()
    assert node.said.count("reads no more") == 1
    assert node.draining.end() == 0


def test_not_for_ever() -> None:
    node = Stopping()
    node.groups = 0
    assert node.draining.step()
    node.now_ns += ANSWER_NS
    assert not node.draining.step()
