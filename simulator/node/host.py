"""A simulated node as its parts see it: balancing, checkpoints, threads, proposals to the registry.
`node.SimNode` is one."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import ParamSpec, Protocol

from broker.proposals.intake import Pending
from paxos.ids import GroupId, Incarnation, NodeId, Now, Slot
from paxos.messages import StealRequest
from paxos.multigroup import MultiGroup
from paxos.step import Step
from simulator.node.crash_points import Boundary
from simulator.node.disk import Disk
from simulator.node.group_state import Group
from simulator.node.surroundings import Surroundings

P = ParamSpec("P")


class Host(Protocol):
    world: Surroundings
    me: NodeId
    disk: Disk
    up: bool
    life: int
    """Boots so far: events of an earlier life are void."""
    paused_until: int
    groups: dict[GroupId, Group]
    core: MultiGroup

    def now(self) -> Now: ...

    def enter(self, act: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None: ...

    def finish(self, now: Now, step: Step, stepped: Iterable[Group]) -> None: ...

    def fail(self, why: object) -> None: ...

    def reach(self, boundary: Boundary) -> None:
        """The node dies here if it is doomed to."""

    # -- the log ------------------------------------------------------------------------------

    @property
    def appended(self) -> int: ...

    def wrote(self) -> None: ...

    def is_durable(self, appended: int) -> bool: ...

    # -- the state machines -------------------------------------------------------------------

    def begin_group(self, group: GroupId) -> None: ...

    def parts(self, group: GroupId) -> Iterator[bytes]: ...

    def restore(self, group: GroupId, base: Slot, parts: Sequence[bytes]) -> None: ...

    # -- commands and steals ------------------------------------------------------------------

    def command(self, ident: GroupId, pending: Pending, *, anywhere: bool = False) -> None: ...

    def admit(self, source: NodeId, request: StealRequest) -> None: ...

    def ask_for(
        self, ident: GroupId, incarnation: Incarnation, lease_ver: Slot, token: int
    ) -> None: ...
