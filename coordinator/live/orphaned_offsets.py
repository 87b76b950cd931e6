"""Offsets and the topics they were committed for: offsets of deleted topics are forgotten.

What a member is told is correct at once, because it goes by the uid (`topics.Topics.is_of`). The
rest happens in the background, some offsets at a time: offsets of deleted topics are forgotten, and
offsets of a release that did not store uids are bound to the present topic. This runs when a
coordinator begins, when topics are deleted, and with every sweep, so nothing depends on who was
coordinator when a topic was deleted.
"""

from collections.abc import Callable, Iterator
from typing import Final

from coordinator.live.tenure import ForgettingUnderWay, Tenure
from coordinator.model import ConsumerGroupId
from coordinator.replicated.commands import BindOffsets, OffsetBinding, TopicBindings
from coordinator.replicated.stored import StoredGroup
from coordinator.topics import ANY_TOPIC, NO_TOPIC, Topics

WORK_MAX: Final = 2_000
"""Offsets examined in one tick, a millisecond's work; more if a single group has more."""


class OrphanedOffsets:
    def __init__(self, tenure: Tenure, topics: Callable[[], Topics]) -> None:
        self._tenure = tenure
        self._topics = topics
        self._left: list[ConsumerGroupId] = []
        """The groups that are still to be examined, the next one last."""
        self._settled = False

    @property
    def pending(self) -> bool:
        return bool(self._left)

    def begin(self, *, settled: bool = False) -> None:
        """Examine all groups, from the next tick on. `settled`: we have been coordinator for long
        enough to know every topic that existed when a release without uids last wrote."""
        self._settled = settled
        if self._topics().uids is not None:
            names = [group.name for group in self._tenure.store.groups() if group.offsets_count]
            self._left = names[::-1]

    def go_on(self) -> None:
        topics, work = self._topics(), 0
        while self._left and work < WORK_MAX:
            group = self._tenure.store.get(self._left.pop())
            if group is None:
                continue
            work += group.offsets_count
            bindings = tuple(self._bindings(group, topics))
            if bindings:
                command = BindOffsets(group.name, bindings)
                self._tenure.propose(group.name, command, ForgettingUnderWay())

    def _bindings(self, group: StoredGroup, topics: Topics) -> Iterator[TopicBindings]:
        for topic in sorted(group.offsets):
            bindings = []
            for partition, one in sorted(group.offsets[topic].items()):
                now = self._now(topics, topic, partition, one.uid)
                if now != one.uid:
                    bindings.append(OffsetBinding(partition, one.uid, now))
            if bindings:
                yield TopicBindings(topic, tuple(bindings))

    def _now(self, topics: Topics, topic: str, partition: int, uid: int) -> int:
        """The uid to bind an offset with this uid to; NO_TOPIC if it is to be forgotten."""
        known = topics.uid(topic, partition)
        if uid != ANY_TOPIC:
            return uid if topics.is_of(topic, partition, uid) else NO_TOPIC
        if known is None:
            return NO_TOPIC if self._settled else ANY_TOPIC
        return known
