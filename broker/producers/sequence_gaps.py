"""Batches that came before their predecessors, and how long a producer is told to be patient.

A producer has up to five batches under way. When masters move, the first may be refused by a node
that is no master yet, or has died, while the second is already with the next one, who knows the
leader's name before the first is sent again. The log refuses such a batch (protocol.md [R16]); it
is not appended. But OUT_OF_ORDER_SEQUENCE_NUMBER is not the answer: librdkafka takes it as a reason
to begin a new epoch, for all partitions, and sends under that epoch once more what it has no answer
for, in any of them: what was appended already is then appended twice. (Found by the test of a node
with amnesia: a duplicate, and then librdkafka's own account of how it came to that.)

So the producer is told to try again, until the predecessor has had the time to arrive. Only a gap
that stays is told as what it is, and one that is no wonder: where a batch was refused for good (it
was too large, say), nothing will come that could close it.
"""

from typing import Final

from paxos.ids import MS

PATIENCE_NS: Final = 3_000 * MS
"""Clients send again after at most a second. Much longer, and a producer that has given the
predecessor up would lose time."""
FORGET_NS: Final = 60_000 * MS
"""A gap after that long is another one."""
GAPS_MAX: Final = 10_000
"""Above this the oldest is forgotten: its producer has to wait once more."""


class SequenceGaps:
    def __init__(self) -> None:
        self._since: dict[tuple[int, int], int] = {}
        self._refused: dict[int, int] = {}
        """Per partition: when a batch was last refused finally."""

    def __len__(self) -> int:
        return len(self._since)

    def refused(self, uid: int, now_ns: int) -> None:
        """A batch for this partition will not come again."""
        self._refused.pop(uid, None)
        if len(self._refused) >= GAPS_MAX:
            del self._refused[next(iter(self._refused))]
        self._refused[uid] = now_ns

    def may_close(self, producer_id: int, uid: int, now_ns: int) -> bool:
        """Whether a gap in what this producer sends to this partition is still young."""
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
