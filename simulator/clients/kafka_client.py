"""A simulated client's connections: real Kafka frames; each request gets an answer, or none.

There is one connection to a node at a time. A request that is not answered in time, and an answer
that says the node has closed the connection, end it with everything in flight on it; the next
request makes a new one. So does a request to a node that has restarted meanwhile, whose TCP answers
with a reset.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

from paxos.ids import NodeId
from simulator.clients.surroundings import Surroundings
from simulator.environment.dice import between, dice
from simulator.node.broker_node import Answer, Asked
from wire.apis import APIS, Request, decode_response, encode_request, response_correlation_id

TOPIC: Final = "simulated"
NO_CONNECTION: Final = (0, 0, 0)
FORGIVE_CHANCE: Final = 0.1
"""Chance that nodes that were silent are asked again."""
_KEYS: Final = {api.request: int(key) for key, api in APIS.items()}

AnyResponse: TypeAlias = Any
"""The response class that belongs to the request, or None if there is no answer."""
Answered: TypeAlias = Callable[[AnyResponse], None]


class _Call(NamedTuple):
    target: int
    connection: int
    api_key: int
    version: int
    answered: Answered


class Caller:
    """A client's connections in worlds whose network carries whole frames."""

    def __init__(self, world: Surroundings, address: int) -> None:
        self._world, self._address = world, address
        self._calls: dict[int, _Call] = {}
        self._number = 0
        self._connection = 0
        self._connections: dict[int, tuple[int, int, int]] = {}
        """Target -> its connection, the number of the next frame on it, and the target's life."""
        self._early: dict[int, Answer] = {}
        """Answers that came before those to earlier requests of their connection."""
        self._refusals: dict[int, set[int]] = {}
        """Per connection, the refusals that the client has received."""
        world.network.attach(address, self.deliver)

    def call(
        self, target: int, message: Request, version: int, timeout_ns: int, answered: Answered
    ) -> None:
        """`answered` is called once: with the response, or None if there is none."""
        world = self._world
        self._number += 1
        number = self._number
        connection = self.connection(target)
        _, frame_number, life = self._connections[target]
        self._connections[target] = (connection, frame_number + 1, life)
        self._calls[number] = _Call(target, connection, _KEYS[type(message)], version, answered)
        frame = b"".join(encode_request(message, version, number, f"client-{self._address}"))[4:]
        world.trace.mix(frame)
        knows = known_in_row(self._refusals.get(connection, set()))
        world.network.send(self._address, target, Asked(connection, frame_number, frame, knows))
        world.loop.after(timeout_ns, self._timed_out, number)

    def connection(self, target: int) -> int:
        """The connection on which the next request will go."""
        life = self._world.nodes[NodeId(target)].life
        connection, _, met = self._connections.get(target, NO_CONNECTION)
        if connection and met != life:
            self._disconnect(target, connection)
            connection = self._connections.get(target, NO_CONNECTION)[0]
        if not connection:
            self._connection += 1
            connection = self._connection
            self._connections[target] = (connection, 0, life)
        return connection

    def deliver(self, source: int, what: object) -> None:
        assert type(what) is Answer
        if what.connection != self._connections.get(source, NO_CONNECTION)[0]:
            return
        if not what.frame:
            self._disconnect(source, what.connection)
            return
        number = response_correlation_id(memoryview(what.frame)[4:])
        if number in self._calls:  # the network may repeat an answer
            self._early[number] = what
            self._read(what.connection)

    def _read(self, connection: int) -> None:
        """Read answers in the order of the requests: TCP and nodes let no answer overtake another,
        so a client cannot know of a refusal before it knows the outcome of what it sent before."""
        while (oldest := self._oldest(connection)) in self._early:
            what, call = self._early.pop(oldest), self._calls.pop(oldest)
            self._refusals.setdefault(connection, set()).update(what.refusals)
            frame = memoryview(what.frame)[4:]
            call.answered(decode_response(call.api_key, call.version, frame))

    def _oldest(self, connection: int) -> int:
        """The number of the first request that is not answered; 0 if all are."""
        under_way = (n for n, call in self._calls.items() if call.connection == connection)
        return next(under_way, 0)

    def _timed_out(self, number: int) -> None:
        call = self._calls.get(number)
        if call is not None:
            self._disconnect(call.target, call.connection)

    def _disconnect(self, target: int, connection: int) -> None:
        if self._connections.get(target, NO_CONNECTION)[0] == connection:
            del self._connections[target]
            self._refusals.pop(connection, None)
        lost = [n for n, call in self._calls.items() if call.connection == connection]
        for number in lost:
            self._early.pop(number, None)
            self._calls.pop(number).answered(None)


def known_in_row(refusals: set[int]) -> int:
    """All refusals up to this one are known: neither TCP nor a node reorders answers."""
    number = 0
    while number + 1 in refusals:
        number += 1
    return number


class KafkaClient(ABC):
    """The common part of producers, readers and members: an address, dice and connections of their
    own, and something to do now and then. `progress` counts successes."""

    def __init__(self, world: Surroundings, kind: str, address: int, start_ns_max: int) -> None:
        self._world, self.address = world, address
        self._chance = dice(world.options.seed, kind, address)
        self._caller = world.caller(address)
        self._start_ns_max = start_ns_max
        self._turn = self._chance.randrange(len(world.addresses))
        self._silent: set[int] = set()
        self.name = f"{kind} {address}"
        self.progress = 0
        self.stopped = False

    @property
    def think_ns(self) -> int:
        """It pauses for one to three times this long."""
        return self._world.options.client_think_ns

    @abstractmethod
    def _act(self) -> None:
        """Do the next thing."""

    def start(self) -> None:
        self._world.loop.after(between(self._chance, 0, self._start_ns_max), self._pump)

    def _pump(self) -> None:
        if not self.stopped:
            pause_ns = between(self._chance, self.think_ns, 3 * self.think_ns)
            self._world.loop.after(pause_ns, self._pump)
            self._act()

    def _anybody(self) -> int:
        """The next node each time, so that finding one that is up needs no luck (seed 4)."""
        addresses = self._world.addresses
        self._turn = (self._turn + 1) % len(addresses)
        return addresses[self._turn]

    def _anybody_heard(self) -> int:
        """Preferably a node that was not `_silent` lately: a client that asks one thing at a time
        would spend half of a short world waiting. And not the same one again by chance (seed
        286)."""
        if self._chance.random() < FORGIVE_CHANCE:
            self._silent.clear()
        for _ in self._world.addresses:
            node = self._anybody()
            if node not in self._silent:
                return node
        return self._anybody()
