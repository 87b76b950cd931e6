"""Scenario 32: a returning member that has to learn for long costs its group no election."""

import pytest

from paxos.ids import GroupId
from paxos.messages import Learned, Nack, Prepare
from simulator.script import Script

GROUPS = tuple(map(GroupId, range(1, 41)))
"""More than may learn at a time, even if every one got its answer at once."""
MISSED = 300
"""In slots: more than a member votes for ahead of what it has applied."""


def quiet(script: Script, since_ns: int) -> bool:
    """Whether the masters heard of no ballot but their own."""
    return not [*script.sent(Prepare, Nack, since_ns=since_ns)]


def left_behind(script: Script) -> int:
    script.elect(0)
    script.same_everywhere()
    script.isolate(2)
    script.write_all(0, MISSED)
    since_ns = script.loop.now_ns
    script.mend()
    return since_ns


def test_it_is_given_nothing_for_ten_seconds() -> None:
    """Its peers are busy and answer later. Meanwhile the master chooses renewals."""
    script = Script()
    answers = script.hold(Learned)
    since_ns = left_behind(script)
    script.wait(10_000)
    assert answers.caught
    assert quiet(script, since_ns)
    assert script.masters() == [0]
    script.release(answers)
    script.same_everywhere()
    assert quiet(script, since_ns)


def test_it_waits_its_turn_behind_other_groups() -> None:
    """The groups that ask first get no answers, and each costs the others a time-out."""
    script = Script(groups=GROUPS)
    for group in GROUPS:
        script.elect(0, group)
    answers = script.hold(Learned)  # no lead is missed before: others led some of the groups first
    script.isolate(2)
    script.wait(4_000)
    since_ns = script.loop.now_ns
    script.mend()
    script.wait(8_000)
    assert answers.caught
    assert quiet(script, since_ns)
    assert all(script.masters(group) == [0] for group in GROUPS)


@pytest.mark.parametrize("gone", [(0,), (0, 1)])
def test_if_the_master_dies_meanwhile_the_others_find_one(gone: tuple[int, ...]) -> None:
    """They need its vote, so it has to learn first; then it may as well be the next master."""
    script = Script(nodes=5)
    answers = script.hold(Learned)
    left_behind(script)
    script.wait(3_000)
    for node in gone:
        script.crash(node)
    if len(gone) > 1:
        script.release(answers)
    script.until(lambda: script.masters() != [] and script.masters()[0] not in gone)
    script.until_acknowledged(script.write(script.masters()[0], MISSED + 1))
