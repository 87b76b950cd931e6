"""Batches that arrive before their predecessors, and how long their producer is asked to retry.

A producer has up to five batches in flight. When masters move, the first may be refused by a node
that is not master yet, or has died, while the second already reaches the next master, whose name
the producer learnt before it retried the first. The log refuses such a batch (R16);
it is not appended. But OUT_OF_ORDER_SEQUENCE_NUMBER would be the wrong answer: librdkafka takes it
as a reason to begin a new epoch, for all partitions, and resends under it whatever has no answer
yet, in any of them: what was already appended is then appended twice. (Found by the test of a node
with amnesia: a duplicate, and librdkafka's own log of how it happened.)

So the producer is told to retry until the predecessor has had time to arrive. Only a gap that
persists is reported as one; so is one that was to be expected: after a batch was refused for good
(say, too large), nothing will come that could close the gap.
"""

from typing import Final

from paxos.ids import MS

PATIENCE_NS: Final = 3_000 * MS
"""Clients retry after at most a second. If this were much longer, a producer that has given up on
the predecessor would lose time."""
FORGET_NS: Final = 60_000 * MS
"""A gap seen after this long is a new one."""
GAPS_MAX: Final = 10_000
"""Beyond this the oldest is forgotten: its producer has to wait once more."""


class SequenceGaps:
    def __init__(self) -> None:
        self._since: dict[tuple[int, int], int] = {}
        self._refused: dict[int, int] = {}
        """Per partition: when a batch was last refused for good."""

    def __len__(self) -> int:
        return len(self._since)

    def refused(self, uid: int, now_ns: int) -> None:
        """A batch for this partition was refused for good and will not come again."""
        self._refused.pop(uid, None)
        if len(self._refused) >= GAPS_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[uid] = now_ns

    def may_close(self, producer_id: int, uid: int, now_ns: int) -> bool:
        """Whether the gap in this producer's sequence for this partition is still young."""
        if now_ns - self._refused.get(uid, -PATIENCE_NS) < PATIENCE_NS:
            return False
        key = (producer_id, uid)
        since = self._since.get(key)
        if since is None or now_ns - since > FORGET_NS:
            self._since.pop(key, None)
            if len(self._since) >= GAPS_MAX:
                del self._since[next(iter(self._since))]
            self._since[key] = since = now_ns
        return now_ns - since < PATIENCE_NS
