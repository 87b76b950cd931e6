"""A change of the registry that a client asked for: decided, proposed, judged, seen on this node.

It is decided on what this node knows of the registry, and says so (Decided): where somebody else's
change of the same thing came first it is refused, can never be carried out any more, and is decided
anew on what there is now, as long as its client is there: who has hung up may have asked another
node since, for something else, and would find it undone. So it is with a request that was read
late, by a node that had stopped. An attempt whose fate is unknown is repeated as it is
(registry_calls).
The client is answered when the change is applied here as well, so that it finds what it was told
when it asks this node next, and then on all other nodes that live and keep up: it may go on at any
of them, which would deny a topic it was told of, write to one that it was told is gone, or refuse
by settings that were.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import attrs

from balancer.registry.commands import Command, Decided, Refusal, Refused, Result
from broker.registry_calls import Answer, change_registry
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.request import Request
from paxos.ids import MS, REGISTRY_GROUP, Slot
from wire.error_codes import ErrorCode

TIMEOUT_MS_MAX: Final = 60_000
"""However long a client would wait, its connection is not held longer."""
LOOK_NS: Final = 1_000 * MS
"""How long we look for our own change where it may have been what came first."""
EVERYWHERE_NS: Final = 1_500 * MS
"""So long an answer waits for nodes that are alive and do not say that they have heard of it."""


class Verdict(NamedTuple):
    """What became of one topic of a request."""

    error: ErrorCode
    message: str | None = None


DONE: Final = Verdict(ErrorCode.NONE)
TIMED_OUT: Final = Verdict(
    ErrorCode.REQUEST_TIMED_OUT, "not known to be done in time; it may still happen"
)

_REFUSALS: Final = {
    Refusal.NOT_FOUNDED: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Refusal.TOPIC_EXISTS: ErrorCode.TOPIC_ALREADY_EXISTS,
    Refusal.UNKNOWN_TOPIC: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Refusal.INVALID_NAME: ErrorCode.INVALID_TOPIC_EXCEPTION,
    Refusal.INVALID_TOPIC_ID: ErrorCode.INVALID_REQUEST,
    Refusal.INVALID_PARTITIONS: ErrorCode.INVALID_PARTITIONS,
    Refusal.TOO_MANY_PARTITIONS: ErrorCode.INVALID_PARTITIONS,
    Refusal.TOO_MANY_TOPICS: ErrorCode.POLICY_VIOLATION,
    Refusal.INVALID_REPLICATION: ErrorCode.INVALID_REPLICATION_FACTOR,
    Refusal.INVALID_CONFIGS: ErrorCode.INVALID_CONFIG,
    Refusal.UNKNOWN_NODE: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    Refusal.NODE_LEAVING: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    Refusal.NOT_A_MEMBER: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    Refusal.INVALID_REPLICAS: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
}

Decide = Callable[[Verdict], None]


@attrs.frozen(eq=False)
class Change:
    """One change. `make` says what to propose, or why nothing, by what the registry is when it is
    called; `judge` reads the result; `here`: whether this node has it; `decide` is told once."""

    broker: Broker
    request: Request
    deadline: int
    make: Callable[[], Command | Verdict]
    judge: Callable[[Answer], Verdict]
    here: Callable[[], bool]
    decide: Decide

    def submit(self) -> None:
        if self.request.reply.has_hung_up():
            self.decide(TIMED_OUT)
            return
        command, broker = self.make(), self.broker
        if isinstance(command, Verdict):
            self.decide(command)
            return
        decided = Decided(broker.registry.applied, command)
        finished = self._guarded(partial(self._finished, decided.seen))
        change_registry(broker.groups, broker.timers, decided, self.deadline, finished)

    def _finished(self, seen: Slot, answer: Answer | None) -> None:
        result = None if answer is None else answer.result
        if answer is None:
            self.decide(TIMED_OUT)
        elif not isinstance(result, Refused) or result.reason is not Refusal.OVERTAKEN:
            self._judged(self.judge(answer))
        elif answer.repeated:  # was it overtaken by its own first attempt?
            now, timed_out = self.broker.groups.now(), self._guarded(self._looked)
            until = min(self.deadline, now.boot_ns + LOOK_NS)
            self.broker.delayed_operations.until(self.here, until, timed_out)
        else:  # by what this node has yet to hear of, perhaps
            registry, again = self.broker.registry, self._guarded(self._again)
            self.broker.delayed_operations.until(
                lambda: registry.applied > seen, self.deadline, again
            )

    def _again(self) -> None:
        if self.broker.groups.now().boot_ns < self.deadline:
            self.submit()
        else:
            self.decide(TIMED_OUT)

    def _judged(self, verdict: Verdict) -> None:
        if verdict.error == ErrorCode.NONE:
            when_here = self._guarded(partial(self._tell_everywhere, verdict))
            self.broker.delayed_operations.until(self.here, self.deadline, when_here)
        else:
            self._guarded(self.decide)(verdict)

    def _looked(self) -> None:
        if self.here():
            self._tell_everywhere(DONE)
        else:
            self.decide(TIMED_OUT)

    def _tell_everywhere(self, verdict: Verdict) -> None:
        when_everywhere = self._guarded(partial(self.decide, verdict))
        once_everywhere(self.broker, self.deadline, when_everywhere)

    def _guarded(self, act: Callable[..., None]) -> Callable[..., None]:
        return guarded(self.broker, self.request, act)


def submit(
    broker: Broker,
    request: Request,
    make: Callable[[], Command | Verdict],
    deadline: int,
    judge: Callable[[Answer], Verdict],
    here: Callable[[], bool],
    decide: Decide,
) -> None:
    """Carry out a change; see Change."""
    Change(broker, request, deadline, make, judge, here, decide).submit()


def once_everywhere(broker: Broker, deadline: int, act: Callable[[], None]) -> None:
    """Call `act` when all nodes have told that they have applied what this one has of the registry,
    but for those that are silent; of those that are far behind it is EVERYWHERE_NS at most."""
    groups = broker.groups
    heard = partial(groups.known_to_have_applied, REGISTRY_GROUP, broker.registry.applied)
    until = min(deadline, groups.now().boot_ns + EVERYWHERE_NS)
    broker.delayed_operations.until(heard, until, act)


def deadline_of(broker: Broker, timeout_ms: int) -> int:
    return broker.groups.now().boot_ns + min(max(timeout_ms, 0), TIMEOUT_MS_MAX) * MS


def refused(result: Result) -> Verdict:
    assert isinstance(result, Refused), f"the registry answered {result}"
    error = _REFUSALS.get(result.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Verdict(error, result.detail or result.reason.name.lower().replace("_", " "))
