"""What a client sees of its world: time, network, nodes, and the checkers that it tells about its
answers. `simulator.world.World` has all of it."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

from paxos.ids import NodeId
from simulator.checkers.dead_members import DeadMembers
from simulator.checkers.groups import GroupLogs
from simulator.checkers.orders import Orders
from simulator.checkers.partition_logs import PartitionLogs
from simulator.checkers.protocol import Acknowledged
from simulator.environment.loop import Loop
from simulator.environment.network import Network
from simulator.environment.options import Options
from simulator.environment.trace import Trace
from simulator.node.node import SimNode
from wire.apis import Request


class Surroundings(Protocol):
    options: Options
    loop: Loop
    trace: Trace
    statistics: Counter[str]
    network: Network
    addresses: list[int]
    """Of the nodes."""
    nodes: dict[NodeId, SimNode]
    producer_ids: list[tuple[int, int]]
    """Ids and epochs in use, in the order of their appearance: a liar may name them."""
    member_names: list[tuple[str, int]]
    """Members and generations, as they were reported: a liar may name them as well."""
    fresh: bool
    """Whether clocks are good enough for I7."""
    acknowledged: Acknowledged
    orders: Orders
    group_logs: GroupLogs
    partition_logs: PartitionLogs
    deaths: DeadMembers

    def topic_id(self, node: NodeId, name: str) -> bytes | None:
        """The topic of this name that the node knows."""
        ...

    def caller(self, address: int) -> "Calls":
        """The connections of the client with this address."""
        ...


class Calls(Protocol):
    """A client's connections to nodes, one to each."""

    def call(
        self,
        target: int,
        message: Request,
        version: int,
        timeout_ns: int,
        answered: Callable[[Any], None],
    ) -> None:
        """`answered` is called once: with the response, or None if there is none."""
        ...

    def connection(self, target: int) -> int:
        """The connection on which the next request will go."""
        ...
