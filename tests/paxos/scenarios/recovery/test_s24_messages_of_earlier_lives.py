"""Scenario 24: duplicate, reordered, very late messages of every type from earlier incarnations."""

import random
from typing import get_args

import pytest

from paxos.ids import BALLOT_ZERO, Slot
from paxos.messages import Learn, Message, RejoinAnswer, RejoinAsk, StealRequest, Trimmed
from simulator.script import GROUP, Script, Sent


def a_life(script: Script) -> None:
    """Elections, writes, steals there and back, refusals, crashes, and a member that falls
    behind."""
    script.elect(0)
    script.write_all(0, 5)
    script.isolate(2)
    script.write_all(0, 5, start=6)
    script.mend()
    script.prepare(2)  # it is behind and hears so
    script.same_everywhere()
    script.steal(1)
    script.until(lambda: script.acting(1))
    script.node(0).ask_for(GROUP, script.node(0).core.incarnation, Slot(1), 0)
    script.prepare(2)
    script.until(lambda: len(script.masters()) == 1)
    script.prepare(0)
    script.until(lambda: len(script.masters()) == 1)
    script.write_all(script.masters()[0], 5, start=11)
    for ident in (0, 1, 2):
        script.crash(ident, keep=0)
        script.boot(ident)
        script.until(lambda: len(script.masters()) == 1)
    script.write_all(script.masters()[0], 5, start=16)


def of_every_type(script: Script) -> list[Sent]:
    """All messages ever sent, and forged ones of the types that only a lost disk or log causes."""
    history = list(script.wire.history)
    example = history[0]
    history += [
        example._replace(message=RejoinAsk(GROUP, example.incarnation)),
        example._replace(
            message=RejoinAnswer(GROUP, example.incarnation, BALLOT_ZERO, Slot(3), Slot(3))
        ),
        example._replace(message=Learn(GROUP, Slot(0))),
        example._replace(message=Trimmed(GROUP, Slot(9), Slot(9))),
        example._replace(message=StealRequest(GROUP, example.incarnation, Slot(0), Slot(0), 1)),
    ]
    kinds = {type(sent.message) for sent in history}
    assert kinds >= set(get_args(Message)), f"missing: {set(get_args(Message)) - kinds}"
    return history


@pytest.mark.parametrize("seed", range(5))
def test_messages_of_earlier_lives(seed: int) -> None:
    """The checkers of the log and of the lease run while every message comes back twice."""
    script = Script()
    a_life(script)
    history = of_every_type(script)
    chance = random.Random(seed)
    flood = [*history, *chance.sample(history, len(history) // 2)]
    chance.shuffle(flood)
    for index, sent in enumerate(flood):
        script.wire.deliver(sent)
        if index % 20 == 0:
            script.wait(1)
        if index % 97 == 0:
            script.write(chance.choice((0, 1, 2)), 21)
    script.wait(3_000)
    script.until(lambda: len(script.masters()) == 1)
    script.until_acknowledged(script.write(script.masters()[0], 21))
    script.same_everywhere()
