"""The coordinator of one consumer group: where it is, and requests to it.

Its node is looked up when needed and forgotten when wrong. With Evenkeel a consumer group moves
with a steal of the Paxos group that stores it, and its members notice nothing; requests refused
meanwhile are repeated here.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, TypeVar

import attrs
import trio

from evenkeel.client import BOOTSTRAP, Client, Purpose, backoff_s
from evenkeel.errors import (
    CommitError,
    EvenkeelError,
    FencedError,
    UnsupportedError,
    refusal,
)
from wire.apis import Request
from wire.cluster_view import Node, TopicPartition
from wire.error_codes import ErrorCode
from wire.messages.membership import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
)

R = TypeVar("R")
T = TypeVar("T")

NO_GENERATION: Final = -1
ANSWER_GRACE_S: Final = 5.0
"""A join is answered when all members have joined, or at latest after the rebalance timeout."""
LEAVE_S_MAX: Final = 2.0
"""Closing waits no longer than this for the coordinator: the session ends by itself."""
GROUP_KEY: Final = 0
BATCHED_FROM: Final = 4
"""FindCoordinator takes many keys from this version on."""
ALL_FROM: Final = 2
"""OffsetFetch can be asked for all partitions from this version on (Kafka 0.10.2)."""
GROUPS_FROM: Final = 8
"""OffsetFetch takes many groups from this version on."""
ELSEWHERE: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
MOVED_ON: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
"""The group is at another generation: this member's requests no longer count."""


class Committed(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@attrs.frozen
class Identity:
    """Who commits. The default is a client that is no member; it may commit while the group has no
    members."""

    generation: int = NO_GENERATION
    member_id: str = ""
    instance: str | None = None


def topic_map(places: Collection[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for place in sorted(places):
        found.setdefault(place.topic, []).append(place.partition)
    return found


class Coordinator:
    """The coordinator of one consumer group."""

    def __init__(self, client: Client, group: str) -> None:
        self.group = group
        self._client = client
        self._node: int | None = None

    async def find(self) -> int:
        """The coordinator's node, looked up if it is not known.

        Raises:
            BrokerError: if there is none yet (retriable), or the group may not be used.
        """
        if self._node is not None:
            return self._node
        connection = await self._client.connection(BOOTSTRAP)
        version = connection.version_for(FindCoordinatorRequest)
        keys = [self.group] if version >= BATCHED_FROM else []
        request = FindCoordinatorRequest(self.group, GROUP_KEY, keys)
        answer = await connection.request(request, FindCoordinatorResponse)
        row = answer.coordinators[0] if answer.coordinators else answer
        if row.error_code != ErrorCode.NONE:
            what = f"the coordinator of consumer group '{self.group}' cannot be found"
            raise refusal(what, row.error_code, row.error_message)
        node = Node(row.node_id, row.host, row.port)
        known = self._client.view.nodes.get(node.id)
        if known is None or (known.host, known.port) != (node.host, node.port):
            self._client.view.nodes[node.id] = node
        self._node = node.id
        return node.id

    def forget(self) -> None:
        """The coordinator is not, or no longer, on this node: look it up again."""
        self._node = None

    async def ask(
        self,
        message: Request,
        kind: type[R],
        *,
        purpose: Purpose = Purpose.GENERAL,
        timeout_s: float | None = None,
    ) -> R:
        """Send one request, once; after a lost connection the coordinator is looked up again."""
        node = await self.find()
        try:
            return await self._client.ask(node, message, kind, purpose=purpose, timeout_s=timeout_s)
        except EvenkeelError as error:
            if error.retriable:
                self.forget()
            raise

    async def leave(self, member_id: str, why: str) -> None:
        """Tell the coordinator that a member leaves, so that the others need not wait for a
        session; also while being cancelled. A failure is ignored: the coordinator notices by
        itself, a session later."""
        request = LeaveGroupRequest(self.group, member_id, [MemberIdentity(member_id, None, why)])
        with trio.move_on_after(LEAVE_S_MAX, shield=True), suppress(EvenkeelError):
            await self.ask(request, LeaveGroupResponse)

    def check(self, what: str, code: int) -> None:
        """Raise the error for an answer's code; on "not here", forget the coordinator's node.

        Raises:
            CommitError: the group has moved on.
            FencedError: another static member has this one's name.
            BrokerError: any other.
        """
        if code == ErrorCode.NONE:
            return
        error = refusal(f"{what} of consumer group '{self.group}' failed", code)
        if error.code in ELSEWHERE:
            self.forget()
        if error.code in MOVED_ON:
            raise CommitError(
                error.what,
                why=f"{error.why}: the consumer group has rebalanced",
                advice="another member may own the partitions by now and read again from there",
            )
        if error.code is ErrorCode.FENCED_INSTANCE_ID:
            raise FencedError(error.what, why="another member has joined with the same instance")
        raise error

    async def until_done(
        self, what: str, attempt: Callable[[], Awaitable[T]], timeout_s: float | None = None
    ) -> T:
        return await self._client.until_done(
            f"{what} of consumer group '{self.group}' failed", attempt, timeout_s=timeout_s
        )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        who: Callable[[], Identity],
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Commit offsets, retrying while that may help.

        Raises:
            CommitError, FencedError, TimedOutError, BrokerError: if they are not committed.
        """
        if offsets:
            once = partial(self._commit_once, offsets, who)
            await self.until_done("the commit", once, timeout_s)

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, Committed], who: Callable[[], Identity]
    ) -> None:
        identity = who()
        topics = [
            OffsetCommitRequestTopic(
                topic,
                [_commit_row(number, offsets[TopicPartition(topic, number)]) for number in numbers],
            )
            for topic, numbers in topic_map(offsets.keys()).items()
        ]
        request = OffsetCommitRequest(
            self.group,
            identity.generation,
            identity.member_id,
            group_instance_id=identity.instance,
            topics=topics,
        )
        answer = await self.ask(request, OffsetCommitResponse)
        for topic in answer.topics:
            for one in topic.partitions:
                self.check(f"the commit for {topic.name}/{one.partition_index}", one.error_code)

    async def committed(
        self, places: Collection[TopicPartition] | None, *, timeout_s: float | None = None
    ) -> dict[TopicPartition, Committed]:
        """The committed offsets of these partitions (None: of all), where there is one."""
        once = partial(self._committed_once, places)
        return await self.until_done("reading the offsets", once, timeout_s)

    async def _committed_once(
        self, places: Collection[TopicPartition] | None
    ) -> dict[TopicPartition, Committed]:
        topics = None
        if places is not None:
            topics = [OffsetFetchRequestTopic(*one) for one in topic_map(places).items()]
        connection = await self._client.connection(await self.find())
        version = connection.version_for(OffsetFetchRequest)
        if places is None and version < ALL_FROM:
            raise UnsupportedError(
                f"{connection.where} cannot report all offsets of a consumer group",
                why=f"it speaks OffsetFetch up to version {version}",
            )
        if version >= GROUPS_FROM:
            request = OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup(self.group, topics=topics)]
            )
        else:
            request = OffsetFetchRequest(self.group, topics=topics)
        answer = await self.ask(request, OffsetFetchResponse)
        rows: list[OffsetFetchResponseTopic] = answer.topics
        code = answer.error_code
        if answer.groups:
            rows, code = answer.groups[0].topics, answer.groups[0].error_code
        self.check("reading the offsets", code)
        found = {}
        for topic in rows:
            for one in topic.partitions:
                self.check(f"reading {topic.name}/{one.partition_index}", one.error_code)
                if one.committed_offset >= 0:
                    place = TopicPartition(topic.name, one.partition_index)
                    found[place] = Committed(
                        one.committed_offset, one.metadata or "", one.committed_leader_epoch
                    )
        return found

    async def pause(self, failures: int) -> None:
        await trio.sleep(backoff_s(self._client.config, failures))


def _commit_row(partition: int, offset: Committed) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition, offset.offset, offset.leader_epoch, offset.metadata
    )
