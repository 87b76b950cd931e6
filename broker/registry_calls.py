"""Changing the registry from any node: propose on group 0, try again while there is no master.

Every command is idempotent (a topic's id is drawn before the first attempt; a change names what it
was decided on), so an attempt whose outcome is unknown is simply repeated, byte for byte: it may
still be on its way, and whichever comes second is refused. `repeated` then tells the caller that
"it exists already" may be our own doing.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import attrs

from balancer.registry.codec import decode_result, encode_command
from balancer.registry.commands import Command, Result
from broker.ports import Groups, Timers
from broker.proposals.commands import CommandKind, opaque
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from paxos.entry import Buffer
from paxos.ids import MS, REGISTRY_GROUP

RETRY_NS: Final = 20 * MS


class Answer(NamedTuple):
    """`repeated`: an earlier attempt of the same command may have been carried out."""

    result: Result
    repeated: bool


Finished = Callable[[Answer | None], None]
"""Called once; None when time ran out. It must not raise."""


def change_registry(
    groups: Groups, timers: Timers, command: Command, deadline_boot_ns: int, finished: Finished
) -> None:
    """Have the registry apply `command`; the result is known before this node has applied it.

    Raises:
        PackingError: if a value of the command does not fit its field.
    """
    chunks = opaque(CommandKind.REGISTRY, encode_command(command))
    _Call(groups, timers, chunks, deadline_boot_ns, finished).start()


@attrs.define(eq=False)
class _Call:
    groups: Groups
    timers: Timers
    chunks: tuple[Buffer, ...]
    deadline_boot_ns: int
    finished: Finished | None
    repeated: bool = False
    timer: object = None

    def start(self) -> None:
        self.attempt()
        if self.finished is not None:
            self.timer = self.timers.call_at(self.deadline_boot_ns, self.expire)

    def attempt(self) -> None:
        if self.finished is not None:
            self.groups.submit(REGISTRY_GROUP, self.chunks, self.on_outcome, anywhere=True)

    def on_outcome(self, outcome: Outcome) -> None:
        match outcome:
            case Done(result=result):
                self.finish(Answer(decode_result(result), self.repeated))
            case NotDone(why=why):
                self.repeated = self.repeated or why is FailureReason.UNKNOWN
                self.timers.call_at(self.groups.now().boot_ns + RETRY_NS, self.attempt)

    def expire(self) -> None:
        self.timer = None
        self.finish(None)

    def finish(self, answer: Answer | None) -> None:
        finished, self.finished = self.finished, None
        if self.timer is not None:
            self.timers.cancel(self.timer)
            self.timer = None
        if finished is not None:
            finished(answer)
