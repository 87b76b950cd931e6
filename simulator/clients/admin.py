"""The client that creates the topic: asks one node after the other until it exists."""

from typing import Final

from paxos.ids import MS
from simulator.clients.kafka_client import TOPIC, AnyResponse
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import dice
from wire.error_codes import ErrorCode
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

CREATE_VERSION: Final = 7
TIMEOUT_MS: Final = 1_000
RETRY_NS: Final = 100 * MS
DEFAULT: Final = -1


class Admin:
    def __init__(self, world: Surroundings, address: int) -> None:
        self._world = world
        self._chance = dice(world.options.seed, "admin")
        self._caller = world.caller(address)

    def start(self) -> None:
        self._create()

    def _create(self) -> None:
        topic = CreatableTopic(TOPIC, self._world.options.partitions, DEFAULT)
        request = CreateTopicsRequest([topic], timeout_ms=TIMEOUT_MS)
        target = self._chance.choice(self._world.addresses)
        self._caller.call(target, request, CREATE_VERSION, 2 * TIMEOUT_MS * MS, self._on_created)

    def _on_created(self, response: AnyResponse) -> None:
        error = None if response is None else response.topics[0].error_code
        if error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self._world.loop.after(RETRY_NS, self._create)
