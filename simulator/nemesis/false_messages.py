"""A peer that says something wrong: one field of a message, as one faulty peer could say it.

Only numbers, and none that claims a vote, a quorum or a value: there Paxos believes its members,
and no check of ours can tell (docs/peer-work.md, "What is believed"). Everything else must cost the
liar at most its link, and must cost nobody a vote for good.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

import attrs

from paxos import codec
from paxos.entry import NOOP, Buffer
from paxos.ids import Ballot, Incarnation, NodeId, Slot
from paxos.messages import (
    Accept,
    Accepted,
    Behind,
    Learn,
    Learned,
    Message,
    Nack,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
    StealRequest,
    Trimmed,
)
from simulator.environment.options import Fault
from simulator.nemesis.surroundings import Conductor, Surroundings
from simulator.node.group_state import Frame

FAR: Final = (1_000, 2**31, 2**40, 2**60)
BEYOND: Final = Slot(2**31)
"""No member has a vote there: the rest of what it says about its votes stays true."""
LINKS: Final = 3
"""How many frames one strike spoils, each to another node."""


def _slot(chance: Random) -> Slot:
    return Slot(chance.choice(FAR))


def _ballot(chance: Random, ballot: Ballot) -> Ballot:
    return Ballot(ballot.round + chance.choice(FAR), ballot.node)


def _progress(chance: Random, m: Progress) -> Progress:
    far = _slot(chance)
    return chance.choice(
        (
            attrs.evolve(m, applied=far, chosen_to=far),
            attrs.evolve(m, chosen_to=far),
            attrs.evolve(m, applied=far, chosen_to=Slot(1)),
            attrs.evolve(m, witnessed=_ballot(chance, m.witnessed)),
            attrs.evolve(m, witnessed=_ballot(chance, m.witnessed)),
        )
    )


def _rejoin_answer(chance: Random, m: RejoinAnswer) -> RejoinAnswer:
    return chance.choice(
        (
            attrs.evolve(m, last_voted=Slot(m.last_voted + _slot(chance))),
            attrs.evolve(m, promised=_ballot(chance, m.promised)),
        )
    )


WORDS: Final[Mapping[type[Any], Callable[[Random, Any], Message]]] = {
    Progress: _progress,
    RejoinAnswer: _rejoin_answer,
    Accepted: lambda chance, m: Accepted(m.group, _ballot(chance, m.ballot), m.slot),
    Accept: lambda chance, m: attrs.evolve(m, ballot=Ballot(m.ballot.round + 2**50, m.ballot.node)),
    Promise: lambda chance, m: attrs.evolve(m, votes=(*m.votes, (BEYOND, m.ballot, NOOP))),
    Nack: lambda chance, m: attrs.evolve(m, promised=_ballot(chance, m.promised)),
    Behind: lambda chance, m: attrs.evolve(m, applied=_slot(chance)),
    Learn: lambda chance, m: attrs.evolve(m, applied=_slot(chance)),
    Learned: lambda chance, m: attrs.evolve(m, start=Slot(m.start + 2**20)),
    Trimmed: lambda chance, m: attrs.evolve(m, first=(far := _slot(chance)), applied=far),
    RejoinAsk: lambda chance, m: attrs.evolve(
        m, incarnation=Incarnation(m.incarnation + chance.choice((1, 2**31)))
    ),
    Prepare: lambda chance, m: attrs.evolve(
        m, ballot=Ballot(m.ballot.round + 1, NodeId(m.ballot.node + 1))
    ),
    StealRequest: lambda chance, m: attrs.evolve(m, applied=_slot(chance)),
}


class FalseMessages:
    """Spoils the next frames of a node that hold something to spoil."""

    def __init__(self, world: Surroundings, nemesis: Conductor) -> None:
        self._world, self._note = world, nemesis.note
        self._left: dict[tuple[int, int], Random] = {}

    def strikes(self) -> Mapping[Fault, Callable[[Random], None]]:
        return {Fault.WORDS: self._strike}

    def _strike(self, chance: Random) -> None:
        if self._world.options.judged:
            return  # the specification knows only honest nodes
        liar = self._world.somebody(chance).me
        others = [node for node in self._world.addresses if node != liar]
        told = chance.sample(others, min(LINKS, len(others)) if chance.random() < 0.5 else 1)
        self._note("words", liar, told)
        self._left = {(liar, node): Random(chance.random()) for node in told}
        self._world.network.spoil = self._spoil

    def _spoil(self, source: int, target: int, what: object) -> object:
        """The frame as it is to arrive; the same object if nothing was changed."""
        chance = self._left.get((source, target))
        if chance is None or type(what) is not Frame:
            return what
        messages = [*codec.decode_all(memoryview(what.data))]
        able = [at for at, message in enumerate(messages) if type(message) in WORDS]
        if not able:
            return what
        del self._left[source, target]
        if not self._left:
            self._world.network.spoil = None
        at = chance.choice(able)
        was, messages[at] = messages[at], WORDS[type(messages[at])](chance, messages[at])
        self._note("spoilt", source, target, type(was).__name__)
        self._world.statistics["words spoilt"] += 1
        buffers: list[Buffer] = []
        for message in messages:
            codec.encode(message, buffers)
        return Frame(what.incarnation, b"".join(buffers))
