"""What each kind of simulated node says for itself: what entries mean, and what clients ask."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from balancer.registry import Registry
from paxos.entry import Entry
from paxos.ids import GroupId, Now, Slot


class NodeKind(ABC):
    @property
    @abstractmethod
    def registry(self) -> Registry | None:
        """This life's copy of the registry, where there is one."""

    @abstractmethod
    def begin_life(self) -> None:
        """Make anew what is neither the core's nor on the disk."""

    @abstractmethod
    def begin_group(self, group: GroupId) -> None:
        """Make the group's state machine anew."""

    @abstractmethod
    def apply(self, group: GroupId, slot: Slot, entry: Entry, *, live: bool) -> list[bytes]:
        """Apply a chosen entry to the group's state machine: a result for each of its commands."""

    @abstractmethod
    def parts(self, group: GroupId) -> Iterator[bytes]:
        """The group's state, to be written down; what is given out later may be of a later slot."""

    @abstractmethod
    def restore(self, group: GroupId, base: Slot, parts: Sequence[bytes]) -> None:
        """Become what `parts` say; the next slot to be applied is that after `base`."""

    @abstractmethod
    def asked(self, client: int, what: object) -> None:
        """A client's request has arrived."""

    def masters_changed(self, now: Now) -> None:  # noqa: B027 (most have nothing to do)
        """We begin or cease to act for some group, or it has changed hands."""

    def keep_house(self, now: Now) -> None:  # noqa: B027
        """Once a tick."""
