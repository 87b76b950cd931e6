"""The groups that this node acts for as master, as last reported to the broker."""

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
        """The epoch in which it last did."""

    def add(self, group: GroupId) -> None:
        self._known[group] = (False, -1)
        self.counts.setdefault(group, 0)

    def remove(self, group: GroupId) -> None:
        del self._known[group]

    def acts(self, group: GroupId) -> bool:
        return self._known[group][0]

    def changed(self, now: Now, only: Iterable[GroupId] | None = None) -> bool:
        """Whether, for one of these groups (None: of all), this node began or ceased to act, or the
        epoch changed, since the last call."""
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
        """Count a new mastership if the epoch is new; a pause within an epoch is not one."""
        if acting and self._mastered.get(group) != epoch:
            self._mastered[group] = epoch
            self.counts[group] += 1
        self._known[group] = (acting, epoch)
