"""A change of the registry that a client asked for: proposed, judged, and seen on this node.

The client is answered when the change is applied here as well, so that it finds what it was told
when it asks this node next. Where an attempt's fate is unknown it is repeated; see registry_calls.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from balancer.registry_commands import Command, Refusal, Refused, Result
from broker.context import Broker, Request
from broker.guard import guarded
from broker.registry_calls import Answer, change_registry
from paxos.ids import MS
from wire.error_codes import ErrorCode

TIMEOUT_MS_MAX: Final = 60_000
"""However long a client would wait, its connection is not held longer."""


class Verdict(NamedTuple):
    """What became of one topic of a request."""

    error: ErrorCode
    message: str | None = None


DONE: Final = Verdict(ErrorCode.NONE)
TIMED_OUT: Final = Verdict(
    ErrorCode.REQUEST_TIMED_OUT, "not known to be done in time; it may yet come true"
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


def submit(
    broker: Broker,
    request: Request,
    command: Command,
    deadline: int,
    judge: Callable[[Answer], Verdict],
    here: Callable[[], bool],
    decide: Decide,
) -> None:
    """Carry out `command`; `judge` reads its result, `here` says whether this node has it."""

    def finished(answer: Answer | None) -> None:
        verdict = TIMED_OUT if answer is None else judge(answer)
        told = guarded(broker, request, partial(decide, verdict))
        if verdict.error == ErrorCode.NONE:
            broker.holds.until(here, deadline, told)
        else:
            told()

    safely = guarded(broker, request, finished)
    change_registry(broker.groups, broker.timers, command, deadline, safely)


def deadline_of(broker: Broker, timeout_ms: int) -> int:
    return broker.groups.now().boot_ns + min(max(timeout_ms, 0), TIMEOUT_MS_MAX) * MS


def refused(result: Result) -> Verdict:
    assert isinstance(result, Refused), f"the registry answered {result}"
    error = _REFUSALS.get(result.reason, ErrorCode.UNKNOWN_SERVER_ERROR)
    return Verdict(error, result.detail or result.reason.name.lower().replace("_", " "))
