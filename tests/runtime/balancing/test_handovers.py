"""The master's side of a steal in the shell: ask consumers, apply their commits, then hand over.

Three engines; the master's handovers and its progress requests are the production code.
"""

from typing import Any

import pytest

from balancer.registry.registry import Registry
from broker.groups.progress_requests import Collected, ProgressRequests
from paxos.ids import MS, REGISTRY_GROUP, Epoch, GroupId, NodeId, Now
from paxos.messages import StealAbort, StealRequest
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.handovers import SYNC_NS_MAX, Arrivals, Handovers
from runtime.membership.registry_client import RegistryClient
from tests.broker.fakes import FakeTimers
from tests.runtime.engines import GROUP, TICK_MS, Hooks, Member, Net, why
from wire.messages.fetch import ProgressReport

WAIT_MS = 2_000
PHASES = ("notify", "collect", "sync", "freeze", "propose")


class Clock:
    """The clock that FakeTimers uses."""

    def __init__(self, member: Member) -> None:
        self._member = member

    @property
    def boot_ns(self) -> int:
        return self._member.engine.now().boot_ns


class Asking(Hooks):
    """Hooks of a node whose handovers first ask consumers."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member
        self.notes: list[str] = []
        self.timers = FakeTimers(Clock(member))  # type: ignore[arg-type]
        self.woken: list[GroupId] = []
        self.progress = ProgressRequests(member.engine, self.timers, self.woken.append)
        client = RegistryClient(member.engine, Registry())
        self.loop = BalancingLoop(member.engine, client, None, member.recorder.journal)
        self.handovers = Handovers(
            member.engine, self.progress, WAIT_MS, self.loop, member.recorder.journal
        )
        self.handovers.write_down = self.write_down
        self.loop.give, self.loop.given = self.handovers.give, lambda: self.handovers.targets
        member.engine.hooks = self

    def write_down(self, group: GroupId) -> bool:
        """What coordinators do, if a test gives them something to write."""
        if not self.notes:
            return False
        self.member.submit(self.notes.pop(), group=group)
        return True

    def begin_handover(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        self.handovers.begin(now, sender, request)


class Room:
    def __init__(self) -> None:
        self.net = Net(groups=(REGISTRY_GROUP, GROUP))
        self.master = self.net.elect(1)
        self.hooks = Asking(self.master)
        self.advance(100)

    def advance(self, ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            self.net.advance(TICK_MS)
            self.hooks.timers.fire()
            self.look()

    def look(self) -> None:
        """The end of one of the master's rounds."""
        self.net.settle()
        self.hooks.handovers.look(self.master.engine.now())
        self.net.settle()

    def steal(self, target: int = 2) -> None:
        self.net.hand_over(self.master, self.net[target])
        self.look()

    def consumer(self, reported: int = 0, name: int = 7) -> None:
        self.hooks.progress.heard([GROUP], ProgressReport(name, reported), 500)

    def tell(self, name: int = 7) -> int:
        """The master's next answer to the consumer: returns the request in it."""
        request = self.hooks.progress.request(GROUP, name)
        assert request is not None
        return request.request

    @property
    def finished(self) -> Any:
        (one,) = self.hooks.handovers.finished
        return one


@pytest.fixture
def room() -> Room:
    return Room()


def test_without_consumers_it_goes_at_once_and_every_phase_is_told(room: Room) -> None:
    room.steal()
    assert room.net[2].acting()
    done = room.finished
    assert (done.group, done.target, done.outcome) == (GROUP, 2, "handed-over")
    assert tuple(done.phases_ns) == PHASES
    assert (done.asked, done.phases_ns["collect"]) == (0, 0)
    assert {phase for phase, _ in room.hooks.loop.phases_s} == set(PHASES)
    (line,) = room.master.recorder.said("handover finished")
    assert {f"{phase}_ms" for phase in PHASES} <= line.keys()
    assert not room.hooks.handovers.busy


def test_E13_it_waits_for_the_consumers_and_serves_on_meanwhile(room: Room) -> None:
    room.consumer()
    room.steal()
    assert room.hooks.woken == [GROUP]
    assert room.master.replica.handing_to is None
    number = room.tell()
    meanwhile = room.master.submit("meanwhile")
    room.advance(100)
    assert why(meanwhile) == "done"
    room.consumer(reported=number)
    room.look()
    assert room.net[2].acting()
    assert (room.finished.asked, room.finished.reported) == (1, 1)
    assert room.finished.phases_ns["collect"] == 100 * MS


def test_E13_a_consumer_that_never_reports_does_not_stop_it(room: Room) -> None:
    room.consumer()
    room.steal()
    room.advance(WAIT_MS - 100)
    assert room.master.acting()
    room.advance(200)
    assert room.net[2].acting()
    assert (room.finished.asked, room.finished.reported) == (1, 0)


def test_E13_a_drain_asks_the_consumers_too(room: Room) -> None:
    """SIGTERM or a full disk: still one group at a time, and each consumer is asked once."""
    room.consumer()
    now, loop = room.master.engine.now, room.hooks.loop
    assert loop.drain_next(now()) == 1
    room.look()
    number = room.tell()
    assert room.hooks.woken == [GROUP]
    assert loop.drain_next(now()) == 1
    assert room.master.replica.handing_to is None, "it waits for the report"
    assert room.hooks.handovers.give(now(), GROUP, NodeId(2)) == "busy"
    room.consumer(reported=number)
    room.look()
    room.advance(TICK_MS)
    assert not room.master.acting()
    assert (room.finished.asked, room.finished.reported) == (1, 1)
    assert room.net[room.finished.target].acting()
    assert loop.drain_next(now()) == 0


def test_a_renewal_meanwhile_does_not_make_the_request_stale(room: Room) -> None:
    room.consumer()
    before = room.master.replica.lease.ver
    room.steal()
    number = room.tell()
    room.net.until(lambda: room.master.replica.lease.ver > before)
    room.consumer(reported=number)
    room.look()
    assert room.net[2].acting()


def test_E16_a_master_that_has_changed_meanwhile_hands_over_nothing(room: Room) -> None:
    """While consumers were asked the group moved away and back, so this is another mastership than
    the request's. The newer version must not be put into the request."""
    room.consumer()
    lease = room.master.replica.lease
    before = lease.ver
    room.steal()
    number = room.tell()
    room.net.until(lambda: lease.ver > before)
    lease.epoch = Epoch(lease.epoch + 2)
    room.consumer(reported=number)
    room.look()
    assert room.master.acting()
    assert room.hooks.handovers.finished == []
    aborts = [one.message for one in room.net.sent if isinstance(one.message, StealAbort)]
    assert [abort.reason for abort in aborts] == ["stale version"]


def test_E14_what_they_reported_is_applied_before_the_group_is_frozen(room: Room) -> None:
    """Commits are ordinary entries here; the Steal waits for those that are on their way."""
    room.consumer()
    room.steal()
    number = room.tell()
    room.net[2].writer.held = room.net[3].writer.held = True
    commit = room.master.submit("commit")
    room.net.settle()
    room.consumer(reported=number)
    room.look()
    assert room.master.replica.handing_to is None, "it is not chosen yet"
    later = room.master.submit("later")
    room.net[2].writer.held = room.net[3].writer.held = False
    room.look()
    room.look()
    assert why(commit) == why(later) == "done"
    assert room.net[2].acting()
    assert room.net[2].ledger.texts()[:1] == ["commit"]


def test_what_coordinators_write_down_is_applied_before_the_group_is_frozen(room: Room) -> None:
    """Otherwise the target would give every member a whole new session timeout."""
    room.hooks.notes = ["what is left"]
    room.net[2].writer.held = room.net[3].writer.held = True
    room.steal()
    assert room.master.replica.handing_to is None, "it is not chosen yet"
    room.net[2].writer.held = room.net[3].writer.held = False
    room.look()
    room.look()
    assert room.net[2].acting()
    assert room.net[2].ledger.texts()[:1] == ["what is left"]


def test_a_commit_that_is_stuck_is_not_waited_for_for_ever(room: Room) -> None:
    """The freeze begins, and the core's own watchdog with it: it aborts the steal."""
    room.consumer()
    room.steal()
    number = room.tell()
    room.net[2].writer.held = room.net[3].writer.held = True
    room.master.submit("stuck")
    room.net.settle()
    room.consumer(reported=number)
    room.advance(SYNC_NS_MAX // MS + TICK_MS)
    assert room.master.replica.handing_to == 2
    room.advance(300)
    assert room.master.replica.handing_to is None
    assert room.finished.outcome == "kept"


def test_what_the_core_would_refuse_bothers_no_consumer(room: Room) -> None:
    room.consumer()
    stale = StealRequest(GROUP, room.net[2].multi.incarnation, 0, room.master.replica.lease.ver, 1)  # type: ignore[arg-type]
    room.master.engine.on_message(NodeId(2), stale)
    room.look()
    assert room.hooks.woken == []
    aborts = [one.message for one in room.net.sent if isinstance(one.message, StealAbort)]
    assert [abort.reason for abort in aborts] == ["stale version"]


def test_a_second_request_meanwhile_changes_nothing(room: Room) -> None:
    room.consumer()
    room.steal(2)
    number = room.tell()
    room.steal(3)
    assert room.net[3].acting(), "the core does not know of consumers: who asks twice is served"
    room.consumer(reported=number)
    room.look()
    assert not room.hooks.handovers.busy


def test_mastership_lost_while_collecting_ends_in_a_refusal(room: Room) -> None:
    room.consumer()
    room.steal()
    number = room.tell()
    room.net.cut(1, 2)
    room.net.cut(1, 3)
    room.net.until(lambda: not room.master.acting())
    room.consumer(reported=number)
    room.look()
    assert not room.hooks.handovers.busy
    assert room.hooks.handovers.finished == []


def test_a_group_that_is_dropped_while_collecting_is_handed_to_nobody(room: Room) -> None:
    """Consumers may report for longer than a node keeps a group that it should not have."""
    room.consumer()
    room.steal()
    room.net.cut(1, 2)
    room.net.cut(1, 3)
    room.net.until(lambda: not room.master.acting())
    room.master.engine.remove_group(GROUP)
    room.hooks.handovers.dropped(GROUP)
    room.hooks.handovers.dropped(GROUP)  # nothing is open
    assert not room.hooks.handovers.busy
    room.advance(WAIT_MS + TICK_MS)
    assert room.hooks.handovers.finished == []
    collected: list[Collected] = []
    room.consumer()
    room.hooks.progress.collect(GROUP, 20, collected.append)  # it has the group again
    room.advance(40)
    assert [one.reported for one in collected] == [0]


def test_the_first_record_in_and_out_of_a_stolen_group_are_timed(room: Room) -> None:
    told: list[tuple[str, GroupId, int]] = []
    arrivals = Arrivals(room.hooks.progress, lambda *what: told.append(what))
    arrivals.came(room.master.engine.now(), GROUP)
    room.advance(40)
    arrivals.grown(room.master.engine.now(), GROUP)
    room.advance(20)
    room.hooks.progress.fetched([GROUP])
    arrivals.grown(room.master.engine.now(), GROUP)
    room.hooks.progress.fetched([GROUP])
    assert told == [("first-produce", GROUP, 40 * MS), ("first-fetch", GROUP, 60 * MS)]
