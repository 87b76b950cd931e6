"""What faults see of their world, and of the object that chooses among them.
`simulator.world.World` and `nemesis.Nemesis` provide all of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from paxos.ids import GroupId, NodeId
from paxos.replica import Replica
from simulator.checkers.dead_members import DeadMembers
from simulator.checkers.protocol import Chosen
from simulator.environment.loop import Loop
from simulator.environment.network import Network
from simulator.environment.options import Options
from simulator.environment.trace import Trace
from simulator.node.node import SimNode


class Conductor(Protocol):
    """Decides what goes wrong, and when."""

    stopped: bool
    """Everything heals: nothing more goes wrong."""
    busy_until: int
    """Until then a plot of several steps is under way: random faults would only spoil it."""

    def note(self, what: str, *values: object) -> None: ...

    def later(self, delay_ns: int, call: Callable[..., None], *args: object) -> None:
        """Call it then, unless everything has healed by that time."""

    def crash(self, node: SimNode, chance: Random) -> None: ...


class AnyClient(Protocol):
    address: int


class Surroundings(Protocol):
    options: Options
    loop: Loop
    trace: Trace
    statistics: Counter[str]
    network: Network
    addresses: list[int]
    """The nodes' addresses."""
    members: dict[GroupId, tuple[NodeId, ...]]
    nodes: dict[NodeId, SimNode]
    brokers: bool
    settles: bool
    chosen: Chosen
    deaths: DeadMembers

    @property
    def clients(self) -> Sequence[AnyClient]: ...

    def somebody(self, chance: Random) -> SimNode: ...

    def runs(self, node: SimNode) -> bool: ...

    def all_masters(self) -> list[tuple[SimNode, GroupId]]: ...

    def check_all_masters(self) -> None: ...

    def may_be_member(self, replica: Replica) -> bool: ...

    def configurations(self, group: GroupId) -> list[tuple[NodeId, ...]]: ...
