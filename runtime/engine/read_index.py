"""How far a member must have applied a Paxos group before it serves a read in its master's stead.

A former master serves clients that do not know of the move (ADR 50). Its copy is right, but may be
behind what was acknowledged before the client asked. So it asks the master, which names the slot
that it has applied, if it acts at that moment (R14); once that slot is applied here, too, a read
here is as fresh as one there (Raft calls that a read index). One question for a group is under way
at a time; those who come meanwhile share the next one.
"""

import struct
from collections.abc import Callable
from typing import Final

import attrs

from broker.proposals.intake import Done, FailureReason, NotDone, Outcome, Pending
from paxos.ids import MS, GroupId, Now, Slot

QUESTION: Final = (b"?",)
"""What a FORWARD frame holds in place of a command."""
_SLOT: Final = struct.Struct(">Q")
PATIENCE_NS: Final = 3_000 * MS
"""How long a master is looked for."""


def answer(applied: Slot) -> Done:
    return Done(_SLOT.pack(applied))


Told = Callable[[bool], None]
"""Told whether reads here are now as fresh as they have to be."""


@attrs.define(eq=False)
class _Question:
    since_boot_ns: int
    told: list[Told]
    later: list[Told] = attrs.Factory(list)
    """They came after it was sent: what it says may be too old for them."""
    under_way: bool = False
    slot: Slot | None = None


class ReadIndex:
    """`send` forwards a question to the group's master; False if there is nobody to send it to.
    `applied` is the last slot that the group's state machine has applied at the end of a round."""

    def __init__(
        self,
        send: Callable[[Now, GroupId, Pending], bool],
        applied: Callable[[GroupId], Slot | None],
    ) -> None:
        self._send, self._applied = send, applied
        self._questions: dict[GroupId, _Question] = {}

    def __len__(self) -> int:
        return len(self._questions)

    def ask(self, now: Now, group: GroupId, told: Told) -> None:
        """Tell `told`, later, whether this node has applied what was acknowledged before now."""
        question = self._questions.get(group)
        if question is None:
            self._begin(now, group, [told])
        elif question.under_way or question.slot is not None:
            question.later.append(told)
        else:
            question.told.append(told)

    def _begin(self, now: Now, group: GroupId, told: list[Told]) -> None:
        self._questions[group] = _Question(now.boot_ns, told)
        self._ask(now, group)

    def _ask(self, now: Now, group: GroupId) -> None:
        question = self._questions[group]

        def heard(outcome: Outcome) -> None:
            question.under_way = False
            if type(outcome) is Done and len(outcome.result) == _SLOT.size:
                question.slot = Slot(_SLOT.unpack(outcome.result)[0])

        question.under_way = True
        pending = Pending(QUESTION, len(QUESTION[0]), heard)
        if not self._send(now, group, pending):
            heard(NotDone(FailureReason.NOT_MASTER))

    def look(self, now: Now) -> None:
        """At the end of a round: tell those whose slot is applied here."""
        for group, question in list(self._questions.items()):
            applied = self._applied(group)
            if applied is not None and question.slot is not None and applied >= question.slot:
                self._end(now, group, True)

    def tick(self, now: Now) -> None:
        """Ask again where the master did not answer, for a while."""
        for group, question in list(self._questions.items()):
            if now.boot_ns - question.since_boot_ns > PATIENCE_NS:
                self._end(now, group, False)
            elif not question.under_way and question.slot is None:
                self._ask(now, group)

    def _end(self, now: Now, group: GroupId, fresh: bool) -> None:
        question = self._questions.pop(group)
        if question.later:
            self._begin(now, group, question.later)
        for told in question.told:
            told(fresh)
