"""Scenario 28: a member comes back, no log reaches back to its position, and it gets the state."""

from typing import TypeVar

from paxos.ids import NodeId
from paxos.messages import Accept, Learn, Prepare, Trimmed
from simulator.script import GROUP, Script

T = TypeVar("T", Accept, Prepare)

EVERY = 10
MANY = 4 * EVERY


def left_behind() -> Script:
    """Node 2 was away; the others' logs hold only the end of what they chose meanwhile."""
    script = Script(checkpoint_slots=EVERY)
    script.elect(0)
    script.write_all(0, 3)
    script.same_everywhere()
    script.isolate(2)
    script.write_all(0, MANY, start=4)
    script.until(lambda: script.held(0).log_start > EVERY and script.held(1).log_start > EVERY)
    return script


def installed(script: Script, ident: int = 2) -> bool:
    return script.held(ident).log_start > 1 and script.noticed_count("installed") > 0


def test_it_goes_on_from_a_peers_checkpoint() -> None:
    script = left_behind()
    script.mend()
    script.until(lambda: installed(script))
    assert list(script.sent(Trimmed))
    script.same_everywhere()
    assert script.machine(2).value() == script.machine(0).value()
    script.crash(0)
    script.until(lambda: script.masters() in ([1], [2]))
    script.until_acknowledged(script.write(script.masters()[0], MANY + 4))


def test_a_restart_goes_on_from_what_it_was_given() -> None:
    """The state is durable before it is used: the log alone would have a gap."""
    script = left_behind()
    script.mend()
    script.until(lambda: installed(script))
    script.crash(2)
    script.boot(2)
    base = script.held(2).log_start - 1
    assert base > EVERY
    script.same_everywhere()
    assert script.replica(2).can_vote()


def test_it_stands_for_no_election_meanwhile() -> None:
    """By its own log the lease ended long ago; its ballots would only disturb."""
    script = left_behind()
    script.node(2).checkpoints.fetch = lambda _fetch: None  # type: ignore[method-assign] # never comes
    since_ns = script.loop.now_ns
    script.mend()
    script.wait(6_000)
    assert not [one for one in script.sent(Prepare, since_ns=since_ns) if one.source == 2]
    assert script.masters() == [0]


def test_an_election_that_only_it_and_one_ahead_can_hold() -> None:
    """ADR 3, Consequences: either of the two can win once it has what the one ahead knows."""
    script = left_behind()
    script.crash(0)
    script.node(1).act(GROUP, "prepare")
    script.mend()
    script.until(lambda: script.masters() in ([1], [2]))
    script.until_acknowledged(script.write(script.masters()[0], MANY + 4))
    script.same_everywhere()


def test_a_prepare_that_met_a_trimmed_log() -> None:
    """After Behind, Learn, Trimmed and the state it is as good a candidate as any."""
    script = left_behind()
    since_ns = script.loop.now_ns
    script.mend()
    script.prepare(2)
    script.until(lambda: installed(script))
    asked = [one for one in script.sent(Learn, since_ns=since_ns) if one.source == 2]
    assert asked
    script.same_everywhere()
    script.prepare(2)
    script.until(lambda: len(script.masters()) == 1)


def checkpointed(script: Script, ident: int) -> None:
    """Two checkpoints, so that the log begins at the node's present position."""
    for _ in range(2):
        before = script.statistics["checkpoints"]
        script.node(ident).checkpoints.begin(GROUP)
        script.until(lambda before=before: script.statistics["checkpoints"] > before)  # type: ignore[misc] # a default


def test_a_steal_that_it_did_not_see_is_not_taken_over_from_the_state() -> None:
    """R5, R6, R11: the lease in the state contains the Steal to node 2. The node uses neither that
    ballot nor that lease before a ballot and a renewal of its own."""
    script = Script()
    script.elect(0)
    script.write_all(0, 3)
    script.same_everywhere()
    script.isolate(2, outbound=False)
    assert script.handed_over(0, 2) == ""
    script.until(lambda: script.replica(1).lease.holder == 2)
    script.until(lambda: script.replica(0).lease.holder == 2)
    stolen, since_ns = script.replica(0).lease.ver, script.loop.now_ns
    for ident in (0, 1):
        checkpointed(script, ident)
    assert script.held(1).log_start == stolen + 1
    script.mend()
    script.until(lambda: installed(script))
    assert script.replica(2).lease.holder == 2
    assert not script.acting(2)
    script.until(lambda: script.acting(2))
    (fresh,) = {one.ballot for one in messages_of(script, 2, Prepare, since_ns)}
    assert {one.ballot for one in messages_of(script, 2, Accept, since_ns)} == {fresh}
    script.until_acknowledged(script.write(2, 4))


def messages_of(script: Script, ident: int, kind: type[T], since_ns: int) -> list[T]:
    sent = script.sent(kind, since_ns=since_ns)
    return [one.message for one in sent if one.source == ident and isinstance(one.message, kind)]


def test_a_new_member_gets_the_state_before_it_is_one() -> None:
    script = Script(nodes=4, members=3, checkpoint_slots=EVERY)
    script.isolate(3)
    script.elect(0)
    script.write_all(0, MANY)
    script.until(lambda: script.held(0).log_start > 1)
    change = script.node(0).act
    assert change(GROUP, "members", NodeId(3)).startswith("the new member is not heard")
    script.mend()
    script.same_everywhere()
    script.wait(600)
    script.chosen.members_change(GROUP)
    assert change(GROUP, "members", NodeId(3)) == ""
    script.until(lambda: script.replica(3).members == (0, 1, 2, 3) and script.replica(3).can_vote())
    script.until(lambda: script.acting(0) and script.replica(0).ready())
    since_ns = script.loop.now_ns
    script.write_all(0, 3, start=MANY + 1)
    assert [one for one in script.sent(Accept, since_ns=since_ns) if one.target == 3]
    assert not list(script.sent(Prepare, since_ns=since_ns))
