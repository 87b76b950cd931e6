"""Which groups this node acts for as their master, as the broker was last told."""

from collections.abc import Iterable

from paxos.ids import GroupId, Now
from paxos.multigroup import MultiGroup


class Masterships:
    def __init__(self, multi: MultiGroup) -> None:
        self._multi = multi
        self._known: dict[GroupId, tuple[bool, int]] = {}
        self.counts: dict[GroupId, int] = {}
        """How often this node became master of each group, by election or steal."""
        self._mastered: dict[GroupId, int] = {}
        """The epoch of the last time it did."""

    def add(self, group: GroupId) -> None:
        self._known[group] = (False, -1)
        self.counts.setdefault(group, 0)

    def remove(self, group: GroupId) -> None:
        del self._known[group]

    def acts(self, group: GroupId) -> bool:
        return self._known[group][0]

    def changed(self, now: Now, only: Iterable[GroupId] | None = None) -> bool:
        """Whether one of these groups, or of all, began or ceased to be ours, or changed hands."""
        changed = False
        me, replicas, known = self._multi.me, self._multi.replicas, self._known
        for group in known if only is None else only:
            replica = replicas[group]
            lease = replica.lease
            if lease.holder != me and known[group] == (False, lease.epoch):
                continue  # most groups, and every tick
            state = (replica.acting(now), lease.epoch)
            if state != known[group]:
                self._note(group, *state)
                changed = True
        return changed

    def _note(self, group: GroupId, acting: bool, epoch: int) -> None:
        """A new epoch in which this node acts is a new mastership; a pause within one is none."""
        if acting and self._mastered.get(group) != epoch:
            self._mastered[group] = epoch
            self.counts[group] += 1
        self._known[group] = (acting, epoch)
