"""What a client knows of the cluster: which nodes there are, and who leads which partition.

It asks when it has to, when something failed, and every now and then; and while the answer does not
help, again after a pause.
"""

import random
from collections.abc import Callable
from typing import Final

from paxos.ids import MS
from simulator.clients.kafka_client import TOPIC, AnyResponse
from simulator.environment.loop import Loop
from simulator.whole.calls import StreamCalls
from simulator.whole.clients.families import Asks, Family
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic

REFRESH_PAUSE_NS: Final = 100 * MS
NO_LEADER: Final = -1


class View:
    """`bootstrap`: the nodes that its settings name. `changed` is told that an answer came."""

    def __init__(
        self,
        calls: StreamCalls,
        loop: Loop,
        family: Family,
        bootstrap: list[int],
        chance: random.Random,
        changed: Callable[[], None],
    ) -> None:
        self._calls, self._loop, self._family = calls, loop, family
        self._bootstrap, self._chance, self._changed = bootstrap, chance, changed
        self.nodes = list(bootstrap)
        self.topic_id = bytes(16)
        self._leaders: dict[int, tuple[int, int]] = {}
        """Partition -> epoch and node."""
        self._asking = False
        self._due_ns = 0
        """When it asks next, whatever happens."""
        self._wanted = True
        self._asked_ns = -REFRESH_PAUSE_NS
        self._failed: dict[int, int] = {}
        """Nodes that did not answer, and until when it rather asks another one."""
        self.rebootstrapped = 0

    def leader(self, partition: int) -> int | None:
        """Who leads it, as far as is known; None makes it ask."""
        _, node = self._leaders.get(partition, (0, NO_LEADER))
        if node == NO_LEADER:
            self._wanted = True
            return None
        return node

    def epoch(self, partition: int) -> int:
        return self._leaders.get(partition, (-1, NO_LEADER))[0]

    def failed(self, error: int) -> None:
        if error in self._family.refreshes:
            self._wanted = True

    def lost(self, node: int) -> None:
        """A connection has ended, or an answer did not come."""
        self._failed[node] = self._loop.now_ns + 1_000 * MS
        self._wanted = True

    def hinted(self, partition: int, leader: LeaderIdAndEpoch | None) -> bool:
        """A refusal named the leader; whether that was news."""
        if leader is None or not self._family.takes_hints:
            return False
        return self._learn(partition, leader.leader_epoch, leader.leader_id)

    def _learn(self, partition: int, epoch: int, node: int) -> bool:
        known = self._leaders.get(partition, (-1, NO_LEADER))
        if epoch < known[0]:
            return False
        self._leaders[partition] = epoch, node
        return node not in (NO_LEADER, known[1])

    # -- asking -------------------------------------------------------------------------------

    def tick(self) -> None:
        """Ask, if it is time to."""
        now = self._loop.now_ns
        wanted = self._wanted and now >= self._asked_ns + REFRESH_PAUSE_NS
        if not self._asking and (now >= self._due_ns or wanted):
            self._wanted, self._asking, self._asked_ns = False, True, now
            self._due_ns = now + self._family.refresh_every_ns
            node = self.anybody()
            request = MetadataRequest([MetadataRequestTopic(name=TOPIC)])
            self._calls.call(
                node,
                request,
                self._family.metadata_version,
                self._family.timeout_ns,
                lambda response: self._answered(node, response),
            )

    def anybody(self) -> int:
        """Whom this family asks what every node can answer."""
        now, calls = self._loop.now_ns, self._calls
        usable = [node for node in self.nodes if self._failed.get(node, 0) <= now]
        there = [node for node in usable if (one := calls.found(node)) is not None and one.made]
        if not there:
            return self._chance.choice(usable or self.nodes)
        if self._family.asks is Asks.LEAST_LOADED:
            return min(there, key=self._load)
        if self._family.asks is Asks.ANY_CONNECTED:
            return self._chance.choice(there)
        return there[0]

    def _load(self, node: int) -> int:
        found = self._calls.found(node)
        return 0 if found is None else found.asked

    def _answered(self, node: int, response: AnyResponse) -> None:
        self._asking = False
        if response is None:
            self.lost(node)
            self._pause()
            return
        error = response.error_code
        if error == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap(node)
            return
        self._failed.pop(node, None)
        if response.brokers:
            self.nodes = [one.node_id for one in response.brokers]
        if response.topics and not self._take(response.topics[0]):
            self._pause()
        self._changed()

    def _rebootstrap(self, node: int) -> None:
        """Begin anew with what the settings name, without what is known."""
        self.rebootstrapped += 1
        self.nodes = list(self._bootstrap)
        self._leaders.clear()
        self.lost(node)
        for one in self.nodes:
            self._calls.drop(one)
        self._pause()

    def _take(self, topic: MetadataResponseTopic) -> bool:
        """Whether every partition has a leader."""
        self.topic_id = topic.topic_id
        complete = topic.error_code == ErrorCode.NONE
        for one in topic.partitions:
            self._learn(one.partition_index, one.leader_epoch, one.leader_id)
            complete = complete and one.leader_id != NO_LEADER
        return complete

    def _pause(self) -> None:
        """It asks again, after a while."""
        self._due_ns = self._loop.now_ns + REFRESH_PAUSE_NS
        self._wanted = False
