"""Crashes at every boundary between two effects of a Step (paxos/step.py): where a node may die.

A doomed node lives until it reaches the boundary with an effect of the given kind, and ends there:
everything before it has happened, nothing after it does. So the window between a vote and its
fsync, or between two frames of one broadcast, is hit on purpose and not by luck.
"""

import random
from enum import Enum
from typing import Final

import attrs

from paxos.entry import EntryKind
from paxos.messages import Accept, Accepted, Commit, Learned, Prepare, Promise, RejoinAnswer
from paxos.step import AcceptRecord, LearnedRecord, PromiseRecord, Record, Send, Step, VotingRecord


class Boundary(Enum):
    FIRST = "before any effect of the step"
    SENDING = "between two of its frames"
    SENT = "what overtakes the fsync has left, nothing is written"
    APPENDED = "written, not durable"
    SYNCED = "durable, and nobody was told"
    TOLD = "what needed the fsync has left"
    APPLIED = "applied, and the client was not answered"
    STATE_TAKEN = "a checkpoint is taken, and not written"
    STATE_SAVED = "a checkpoint is durable, the log is not retired"
    LOG_RETIRED = "the log is retired"
    STATE_RECEIVED = "a peer's state has come"
    STATE_KEPT = "a peer's state is durable, and not in use"
    STATE_INSTALLED = "a peer's state is in use"
    JOB_GIVEN = "a thread is to write cold data or a checkpoint, and has not begun"
    JOB_DONE = "a thread has written cold data or a checkpoint, and nobody knows"
    JOB_TOLD = "the node goes on with cold data or a checkpoint that a thread has written"


MESSAGES: Final = (Accept, Accepted, Prepare, Promise, Commit, Learned, RejoinAnswer)
RECORDS: Final = (AcceptRecord, PromiseRecord, LearnedRecord, VotingRecord)
AT_CHECKPOINTS: Final = (
    Boundary.STATE_TAKEN,
    Boundary.STATE_SAVED,
    Boundary.LOG_RETIRED,
    Boundary.STATE_RECEIVED,
    Boundary.STATE_KEPT,
    Boundary.STATE_INSTALLED,
)
AT_JOBS: Final = (Boundary.JOB_GIVEN, Boundary.JOB_DONE, Boundary.JOB_TOLD)
AT_EFFECTS: Final = tuple(one for one in Boundary if one not in AT_CHECKPOINTS + AT_JOBS)
EARLY: Final = (Boundary.FIRST, Boundary.SENDING, Boundary.SENT)
"""Boundaries at which an Accept has not left yet, or not to all."""


CHECKPOINT_SHARE: Final = 0.4


@attrs.frozen
class CrashPoint:
    """`kind` narrows the boundary to effects of one class; `frames` leave before SENDING ends."""

    boundary: Boundary
    kind: type[object] | None = None
    steals_only: bool = False
    frames: int = 1

    def fits_sends(self, sends: list[Send]) -> bool:
        if self.steals_only:
            return any(
                type(send.message) is Accept and send.message.entry.kind == EntryKind.STEAL
                for send in sends
            )
        if self.kind is None:
            return bool(sends)
        return any(type(send.message) is self.kind for send in sends)

    def fits_records(self, records: list[Record]) -> bool:
        return bool(records) and (self.kind is None or any(type(r) is self.kind for r in records))

    def fits(self, boundary: Boundary, step: Step) -> bool:
        if boundary is not self.boundary:
            return False
        if boundary is Boundary.APPENDED:
            return self.fits_records(step.persist)
        if boundary is Boundary.APPLIED:
            return bool(step.applied)
        if boundary is Boundary.FIRST:
            return self.fits_sends(step.before) or self.fits_sends(step.after)
        return self.fits_sends(step.before if boundary is Boundary.SENT else step.after)


def draw_crash_point(
    chance: random.Random, *, checkpoints: bool = False, settles: bool = False
) -> CrashPoint:
    if settles and chance.random() < CHECKPOINT_SHARE:
        return CrashPoint(chance.choice(AT_JOBS))
    if checkpoints and chance.random() < CHECKPOINT_SHARE:
        return CrashPoint(chance.choice(AT_CHECKPOINTS))
    boundary = chance.choice(AT_EFFECTS)
    kinds = RECORDS if boundary is Boundary.APPENDED else MESSAGES
    kind = chance.choice((None, *kinds))
    steals_only = boundary in EARLY and chance.random() < 0.3
    return CrashPoint(boundary, kind, steals_only, chance.randint(1, 2))
