"""Forwarded commands: checking those of other nodes before they are proposed, and tracking our own.

A chosen command is applied by every replica and again at every restart, and a state machine must
stop at one that it cannot apply. So a command that comes over a link is checked like one of a
client, down to the batch's CRC (TCP's checksum has 16 bits) and, if that does not take long, its
records.
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
"""Added to the timeout, because a large command may wait there behind others of its size. A client
that gets "unknown outcome" sends the command again, and without sequences it is stored twice;
clients wait for 30 s."""
LOOK_EVERY_NS: Final = 50 * MS


def patience_ns(size: int) -> int:
    """How long a command of `size` bytes waits for another node's answer."""
    return FORWARD_TIMEOUT_NS + size * FORWARD_NS_PER_BYTE


@attrs.define(eq=False)
class ForwardOut:
    """A command of one of our clients that was forwarded to another node."""

    to: NodeId
    pending: Pending
    until_boot_ns: int


def problem(group: GroupId, data: memoryview) -> str:
    """Why these bytes are not one valid command for this group; "" if they are."""
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
        elif kind != CommandKind.REGISTRY or group != REGISTRY_GROUP:  # it checks its own commands
            return f"no command of kind {kind} belongs there"
    except (CommandError, BatchError, CoordinatorCommandError) as error:
        return str(error)
    return ""


class Forwards:
    """Commands that this node has forwarded and that have no outcome yet; each gets exactly one."""

    def __init__(self, incarnation: Incarnation, journal: Journal) -> None:
        self._under_way: dict[int, ForwardOut] = {}
        # Answers for an earlier incarnation may still arrive: no number is used twice.
        self._number = (incarnation & 0xFFFF_FFFF) << 32
        self._journal = journal
        self.timeouts = 0
        self._look_boot_ns = 0

    @property
    def under_way(self) -> int:
        return len(self._under_way)

    def begin(self, now: Now, to: NodeId, pending: Pending) -> int:
        """Track a command; returns the number under which its outcome will come back."""
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
            except Exception as error:  # noqa: BLE001  logged with its traceback
                # The peer may have sent an invalid outcome: then the client's request times out.
                self._journal.bug(f"outcome from node {forward.to}", error)

    def lost(self, node: NodeId) -> None:
        """The link to a node is lost: the outcome of what was forwarded to it is unknown."""
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
