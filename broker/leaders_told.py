"""When a connection's client was last told who leads a topic: by Metadata, on this connection.

A client that does not act on the leader that an answer names (broker.client_software) learns of a
move only when it asks for metadata. Until then a former master goes on serving it (ADR 50). What
another connection of the same client was told is not known here, and need not be: once it knows,
it sends nothing here any more.
"""

from typing import Final

from paxos.ids import MS

TOPICS_MAX: Final = 64
"""Of those a connection asked for by name: the one told first is forgotten, and served longer."""
SETTLES_NS: Final = 5_000 * MS
"""What a client sends for so long after the answer may have been on its way, or in its queue."""


class LeadersTold:
    __slots__ = ("_all_ns", "_topics")

    def __init__(self) -> None:
        self._all_ns = 0
        self._topics: dict[str, int] = {}

    def told(self, topic: str | None, now_ns: int) -> None:
        """A Metadata answer names the leaders of all partitions of this topic; None: of all."""
        if topic is None:
            self._all_ns = now_ns
            self._topics.clear()
            return
        self._topics.pop(topic, None)
        if len(self._topics) >= TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        self._topics[topic] = now_ns

    def misses(self, topic: str, moved_ns: int, now_ns: int) -> bool:
        """Whether a request of now may have been made without knowing of the move."""
        at = max(self._all_ns, self._topics.get(topic, 0))
        return at < moved_ns or now_ns - at < SETTLES_NS
