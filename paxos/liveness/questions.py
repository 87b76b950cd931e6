"""What a replica asks of its peers: little at first, and never twice before there was an answer.

A question costs whoever is asked far more than the one who asks. So:

- who only has to hear what others remember of it (`can_vote`) asks for that alone, a message of
  fixed size: a Learn that nobody has entries for (`ASK_PROGRESS`). Each peer is asked again when it
  has answered, or has not for `Timing.learn_timeout_ns`;
- a group has one question for entries under way, whoever was asked, and a node `LEARNING_MAX` of
  them. What comes of them is all the bulk that can be on its way here: heartbeats of the same link
  wait behind no more than that. Groups that would like to ask wait in the order they came.
"""

from itertools import islice
from typing import Final

import attrs

from paxos.ids import MS, GroupId, NodeId

LEARNING_MAX: Final = 8
"""Questions for entries of a node that are under way, in all groups together."""
LOST_INTEREST_NS: Final = 500 * MS
"""Who has not wanted to ask for so long has got what it needs by other means."""


@attrs.define(eq=False)
class Questions:
    """Shared by the groups of a node: who waits for entries, and who would like to ask for some."""

    _open: dict[GroupId, tuple[NodeId, int]] = attrs.Factory(dict)
    """Whom it has asked, and until when it waits."""
    _waiting: dict[GroupId, int] = attrs.Factory(dict)

    def may_ask(self, now_ns: int, group: GroupId, node: NodeId, until_ns: int) -> bool:
        """Whether the group's turn has come; if so it has asked."""
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

    def answered(self, group: GroupId, node: NodeId) -> None:
        """Nothing more will come of the question, if that is who was asked."""
        asked = self._open.get(group)
        if asked is not None and asked[0] == node:
            del self._open[group]

    def forget(self, group: GroupId) -> None:
        self._open.pop(group, None)
        self._waiting.pop(group, None)

    @property
    def under_way(self) -> int:
        return len(self._open)
