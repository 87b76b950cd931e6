"""What each kind of simulated node defines: what entries mean, and what clients ask."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from balancer.registry.registry import Registry
from paxos.entry import Entry
from paxos.ids import GroupId, NodeId, Now, Slot
from paxos.step import FetchState
from simulator.node.group_state import Forwarded


class NodeKind(ABC):
    @property
    @abstractmethod
    def registry(self) -> Registry | None:
        """This life's copy of the registry, if there is one."""

    @abstractmethod
    def begin_life(self) -> None:
        """Create whatever is neither the core's nor on the disk."""

    @abstractmethod
    def begin_group(self, group: GroupId) -> None:
        """Create the group's state machine, empty."""

    @abstractmethod
    def apply(self, group: GroupId, slot: Slot, entry: Entry, *, live: bool) -> list[bytes]:
        """Apply a chosen entry to the group's state machine: a result for each of its commands."""

    @abstractmethod
    def parts(self, group: GroupId) -> Iterator[bytes]:
        """The group's state, to be written down; later parts may show the state at a later slot."""

    @abstractmethod
    def restore(self, group: GroupId, base: Slot, parts: Sequence[bytes]) -> None:
        """Take the state of `parts`; the next slot to apply is the one after `base`."""

    def booted(self) -> None:  # noqa: B027
        """All groups are as the disk has them."""

    def left(self, group: GroupId) -> None:  # noqa: B027
        """This node has no part in the group any more; its state machine is still there."""

    def state_needed(self, fetch: FetchState) -> bool:
        """A replica needs a peer's state; returns whether the node fetches it by itself."""
        return False

    def caught_up_with(self, source: NodeId, frame: bytes) -> None:  # noqa: B027
        """A message of broker.transfer has arrived."""

    def numbered(self, _to: NodeId, message: Forwarded) -> Forwarded:
        """A forwarded message, numbered on links that keep the order."""
        return message

    @abstractmethod
    def asked(self, client: int, what: object) -> None:
        """A client's request has arrived."""

    def masters_changed(self, now: Now) -> None:  # noqa: B027 (most have nothing to do)
        """This node begins or ceases to act for some group, or a group has changed hands."""

    def keep_house(self, now: Now) -> None:  # noqa: B027
        """Called once a tick."""
