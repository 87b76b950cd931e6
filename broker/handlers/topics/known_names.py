"""Topics that a request names and this node does not know: do they really not exist?

A node whose copy of the registry may be incomplete (it has just started and has not yet heard from
a majority how far they are, it is catching up, it is cut off) denies nothing at all: `may_deny`. A
request about a partition gets the error for a leader that has moved, so its client looks for it
again. A request for the list of topics waits for a moment, and then its connection is closed, so
that the client asks another node. LEADER_NOT_AVAILABLE would not do: librdkafka reports a
subscribed topic as unknown to its application on that as well.

Changes are more careful. Another node may have told a client that the topic exists, and this one
has yet to apply that. "No such topic" is a definite answer, after which clients do not retry, so
only the registry as of the request may give it. The registry's master knows it; any other node lets
the registry judge a change that changes nothing, by the rules for changes decided on an old state
(balancer.registry.fences): if that is refused as outdated, this node waits for what it missed.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

import attrs

from balancer.registry.catalogue import name_problem
from balancer.registry.commands import ConfigureTopic, Decided, Refusal, Refused
from broker.handlers.topics.registry_changes import LOOK_NS, TIMED_OUT, Verdict
from broker.registry_calls import Answer, change_registry
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded
from broker.requests.request import Request
from paxos.ids import MS, REGISTRY_GROUP, Slot
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode

NAMES_MAX: Final = 1_000
NO_TOPIC: Final = Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")
NOT_KNOWN: Final = Verdict(
    ErrorCode.REQUEST_TIMED_OUT, "not known here: this node is still catching up"
)


def is_certain(broker: Broker) -> bool:
    """Whether this node knows the whole registry."""
    groups = broker.groups
    return groups.acting(REGISTRY_GROUP) and groups.caught_up(REGISTRY_GROUP)


def may_deny(broker: Broker) -> bool:
    """Whether this node may say that a topic does not exist."""
    if is_certain(broker):
        return True
    return not broker.redirects_clients() and broker.groups.is_current(REGISTRY_GROUP)


def denial(
    broker: Broker, error: ErrorCode, instead: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER
) -> ErrorCode:
    """The error for what is unknown here; `instead` is one on which clients ask again."""
    return error if may_deny(broker) else instead


def before_denying(
    broker: Broker, request: Request, denies: Callable[[], bool], act: Callable[[], None]
) -> None:
    """Call `act` when it would deny nothing, or may, or after a moment; see `may_deny`."""
    if may_deny(broker) or not denies():
        act()
        return
    until = broker.groups.now().boot_ns + broker.config.no_coordinator_wait_ms * MS
    broker.delayed_operations.until(partial(may_deny, broker), until, guarded(broker, request, act))


def knows_a_part(broker: Broker) -> bool:
    """Whether there certainly is more than what this node knows. A client that asks for all topics
    is not sent away because the registry has lost its majority: it may want what still works."""
    return not broker.registry.nodes or broker.groups.lacks_entries(REGISTRY_GROUP)


def denied(broker: Broker, verdict: Verdict) -> Verdict:
    """The answer about an unknown topic to clients that manage topics."""
    return verdict if may_deny(broker) else NOT_KNOWN


def is_unknown(broker: Broker, names: Iterable[str]) -> bool:
    return any(broker.registry.topic(name) is None for name in names)


def no_such_topic(name: str, unsure: Collection[str]) -> Verdict:
    return TIMED_OUT if name in unsure else NO_TOPIC


def when_known(
    broker: Broker,
    request: Request,
    names: Collection[str],
    deadline: int,
    act: Callable[[frozenset[str]], None],
) -> None:
    """Call `act` once this node knows all those of these topics that exist, with the names that
    remain uncertain at the deadline (boot time in ns; a second from now, if that is later: a client
    that does not wait for its change is still told whether it could be made)."""
    missing = sorted({name for name in names if _could_be(broker, name)})
    if not missing or len(missing) > NAMES_MAX or is_certain(broker):
        act(frozenset())
        return

    def on_answers(unsure: Sequence[str | None]) -> None:
        act(frozenset(name for name in unsure if name is not None))

    deadline = max(deadline, broker.groups.now().boot_ns + LOOK_NS)
    put = gather(len(missing), on_answers)
    for index, name in enumerate(missing):
        _Question(broker, request, name, deadline, partial(put, index)).ask()


def _could_be(broker: Broker, name: str) -> bool:
    """Whether a topic of this name may exist that this node has not heard of."""
    return broker.registry.topic(name) is None and name_problem(name) is None


@attrs.frozen(eq=False)
class _Question:
    """`on_answer` gets the name if its existence stays unknown, else None."""

    broker: Broker
    request: Request
    name: str
    deadline: int
    on_answer: Callable[[str | None], None]

    def ask(self) -> None:
        broker = self.broker
        seen = broker.registry.applied
        nothing = Decided(seen, ConfigureTopic(self.name, UUID_ZERO, {}))
        answered = guarded(broker, self.request, partial(self._answered, seen))
        change_registry(broker.groups, broker.timers, nothing, self.deadline, answered)

    def _answered(self, seen: Slot, answer: Answer | None) -> None:
        registry = self.broker.registry
        if answer is None:
            self.on_answer(self.name)
            return
        result = answer.result
        if not isinstance(result, Refused) or result.reason is not Refusal.OVERTAKEN:
            self.on_answer(None)
            return
        again = guarded(self.broker, self.request, self._look)
        self.broker.delayed_operations.until(lambda: registry.applied > seen, self.deadline, again)

    def _look(self) -> None:
        if self.broker.registry.topic(self.name) is not None:
            self.on_answer(None)
        elif self.broker.groups.now().boot_ns < self.deadline:
            self.ask()
        else:
            self.on_answer(self.name)
