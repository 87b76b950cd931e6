"""A client that takes what others need: connections that say nothing, requests that do not end.

Each may cost a node what is set aside for it, and nobody else anything.
"""

from typing import Final

from paxos.ids import MS
from simulator.clients.kafka_client import KafkaClient
from simulator.whole.calls import Connection, StreamCalls
from simulator.whole.clients.surroundings import WholeSurroundings

START_NS_MAX: Final = 300 * MS
EACH_MAX: Final = 120
"""Connections to all nodes together: more than one of them has places for (world.tight)."""
OPENED_EACH_TIME: Final = 30
PRODUCE_HEAD: Final = b"\x00\x00\x00\x09"
"""API key and version."""
LENGTH: Final = 200_000
BEGUN: Final = 20_000
"""Of so many bytes so many come."""
SILENT_CHANCE: Final = 0.6


class Squatter(KafkaClient):
    def __init__(self, world: WholeSurroundings, address: int) -> None:
        super().__init__(world, "squatter", address, START_NS_MAX)
        self.world = world
        self._calls = StreamCalls(world.loop, world.lan, world.trace, address)
        self._open: list[Connection] = []
        self._opened = 0

    def _act(self) -> None:
        self._open = [one for one in self._open if not one.closed]
        for _ in range(min(OPENED_EACH_TIME, EACH_MAX - len(self._open))):
            self._opened += 1
            one = Connection(self._calls, self._anybody(), self._opened)
            if self._chance.random() >= SILENT_CHANCE:
                one.say(LENGTH.to_bytes(4, "big") + PRODUCE_HEAD + bytes(BEGUN))
            self._open.append(one)
        self.world.statistics["connections squatted"] = max(
            self.world.statistics["connections squatted"], len(self._open)
        )
        self.progress += 1
