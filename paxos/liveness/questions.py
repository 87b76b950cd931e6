"""Outstanding questions of a node: it asks for little at first, and never twice before an answer.

A question costs the node that answers far more than the one that asks. So:

- a replica that only has to hear what others remember of it (`Core.can_vote`) asks for that alone,
  with a message of fixed size: a Learn for which nobody has entries (`ASK_PROGRESS`). It asks a
  peer again after an answer, or after `Timing.learn_timeout_ns` without one;
- a group has at most one outstanding question for entries, whomever it asked, and a node has at
  most `LEARNING_MAX`. This bounds the bulk that heartbeats on the same link may have to wait for.
  Groups that want to ask wait in the order in which they came.
"""

from itertools import islice
from typing import Final

import attrs

from paxos.ids import MS, GroupId, NodeId

LEARNING_MAX: Final = 8
"""Outstanding questions for entries, over all groups of a node."""
LOST_INTEREST_NS: Final = 500 * MS
"""A group that has not tried to ask for this long got what it needed by other means."""


@attrs.define(eq=False)
class Questions:
    """Shared by the groups of a node: which wait for entries, and which would like to ask."""

    _open: dict[GroupId, tuple[NodeId, int]] = attrs.Factory(dict)
    """Per group: whom it has asked, and until when it waits."""
    _waiting: dict[GroupId, int] = attrs.Factory(dict)

    def may_ask(self, now_ns: int, group: GroupId, node: NodeId, until_ns: int) -> bool:
        """Whether it is the group's turn; if so, the question counts as asked."""
        self._open = {one: row for one, row in self._open.items() if row[1] > now_ns}
        if group in self._open:
            return False
        self._waiting[group] = now_ns
        while now_ns - (first := next(iter(self._waiting.items())))[1] > LOST_INTEREST_NS:
            del self._waiting[first[0]]
        if group not in islice(self._waiting, LEARNING_MAX - len(self._open)):
            return False
        del self._waiting[group]
        self._open[group] = (node, until_ns)
        return True

    def answered(self, group: GroupId, node: NodeId) -> bool:
        """The question is over, if this is the node that was asked; returns whether it is."""
        asked = self._open.get(group)
        if asked is None or asked[0] != node:
            return False
        del self._open[group]
        return True

    def forget(self, group: GroupId) -> None:
        self._open.pop(group, None)
        self._waiting.pop(group, None)

    @property
    def under_way(self) -> int:
        return len(self._open)
