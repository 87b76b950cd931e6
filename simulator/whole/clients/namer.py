"""A client that makes a topic at one node and asks for it at another as soon as it is told so.

Where nothing hurts the nodes, the other one knows it: clients make a topic by one connection and
produce by others.
"""

from typing import Final

from paxos.ids import MS
from simulator.clients.kafka_client import AnyResponse, KafkaClient
from simulator.environment.violation import Violation
from simulator.whole.clients.surroundings import WholeSurroundings
from simulator.whole.options import Fault
from wire.error_codes import ErrorCode
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest

START_NS_MAX: Final = 1_000 * MS
TIMEOUT_NS: Final = 1_500 * MS
CREATE_VERSION, DELETE_VERSION, METADATA_VERSION = 7, 5, 12
HARMLESS: Final = frozenset({Fault.PLACES, Fault.MEMBER_DIES, Fault.MEMBER_STALLS})


class Namer(KafkaClient):
    def __init__(self, world: WholeSurroundings, address: int) -> None:
        super().__init__(world, "namer", address, START_NS_MAX)
        self.world = world
        self._made = 0
        self._busy = False
        self._judges = world.options.faults <= HARMLESS

    def _act(self) -> None:
        if not self._busy:
            self._busy = True
            self._made += 1
            self._create(f"named-{self.address}-{self._made}")

    def _create(self, name: str) -> None:
        request = CreateTopicsRequest([CreatableTopic(name, 1, -1)], timeout_ms=1_000)

        def answered(response: AnyResponse) -> None:
            if response is None or response.topics[0].error_code != ErrorCode.NONE:
                self._busy = False
                return
            self._look(name)

        self._caller.call(self._anybody(), request, CREATE_VERSION, TIMEOUT_NS, answered)

    def _look(self, name: str) -> None:
        request = MetadataRequest([MetadataRequestTopic(name=name)])

        def answered(response: AnyResponse) -> None:
            error = None if response is None else response.topics[0].error_code
            if error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._judges:
                raise Violation(f"unknown-topic: {name} was made, and another node denies it")
            if error == ErrorCode.NONE:
                self.progress += 1
            self._delete(name)

        self._caller.call(self._anybody(), request, METADATA_VERSION, TIMEOUT_NS, answered)

    def _delete(self, name: str) -> None:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1_000)

        def answered(_response: AnyResponse) -> None:
            self._busy = False

        self._caller.call(self._anybody(), request, DELETE_VERSION, TIMEOUT_NS, answered)
