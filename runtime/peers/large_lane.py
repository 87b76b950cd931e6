"""A queue for large messages: they leave one by one, so that small ones can overtake them.

TCP keeps the order of the bytes that it gets. If it got every large entry at once, later messages
would wait for all of them: votes and Prepares of other groups, clock readings, the renewal of a
lease that expires meanwhile. So a large message goes to the socket only when nothing else waits for
it; small messages overtake the queue, and wait for one large message at most.

Messages about a group's log (Accept, Commit, Learned, Progress) keep their order within the group,
and so do commands forwarded to it: if a Commit overtook its Accept, the entry would be sent once
more, by value. Small ones of these travel directly after the last large one of their group. A
message that still waits here is not queued again when it is retransmitted.
"""

from collections import deque
from collections.abc import Hashable
from typing import Final

import attrs

from paxos.entry import Buffer
from paxos.ids import GroupId
from paxos.messages import Accept, Commit, Learned, Message, Progress
from paxos.timing import LARGE_ENTRY_BYTES
from runtime.network.channel import Channel

LARGE_SHARE: Final = 0.75
"""Large messages may use this share of a peer's queue: small ones must not be dropped for them."""
SMALL_BYTES_MAX: Final = 1024 * 1024
"""Additional room for small messages that travel after a large one."""
ORDERED: Final = frozenset((Accept, Commit, Learned, Progress))


def _key_of(message: Message) -> Hashable:
    """A key that is equal for a retransmission of the message; None: it has none."""
    if type(message) is Accept:
        return message.group, message.slot, message.ballot
    if type(message) is Learned:
        return message.group, message.start
    return None


@attrs.define(eq=False)
class _Large:
    """A large message, and the small ones that must follow it."""

    buffers: list[Buffer]
    size: int
    group: GroupId | None
    """None: its order does not matter."""
    key: Hashable


class LargeLane:
    """The large messages of one link. `bytes_max` limits what waits for the peer here and in the
    channel together, without the message being written; one large message always has room."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._writing = 0
        self.bytes = 0
        self.last: dict[GroupId, _Large] = {}
        """The last waiting large message of each group whose order must be kept."""
        self._waiting: deque[_Large] = deque()
        self._keys: set[Hashable] = set()
        self._leaving: Hashable = None
        """The key of the message that is being written to the socket."""

    def takes(self, message: Message, size: int) -> bool:
        """Whether a message must be queued here: it is large, or must follow one that is."""
        behind = self.last and type(message) in ORDERED and message.group in self.last
        return size >= LARGE_ENTRY_BYTES or bool(behind)

    def add(self, message: Message, frame: list[Buffer], size: int) -> bool:
        """Queue a message, unless it is queued already; False if there is no room."""
        key = _key_of(message)
        if key is not None and (key in self._keys or key == self._leaving):
            return True
        group = message.group if type(message) in ORDERED else None
        return self.add_frame(frame, size, group, key)

    def add_frame(
        self, frame: list[Buffer], size: int, group: GroupId | None, key: Hashable = None
    ) -> bool:
        """Queue a frame; a small one is appended to the last large one of its group. False if there
        is no room."""
        last = None if group is None else self.last.get(group)
        behind = last is not None and size < LARGE_ENTRY_BYTES
        more = self.bytes + size
        room = int(self.bytes_max * LARGE_SHARE) + SMALL_BYTES_MAX * behind
        if self._waiting and more > room:
            return False
        self.bytes = more
        if last is not None and behind:
            last.buffers += frame
            last.size += size
            return True
        one = _Large(frame, size, group, key)
        self._waiting.append(one)
        if group is not None:
            self.last[group] = one
        if key is not None:
            self._keys.add(key)
        return True

    def feed(self, channel: Channel) -> None:
        """Give the next messages to the channel, as long as it has nothing else to write."""
        while not channel.unsent_bytes and not channel.closed:
            self._leaving, self._writing = None, 0
            if not self._waiting:
                break
            one = self._waiting.popleft()
            self.bytes -= one.size
            self._keys.discard(one.key)
            if one.group is not None and self.last.get(one.group) is one:
                del self.last[one.group]
            self._leaving, self._writing = one.key, one.size
            channel.send(one.buffers, one.size)
            channel.flush()
        # Small messages have their own room, besides the message being written and this queue.
        kept = max(self.bytes_max - self.bytes, int(self.bytes_max * (1 - LARGE_SHARE)))
        channel.unsent_bytes_max = kept + self._writing

    @property
    def idle(self) -> bool:
        """Whether there is nothing to `feed`."""
        return not self._waiting and not self._writing

    def clear(self) -> None:
        """Drop everything: the link was lost."""
        self._waiting.clear()
        self.last.clear()
        self._keys.clear()
        self._leaving = None
        self.bytes = self._writing = 0
