"""What is large leaves a link one by one, and keeps back only what must not overtake it.

TCP keeps the order of what it was given. If it is given every large entry at once, whatever comes
next waits for all of them: votes and prepares of other groups, clock readings, the renewal of a
lease that ends meanwhile. So a large message goes to the socket when nothing else waits for that;
small ones pass by, and wait for one large one at most.

What tells of a group's log (Accept, Commit, Learned, Progress) keeps its order within the group,
and so do commands forwarded for it: a Commit that passes its Accept would have the entry sent once
more, by value. They travel right behind the last large one of their group. What still waits here is
not taken a second time when it is sent again.
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
"""Of what may wait for one peer: what is small must not be lost for the sake of what is not."""
SMALL_BYTES_MAX: Final = 1024 * 1024
"""What is small and behind a large one has so much room of its own."""
ORDERED: Final = frozenset((Accept, Commit, Learned, Progress))


def _key_of(message: Message) -> Hashable:
    """The same for a message that says the same again; None: nothing is known to."""
    if type(message) is Accept:
        return message.group, message.slot, message.ballot
    if type(message) is Learned:
        return message.group, message.start
    return None


@attrs.define(eq=False)
class _Large:
    """With what follows it in its sequence."""

    buffers: list[Buffer]
    size: int
    group: GroupId | None
    """None: its order matters to nobody."""
    key: Hashable


class LargeLane:
    """Of one link. `bytes_max` is what may wait for the peer here and in the channel together, the
    message that is being written excepted; one large message always has room."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._writing = 0
        self.bytes = 0
        self.last: dict[GroupId, _Large] = {}
        """Of each group whose order must be kept: the last large message that waits."""
        self._waiting: deque[_Large] = deque()
        self._keys: set[Hashable] = set()
        self._leaving: Hashable = None
        """The key of what is being written to the socket."""

    def takes(self, message: Message, size: int) -> bool:
        """Whether a message goes by this lane: it is large, or behind such a one."""
        behind = self.last and type(message) in ORDERED and message.group in self.last
        return size >= LARGE_ENTRY_BYTES or bool(behind)

    def add(self, message: Message, frame: list[Buffer], size: int) -> bool:
        """Queue it, if it is not on its way already; False where the bound refuses it."""
        key = _key_of(message)
        if key is not None and (key in self._keys or key == self._leaving):
            return True
        group = message.group if type(message) in ORDERED else None
        return self.add_frame(frame, size, group, key)

    def add_frame(
        self, frame: list[Buffer], size: int, group: GroupId | None, key: Hashable = None
    ) -> bool:
        """A large one waits for its turn, a small one goes with the last of its group."""
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
        """Give the next one to a channel that has nothing to write."""
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
        # What is small has its room beside what is being written, and beside what waits here.
        kept = max(self.bytes_max - self.bytes, int(self.bytes_max * (1 - LARGE_SHARE)))
        channel.unsent_bytes_max = kept + self._writing

    @property
    def idle(self) -> bool:
        """Whether there is nothing to `feed`."""
        return not self._waiting and not self._writing

    def clear(self) -> None:
        """The link was lost, and with it what waited."""
        self._waiting.clear()
        self.last.clear()
        self._keys.clear()
        self._leaving = None
        self.bytes = self._writing = 0
