"""Ids for idempotent producers (KIP-98), allocated in blocks by the registry and handed out here.

Ids are unique because the registry allocates every block once (KIP-730); the rest of a block is
lost with the process, which costs nothing out of 2^63. One allocation serves many clients that
start at the same moment.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from balancer.registry.commands import AllocateProducerIds
from balancer.registry.commands import ProducerIds as Block
from broker.ports import Groups, Timers
from broker.registry_calls import Answer, change_registry
from paxos.ids import MS, NodeId

BLOCK_IDS: Final = 1_000
WAITING_MAX: Final = 10_000
"""Most requests that wait for a block; further ones have to retry."""
WAIT_NS: Final = 2_000 * MS
"""Clients retry by themselves, but only after half a second."""

Use = Callable[[int | None], None]
"""Called with the id, or None where none was available in time. It must not raise."""


class ProducerIds:
    def __init__(self, me: NodeId, groups: Groups, timers: Timers) -> None:
        self._me = me
        self._groups = groups
        self._timers = timers
        self._free = range(0)
        self._waiting: deque[Use] = deque()
        self._asked = False

    def take(self, use: Use) -> None:
        """Pass a unique id to `use`: at once, or after an allocation."""
        if self._free:
            use(self._next())
        elif len(self._waiting) >= WAITING_MAX:
            use(None)
        else:
            self._waiting.append(use)
            self._allocate()

    def _next(self) -> int:
        first, self._free = self._free[0], self._free[1:]
        return first

    def _allocate(self) -> None:
        if self._asked:
            return
        self._asked = True
        deadline = self._groups.now().boot_ns + WAIT_NS
        command = AllocateProducerIds(self._me, BLOCK_IDS)
        change_registry(self._groups, self._timers, command, deadline, self._on_answer)

    def _on_answer(self, answer: Answer | None) -> None:
        self._asked = False
        if answer is None or not isinstance(answer.result, Block):
            waiting, self._waiting = self._waiting, deque()
            for use in waiting:
                use(None)
            return
        block = answer.result
        self._free = range(block.first, block.first + block.count)
        while self._waiting and self._free:
            self._waiting.popleft()(self._next())
        if self._waiting:
            self._allocate()
