"""Topics that a change names and this node has not heard of: is there really none?

Another node may have told a client that the topic is made, and this one has yet to apply that. "No
such topic" is a definite answer, after which clients do not ask again, so it is given only by what
the registry was when it was asked for. The registry's master knows; any other node has the registry
judge a change that changes nothing, by the rules for changes that were decided on too little
(balancer.fences): refused as overtaken, this node waits for what it missed.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

import attrs

from balancer.catalogue import name_problem
from balancer.registry_commands import ConfigureTopic, Decided, Refusal, Refused
from broker.context import Broker
from broker.guard import gather, guarded
from broker.handlers.changes import LOOK_NS, TIMED_OUT, Verdict
from broker.registry_calls import Answer, change_registry
from broker.request import Request
from paxos.ids import REGISTRY_GROUP, Slot
from wire.error_codes import ErrorCode
from wire.schema import UUID_ZERO

NAMES_MAX: Final = 1_000


def is_certain(broker: Broker) -> bool:
    """Whether what this node knows of the registry is all there is."""
    groups = broker.groups
    return groups.acting(REGISTRY_GROUP) and groups.caught_up(REGISTRY_GROUP)


def no_such_topic(name: str, unsure: Collection[str]) -> Verdict:
    if name in unsure:
        return TIMED_OUT
    return Verdict(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such topic")


def when_known(
    broker: Broker,
    request: Request,
    names: Collection[str],
    deadline: int,
    act: Callable[[frozenset[str]], None],
) -> None:
    """Call `act` once this node knows each of these topics that there is, with the names of which
    nobody could say until the deadline (boot time in ns; a second from now, if that is later: a
    client that does not wait for its change is to be told whether it could be made)."""
    missing = sorted({name for name in names if _could_be(broker, name)})
    if not missing or len(missing) > NAMES_MAX or is_certain(broker):
        act(frozenset())
        return

    def told(unsure: Sequence[str | None]) -> None:
        act(frozenset(name for name in unsure if name is not None))

    deadline = max(deadline, broker.groups.now().boot_ns + LOOK_NS)
    put = gather(len(missing), told)
    for index, name in enumerate(missing):
        _Question(broker, request, name, deadline, partial(put, index)).ask()


def _could_be(broker: Broker, name: str) -> bool:
    """Whether there could be a topic of this name that this node has not heard of."""
    return broker.registry.topic(name) is None and name_problem(name) is None


@attrs.frozen(eq=False)
class _Question:
    """`told` is told the name if nobody could say, else None."""

    broker: Broker
    request: Request
    name: str
    deadline: int
    told: Callable[[str | None], None]

    def ask(self) -> None:
        broker = self.broker
        seen = broker.registry.applied
        nothing = Decided(seen, ConfigureTopic(self.name, UUID_ZERO, {}))
        answered = guarded(broker, self.request, partial(self._answered, seen))
        change_registry(broker.groups, broker.timers, nothing, self.deadline, answered)

    def _answered(self, seen: Slot, answer: Answer | None) -> None:
        registry = self.broker.registry
        if answer is None:
            self.told(self.name)
            return
        result = answer.result
        if not isinstance(result, Refused) or result.reason is not Refusal.OVERTAKEN:
            self.told(None)
            return
        again = guarded(self.broker, self.request, self._look)
        self.broker.holds.until(lambda: registry.applied > seen, self.deadline, again)

    def _look(self) -> None:
        if self.broker.registry.topic(self.name) is not None:
            self.told(None)
        elif self.broker.groups.now().boot_ns < self.deadline:
            self.ask()
        else:
            self.told(self.name)
