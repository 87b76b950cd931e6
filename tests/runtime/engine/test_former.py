"""A group leaves its former master: clients that do not know it notice nothing (ADR 50)."""

import pytest

from broker.config import IntakeConfig
from broker.proposals.intake import Done, Outcome, Pending
from paxos.ids import MS, NodeId
from runtime.engine.engine import Engine
from runtime.membership.masters import MasterClaim
from tests.runtime.engines import GROUP, Net, command

UNAWARE_MS = 4_000


class Unaware(Pending):
    ordered = True

    def __init__(self, text: str) -> None:
        chunks = command(text)
        super().__init__(chunks, sum(map(len, chunks)), self._done)
        self.outcomes: list[Outcome] = []

    def _done(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)

    def misses_move(self, moved_ns: int, now_ns: int) -> bool:
        return True


@pytest.fixture
def net() -> Net:
    """Node 1 has handed the group to node 2, and does not have it any more."""
    config = IntakeConfig(forward_grace_ns=100 * MS, forward_unaware_ns=UNAWARE_MS * MS)
    net = Net(intake=config)
    net.elect(1)
    net[2].engine.request_steal(GROUP, NodeId(1), net[1].replica.lease.ver, 1)
    net.until(lambda: net[2].acting())
    net.advance(200)
    return net


def leave(net: Net) -> Engine:
    engine = net[1].engine
    engine.remove_group(GROUP)
    return engine


def say_who_is_master(net: Net, node: int) -> None:
    lease = net[node].replica.lease
    word = MasterClaim(GROUP, lease.epoch, lease.ver, lease.expires_wall_ns)
    net[1].engine.on_masters(NodeId(node), [word])


def submit(engine: Engine, text: str) -> Unaware:
    pending = Unaware(text)
    engine.take(GROUP, pending)
    return pending


def test_it_goes_on_forwarding_to_whoever_says_that_it_is_the_master(net: Net) -> None:
    engine = leave(net)
    say_who_is_master(net, 2)
    first, second = submit(engine, "a"), submit(engine, "b")
    net.settle()
    assert [type(one) for one in (*first.outcomes, *second.outcomes)] == [Done, Done]
    assert net[2].ledger.texts() == ["a", "b"]


def test_what_waits_when_it_leaves_is_not_lost(net: Net) -> None:
    net.cut(1, 2)
    pending = submit(net[1].engine, "a")
    net.settle()
    assert pending.outcomes == []
    engine = leave(net)
    net.heal(1, 2)
    say_who_is_master(net, 2)
    net.until(lambda: bool(pending.outcomes))
    assert [type(one) for one in pending.outcomes] == [Done]
    assert engine.former


def test_it_is_forgotten_when_every_client_must_have_asked(net: Net) -> None:
    engine = leave(net)
    assert engine.moved_ns(GROUP)
    net.advance(UNAWARE_MS)
    assert not engine.former
    say_who_is_master(net, 2)
    pending = submit(engine, "a")
    net.settle()
    assert [type(one).__name__ for one in pending.outcomes] == ["NotDone"]


def test_a_group_that_nobody_was_told_of_leaves_nothing(net: Net) -> None:
    net[3].engine.remove_group(GROUP)
    assert not net[3].engine.former
