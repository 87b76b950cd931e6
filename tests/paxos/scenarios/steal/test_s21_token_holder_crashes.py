"""Scenario 21: the token's holder steals two groups back to back; then it crashes.

Registry, token and stealing machine are the production ones (balancer/).
"""

from balancer.registry.records import Outcome
from paxos.ids import GroupId
from paxos.messages import StealRequest
from simulator.script import Script

ONE, TWO = GroupId(1), GroupId(2)


def founded() -> Script:
    """Node 0 is master of everything, all nodes are registered, and the hold-down is over."""
    script = Script(groups=(GroupId(0), ONE, TWO), balancing=True)
    for group in (GroupId(0), ONE, TWO):
        script.elect(0, group)
    script.until(lambda: len(script.registry(0).nodes) == 3)
    script.wait(600)
    return script


def test_two_groups_stolen_back_to_back() -> None:
    script = founded()
    script.place_master(1, 2)
    script.place_master(2, 2)
    script.until(lambda: script.masters(ONE) == [2] and script.masters(TWO) == [2])
    script.until(lambda: len(script.registry(0).history) == 2)
    history = script.registry(0).history
    assert [(one.group, one.outcome) for one in history] == [(1, Outcome.DONE), (2, Outcome.DONE)]
    assert history[0].token < history[1].token, "one after the other, each under its own token"
    assert script.registry(0).token is None
    assert script.steals.count == 2


def test_the_token_holder_crashes_and_another_goes_on() -> None:
    script = founded()
    lost = script.drop(StealRequest, source=2)
    script.place_master(1, 2)
    script.until(lambda: script.registry(0).token is not None)
    script.crash(2)
    script.place_master(2, 1)
    script.until(lambda: script.masters(TWO) == [1])  # when the token has expired
    outcomes = [one.outcome for one in script.registry(0).history]
    assert outcomes[0] is Outcome.EXPIRED
    lost.lift()
    script.boot(2)
    script.until(lambda: script.masters(ONE) == [2])


def test_a_restarted_token_holder_starts_afresh() -> None:
    """Its old token belongs to another incarnation: that one expires, and the node acquires a new
    one."""
    script = founded()
    lost = script.drop(StealRequest, source=2)
    script.place_master(1, 2)
    script.until(lambda: script.registry(0).token is not None)
    script.crash(2)
    script.boot(2)
    lost.lift()
    script.until(lambda: script.masters(ONE) == [2])
    script.until(lambda: len(script.registry(0).history) == 2)
    outcomes = [one.outcome for one in script.registry(0).history]
    assert outcomes == [Outcome.EXPIRED, Outcome.DONE]
