"""Scenario 31: a group of two, one of which has lost all or part of its disk.

Nothing is chosen without both members. With three, the others would choose a later slot and so let
it vote again; with two, that slot never comes. Found in a cluster of two: after one flipped bit, or
after `node replace`, no group ever had a master again.
"""

import random

import pytest

from paxos.messages import Accept
from simulator.node.disk import Disk
from simulator.script import Script


def hurt(disk: Disk, how: str) -> None:
    if how == "wiped":
        disk.wipe()
    elif how == "an old copy":
        disk.roll_back()
    else:
        disk.damage(random.Random(3))


def lose(script: Script, ident: int, how: str = "wiped") -> None:
    script.crash(ident)
    hurt(script.node(ident).disk, how)
    script.boot(ident)


@pytest.mark.parametrize("how", ["wiped", "an old copy", "damaged"])
@pytest.mark.parametrize("lost", [0, 1])
def test_who_has_forgotten_votes_again(lost: int, how: str) -> None:
    script = Script(nodes=2)
    script.elect(0)
    script.write_all(0, 5)
    script.node(lost).disk.remember()
    script.write_all(0, 20, start=6)
    before = script.replica(1 - lost).acceptor.promised
    lose(script, lost, how)
    script.until(lambda: script.noticed_count("non-voting") == 1)
    script.until(lambda: script.replica(lost).rejoin is None)
    assert script.replica(lost).acceptor.promised > before
    script.until(lambda: bool(script.masters()))
    script.until_acknowledged(script.write(script.masters()[0], 1, client=201))
    script.same_everywhere()


def test_what_only_the_other_has_voted_for_is_chosen_and_not_lost() -> None:
    """The entry was acknowledged, and only the member that has forgotten it knew that it was
    chosen."""
    script = Script(nodes=2)
    script.elect(0)
    script.write_all(0, 5)
    told = script.write(0, 6)
    script.until_acknowledged(told)
    lose(script, 0)
    script.until(lambda: script.replica(0).rejoin is None)
    script.until(lambda: bool(script.masters()))
    script.write_all(script.masters()[0], 1, client=201)
    script.same_everywhere()
    assert script.machine(0).applied >= told.slot


def test_a_ballot_that_the_other_never_saw_is_not_used_again() -> None:
    script = Script(nodes=2)
    script.elect(0)
    script.write_all(0, 5)
    script.drop(Accept, source=0)
    unseen = script.prepare(0)
    script.isolate(0)
    lose(script, 0)
    script.mend()
    script.until(lambda: script.replica(0).rejoin is None)
    assert script.prepare(0) > unseen
