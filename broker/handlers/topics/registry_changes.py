"""A registry change that a client requested: decided, proposed, judged, and seen on this node.

It is decided on this node's copy of the registry, and says so (Decided). If another change of the
same thing came first, it is refused for good; then it is decided again on the new state, as long as
its client is connected: a client that has hung up may meanwhile have asked another node for
something else, and would find that undone. The same holds for a request that a stopped node read
late. An attempt whose outcome is unknown is repeated unchanged (registry_calls).

The client is answered once the change is applied here, so that this node agrees with the answer,
and then on all other nodes that are alive and keep up. The client may continue at any of them, and
a node that is behind would deny a new topic, accept writes to a deleted one, or refuse by old
settings.
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
"""However long a client would wait, its connection is held no longer than this."""
LOOK_NS: Final = 1_000 * MS
"""How long we look for our own change if it may be the one that came first."""
VERSION_NS: Final = 3_000 * MS
"""How long a change waits for the cluster version, which a new cluster needs a moment for."""
EVERYWHERE_NS: Final = 1_500 * MS
"""How long an answer waits for nodes that are alive but do not report having applied the change."""


class Verdict(NamedTuple):
    """The outcome for one topic of a request."""

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
    Refusal.INVALID_CREDENTIAL: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    Refusal.NO_SUCH_CREDENTIAL: ErrorCode.RESOURCE_NOT_FOUND,
    Refusal.INVALID_QUOTA: ErrorCode.INVALID_REQUEST,
    Refusal.CLUSTER_VERSION: ErrorCode.REQUEST_TIMED_OUT,  # clients try again
}

Decide = Callable[[Verdict], None]


@attrs.frozen(eq=False)
class Change:
    """One change. `make` says what to propose, or why nothing, given the registry at the time of
    the call; `judge` reads the result; `here`: whether this node has applied it; `decide` is called
    once."""

    broker: Broker
    request: Request
    deadline: int
    make: Callable[[], Command | Verdict]
    judge: Callable[[Answer], Verdict]
    here: Callable[[], bool]
    decide: Decide
    begun_boot_ns: int

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
        elif isinstance(result, Refused) and result.reason is Refusal.CLUSTER_VERSION:
            self._wait_for_version(answer)
        elif not isinstance(result, Refused) or result.reason is not Refusal.OVERTAKEN:
            self._judged(self.judge(answer))
        elif answer.repeated:  # was it refused because of its own first attempt?
            now, timed_out = self.broker.groups.now(), self._guarded(self._looked)
            until = min(self.deadline, now.boot_ns + LOOK_NS)
            self.broker.delayed_operations.until(self.here, until, timed_out)
        else:  # perhaps because of something this node has yet to learn
            registry, again = self.broker.registry, self._guarded(self._again)
            self.broker.delayed_operations.until(
                lambda: registry.applied > seen, self.deadline, again
            )

    def _wait_for_version(self, answer: Answer) -> None:
        """Not every node can read this change. In a new cluster that is so for a second or two,
        until all nodes have told what they read; during an upgrade the client gets the reason."""
        registry, now_ns = self.broker.registry, self.broker.groups.now().boot_ns
        before = registry.cluster_version.version
        patience_ns = max(0, VERSION_NS - (now_ns - self.begun_boot_ns))
        if not patience_ns or now_ns >= self.deadline:
            self._judged(self.judge(answer))
            return

        def look() -> None:
            if registry.cluster_version.version > before:
                self._again()
            else:
                self._judged(self.judge(answer))

        self.broker.delayed_operations.until(
            lambda: registry.cluster_version.version > before,
            min(self.deadline, now_ns + patience_ns),
            self._guarded(look),
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
    begun = broker.groups.now().boot_ns
    Change(broker, request, deadline, make, judge, here, decide, begun).submit()


def once_everywhere(broker: Broker, deadline: int, act: Callable[[], None]) -> None:
    """Call `act` when all nodes have reported that they have applied as much of the registry as
    this one, silent nodes excepted; nodes that are far behind are waited for EVERYWHERE_NS at
    most."""
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
