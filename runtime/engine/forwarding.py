"""What another node forwarded, looked at before it is proposed: an entry is for ever.

A chosen command is applied by every replica and again at every restart, and a state machine that
meets one it cannot apply must not go on. So a command that comes over a link is checked as one of
a client is, down to the batch's CRC (TCP's checksum is 16 bits) and, where that does not take long,
its records.
"""

from typing import Final

import attrs

from broker.producers.batch_validation import check_forwarded
from broker.proposals.commands import (
    EVERYTHING,
    CommandError,
    CommandKind,
    parse,
    parse_delete_records,
)
from broker.proposals.intake import COMMAND_BYTES_MAX, FailureReason, NotDone, Outcome, Pending
from coordinator.replicated import commands as coordinator_commands
from coordinator.replicated.codec import CommandError as CoordinatorCommandError
from paxos.ids import MS, REGISTRY_GROUP, GroupId, Incarnation, NodeId, Now
from runtime.system.journal import Journal
from wire.records.batch import BatchError, produced_batch

FORWARD_TIMEOUT_NS: Final = 3_000 * MS
FORWARD_NS_PER_BYTE: Final = 1_000
"""A large command waits there behind others as large. Who is told that nobody knows sends it again,
and without sequences it is there twice; clients wait for 30 s."""
LOOK_EVERY_NS: Final = 50 * MS


def patience_ns(size: int) -> int:
    """How long the client of a command of so many bytes waits for another node."""
    return FORWARD_TIMEOUT_NS + size * FORWARD_NS_PER_BYTE


@attrs.define(eq=False)
class ForwardOut:
    """A command of a client of ours that another node has been asked to carry out."""

    to: NodeId
    pending: Pending
    until_boot_ns: int


def problem(group: GroupId, data: memoryview) -> str:
    """Why these bytes are not one command for this group, or "" if they are."""
    if len(data) > COMMAND_BYTES_MAX:
        return f"{len(data)} bytes, at most {COMMAND_BYTES_MAX}"
    try:
        commands = parse((data,))
        if len(commands) != 1:
            return f"{len(commands)} commands instead of one"
        kind, body = commands[0].kind, commands[0].body
        if kind == CommandKind.RECORDS:
            check_forwarded(produced_batch(body, log_time=True))
        elif kind == CommandKind.CONSUMER_GROUP:
            coordinator_commands.decode(body)
        elif kind == CommandKind.DELETE_RECORDS:
            if parse_delete_records(body)[1] == EVERYTHING:
                return "it does not say which records were meant"
        elif kind != CommandKind.REGISTRY or group != REGISTRY_GROUP:  # it refuses what it cannot
            return f"no command of kind {kind} belongs there"
    except (CommandError, BatchError, CoordinatorCommandError) as error:
        return str(error)
    return ""


class Forwards:
    """What this node has forwarded and not heard of yet; every command is settled exactly once."""

    def __init__(self, incarnation: Incarnation, journal: Journal) -> None:
        self._under_way: dict[int, ForwardOut] = {}
        # Answers to forwards of an earlier life may still come: no number is used twice.
        self._number = (incarnation & 0xFFFF_FFFF) << 32
        self._journal = journal
        self.timeouts = 0
        self._look_boot_ns = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def begin(self, now: Now, to: NodeId, pending: Pending) -> int:
        """The number under which its outcome will come back."""
        self._number += 1
        self._under_way[self._number] = ForwardOut(
            to, pending, now.boot_ns + patience_ns(pending.size)
        )
        return self._number

    def answered(self, sender: NodeId, number: int, outcome: Outcome) -> None:
        forward = self._under_way.get(number)
        if forward is not None and forward.to == sender:
            self.settle(number, outcome)

    def settle(self, number: int, outcome: Outcome) -> None:
        forward = self._under_way.pop(number, None)
        if forward is not None:
            try:
                forward.pending.done(outcome)
            except Exception as error:  # noqa: BLE001  told with its traceback
                # The outcome may be a peer's invention: then its client's time simply runs out.
                self._journal.bug(f"outcome from node {forward.to}", error)

    def lost(self, node: NodeId) -> None:
        """The link to a node is gone: what it was asked to do may or may not be done."""
        for number in [one for one, out in self._under_way.items() if out.to == node]:
            self.settle(number, NotDone(FailureReason.UNKNOWN))

    def time_out(self, now: Now) -> None:
        if not self._under_way or now.boot_ns < self._look_boot_ns:
            return
        self._look_boot_ns = now.boot_ns + LOOK_EVERY_NS
        over = [one for one, out in self._under_way.items() if now.boot_ns >= out.until_boot_ns]
        for number in over:
            self.timeouts += 1
            self.settle(number, NotDone(FailureReason.UNKNOWN))
