"""Membership of a consumer group: join, assign, heartbeat, and give up in time (KIP-62, KIP-429).

One task goes through rounds. In each it joins, gets partitions (as the leader it assigns them
itself, `assignors`), and sends heartbeats until the coordinator starts another round, or the
subscription has changed.

`Holder`, which the consumer implements, receives and gives up partitions. With the cooperative
protocol a member keeps consuming through a round, and gives up only what moves to others; with the
eager ones it gives up everything before it joins again. If the coordinator forgets us, or cannot be
reached for a whole session, the partitions are *lost*: others may own them by now, so nothing can
be committed for them any more.
"""

from collections.abc import Collection, Mapping
from typing import Final, Protocol

import attrs
import trio

from evenkeel.client import Client, Purpose
from evenkeel.config import Assignor, ConsumerConfig
from evenkeel.consumer.assignors import name_of, share
from evenkeel.coordinator import ANSWER_GRACE_S, NO_GENERATION, Coordinator, Identity, topic_map
from evenkeel.errors import CommitError, ConfigurationError, EvenkeelError, refusal
from evenkeel.sharing import Member, PartitionAssignor
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.messages import consumer_protocol as protocol
from wire.messages.group_admin import DescribeGroupsRequest, DescribeGroupsResponse
from wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

COMMIT_SHARE: Final = 0.5
"""The part of the rebalance timeout in which to commit partitions that are taken away."""


class Holder(Protocol):
    """Owns the partitions that the group assigns."""

    async def assigned(self, places: Collection[TopicPartition]) -> None: ...

    async def revoked(self, places: Collection[TopicPartition]) -> None:
        """Give these up, and commit: no other member owns them yet."""

    async def lost(self, places: Collection[TopicPartition]) -> None:
        """Give these up: another member may own them already."""


class _JoinAgain(Exception):
    """The round is over."""


@attrs.define(eq=False)
class Membership:
    """This consumer in its group. `topics` is its subscription; change it with `want`."""

    client: Client
    config: ConsumerConfig
    coordinator: Coordinator
    holder: Holder
    topics: frozenset[str] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()
    generation: int = NO_GENERATION
    member_id: str = ""
    rounds: int = 0
    leads: bool = False
    _again: trio.Event = attrs.Factory(trio.Event)
    _heard: float = 0.0
    """When the coordinator last confirmed us."""
    _counts: Mapping[str, int] = attrs.Factory(dict)
    """How many partitions each topic had when we, as the leader, assigned them."""

    @property
    def cooperative(self) -> bool:
        return Assignor.COOPERATIVE_STICKY in self.config.assignors

    def identity(self) -> Identity:
        return Identity(self.generation, self.member_id, self.config.instance)

    def want(self, topics: Collection[str]) -> None:
        """Subscribe to these topics instead; takes effect in the next round, which begins now."""
        if self.topics != frozenset(topics):
            self.topics = frozenset(topics)
            self.client.follow(topics)
            self._again.set()

    def metadata_changed(self) -> None:
        """A leader assigns again when a topic of the group has grown, appeared or disappeared."""
        if self.leads and self._counts != self._count_partitions(self._counts):
            self._again.set()

    async def run(self) -> None:
        """Be a member until cancelled.

        Raises:
            EvenkeelError: if the group refuses us: fenced, no assignor in common.
        """
        failures = 0
        while True:
            try:
                if not self.topics:
                    await self._wait_for_topics()
                await self._round()
                failures = 0
            except _JoinAgain:
                failures = 0
            except EvenkeelError as error:
                await self._handle_error(error)
                await self.coordinator.pause(failures)
                failures += 1

    async def _wait_for_topics(self) -> None:
        """Without a subscription this consumer is no member: the others get its share at once."""
        await self._let_go(self.owned)
        if self.generation != NO_GENERATION:
            await self.leave()
            self.member_id, self.generation = "", NO_GENERATION
        await self._again.wait()
        self._again = trio.Event()

    async def _handle_error(self, error: EvenkeelError) -> None:
        if isinstance(error, CommitError):  # UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE
            return
        if not error.retriable:
            await self._lose_everything()
            raise error
        session_s = self.config.session_timeout_ms / 1000
        if self.owned and trio.current_time() - self._heard > session_s:
            await self._lose_everything()

    async def _lose_everything(self) -> None:
        places, self.owned = self.owned, frozenset()
        self.generation = NO_GENERATION
        if places:
            await self.holder.lost(places)

    async def _let_go(self, places: Collection[TopicPartition]) -> None:
        """Commit and give up, while the group still waits for it."""
        if places:
            self.owned -= frozenset(places)
            with trio.move_on_after(self.config.rebalance_timeout_ms / 1000 * COMMIT_SHARE):
                await self.holder.revoked(places)

    # -- a round ----------------------------------------------------------------------------------

    async def _round(self) -> None:
        self._again = trio.Event()
        comes_back = self.config.instance is not None and not self.member_id
        if not self.cooperative:
            await self._let_go(self.owned)
        else:
            await self._let_go([one for one in self.owned if one.topic not in self.topics])
        joined = await self._join()
        assignment = await self._sync(joined)
        self.rounds += 1
        self._heard = trio.current_time()
        taken_away = self.owned - assignment
        given = assignment - self.owned
        if taken_away:
            await self._let_go(taken_away)
        self.owned = assignment
        agreed = self._agreed(joined)
        if not isinstance(agreed, Assignor):
            agreed.on_assignment(sorted(assignment), self.generation)
        if given or self.rounds == 1:
            await self.holder.assigned(given)
        if taken_away:
            return  # so that others may get them: join again at once (KIP-429)
        if comes_back and await self._is_out_of_date(joined):
            return
        await self._heartbeat_until_it_ends()

    async def _join(self) -> JoinGroupResponse:
        timeout_s = self.config.rebalance_timeout_ms / 1000 + ANSWER_GRACE_S
        while True:
            request = JoinGroupRequest(
                group_id=self.coordinator.group,
                session_timeout_ms=self.config.session_timeout_ms,
                rebalance_timeout_ms=self.config.rebalance_timeout_ms,
                member_id=self.member_id,
                group_instance_id=self.config.instance,
                protocol_type=protocol.PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(name_of(one), self._subscription(one))
                    for one in self.config.assignors
                ],
            )
            answer = await self.coordinator.ask(
                request, JoinGroupResponse, purpose=Purpose.GROUP, timeout_s=timeout_s
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id  # KIP-394: ask again under this name
                continue
            await self._check("joining", answer.error_code)
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            return answer

    def _subscription(self, assignor: Assignor | PartitionAssignor) -> bytes:
        """What we own counts only together with the generation in which we got it (KIP-792)."""
        owned = self.owned if self.cooperative else frozenset()
        if isinstance(assignor, Assignor):
            user_data: bytes | None = self.generation.to_bytes(4, "big", signed=True)
        else:
            user_data = assignor.subscription(self.topics)
        return protocol.encode_subscription(
            protocol.ConsumerProtocolSubscription(
                topics=sorted(self.topics),
                user_data=user_data,
                owned_partitions=[
                    protocol.TopicPartition(*one) for one in topic_map(owned).items()
                ],
                generation_id=self.generation,
            )
        )

    async def _check(self, what: str, code: int) -> None:
        """Raise the error of an answer; forget what the coordinator has forgotten."""
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
            await self._lose_everything()
        elif code == ErrorCode.ILLEGAL_GENERATION:
            await self._lose_everything()
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            offered = ", ".join(map(name_of, self.config.assignors))
            raise ConfigurationError(
                f"consumer group '{self.coordinator.group}' does not accept this member",
                why=f"its other members use none of these assignors: {offered}",
                advice="give all members one assignor in common",
            )
        self.coordinator.check(what, code)

    async def _sync(self, joined: JoinGroupResponse) -> frozenset[TopicPartition]:
        self.leads = joined.leader == joined.member_id
        assignments: list[SyncGroupRequestAssignment] = []
        if self.leads and not joined.skip_assignment:
            assignments = await self._share(joined)
        request = SyncGroupRequest(
            group_id=self.coordinator.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.config.instance,
            protocol_type=protocol.PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        timeout_s = self.config.rebalance_timeout_ms / 1000 + ANSWER_GRACE_S
        answer = await self.coordinator.ask(
            request, SyncGroupResponse, purpose=Purpose.GROUP, timeout_s=timeout_s
        )
        await self._check("sharing", answer.error_code)
        return _places(answer.assignment)

    # -- sharing, as the leader -------------------------------------------------------------------

    async def _share(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        members = [_member(one) for one in joined.members]
        await self._watch(members)
        known = {topic: count for topic, count in self._counts.items() if count}
        shares = share(self._agreed(joined), members, known)
        return [
            SyncGroupRequestAssignment(
                member,
                protocol.encode_assignment(
                    protocol.ConsumerProtocolAssignment(
                        [protocol.TopicPartition(*one) for one in topic_map(places).items()]
                    )
                ),
            )
            for member, places in shares.items()
        ]

    async def _watch(self, members: Collection[Member]) -> None:
        """From now on the leader must notice when a topic of any member changes."""
        topics = {topic for member in members for topic in member.topics}
        self.client.follow(topics)
        await self.client.refresh()
        self._counts = self._count_partitions(topics)

    def _agreed(self, joined: JoinGroupResponse) -> Assignor | PartitionAssignor:
        """The assignor that the group has chosen; all members have offered it."""
        by_name = {name_of(one): one for one in self.config.assignors}
        if joined.protocol_name not in by_name:
            what = f"the consumer group chose an unknown assignor, '{joined.protocol_name}'"
            raise refusal(what, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        return by_name[joined.protocol_name]

    def _count_partitions(self, topics: Collection[str]) -> dict[str, int]:
        return {topic: len(self.client.view.partitions_of(topic)) for topic in topics}

    # -- coming back ------------------------------------------------------------------------------

    async def _is_out_of_date(self, joined: JoinGroupResponse) -> bool:
        """Whether the group should assign again, after a static member has come back.

        The member gets its former partitions, the group continues as it was (KIP-345), and the
        leader is not asked to assign (KIP-814). So check now what no leader watched while it was
        away: partitions and topics that appeared or disappeared, and topics that only this member's
        new subscription names. A leader that cannot find out assigns again: that costs a rebalance,
        and loses nothing.
        """
        try:
            if self.leads:
                await self._watch([_member(one) for one in joined.members])
            else:
                await self.client.refresh()
            given, members = await self._shared_out()
        except EvenkeelError:
            return self.leads
        if any(one.topic not in self.topics for one in self.owned):
            return True
        if self.leads:
            return given != {
                TopicPartition(topic, number)
                for topic, count in self._counts.items()
                for number in range(count)
            }
        if joined.leader not in members:
            return True  # a broker before KIP-814 names our former self leader: none watches
        unread = self.topics - {one.topic for one in given}
        return any(self._count_partitions(unread).values())

    async def _shared_out(self) -> tuple[frozenset[TopicPartition], frozenset[str]]:
        """All partitions that the group has assigned, and the members that have them."""
        request = DescribeGroupsRequest([self.coordinator.group])
        answer = await self.coordinator.ask(request, DescribeGroupsResponse, purpose=Purpose.GROUP)
        described = answer.groups[0]
        self.coordinator.check("describing", described.error_code)
        given = (_places(one.member_assignment) for one in described.members)
        return frozenset().union(*given), frozenset(one.member_id for one in described.members)

    # -- staying ----------------------------------------------------------------------------------

    async def _heartbeat_until_it_ends(self) -> None:
        """Send heartbeats until something requires another round."""
        while not self._again.is_set():
            with trio.move_on_after(self.config.heartbeat_ms / 1000):
                await self._again.wait()
            request = HeartbeatRequest(
                self.coordinator.group, self.generation, self.member_id, self.config.instance
            )
            try:
                answer = await self.coordinator.ask(
                    request, HeartbeatResponse, purpose=Purpose.GROUP
                )
                if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    self._heard = trio.current_time()
                    return
                await self._check("a heartbeat", answer.error_code)
                self._heard = trio.current_time()
            except CommitError:
                raise
            except EvenkeelError as error:
                await self._handle_error(error)  # the same generation, perhaps elsewhere
                if not self.owned and self.generation == NO_GENERATION:
                    raise _JoinAgain from error
                await self.coordinator.pause(0)

    async def leave(self) -> None:
        """Tell the coordinator, so that the others need not wait; a static member stays."""
        if self.config.instance is not None or not self.member_id:
            return
        await self.coordinator.leave(self.member_id, "the consumer is closed")


def _places(assignment: bytes) -> frozenset[TopicPartition]:
    try:
        given = protocol.decode_assignment(assignment)
    except ProtocolError as error:
        raise refusal("the assignment cannot be read", ErrorCode.UNKNOWN_SERVER_ERROR) from error
    return frozenset(
        TopicPartition(one.topic, number)
        for one in given.assigned_partitions
        for number in one.partitions
    )


def _member(one: JoinGroupResponseMember) -> Member:
    """Another member's subscription; one that cannot be read gets nothing."""
    try:
        said = protocol.decode_subscription(one.metadata)
    except ProtocolError:
        said = protocol.ConsumerProtocolSubscription()
    generation = said.generation_id
    if generation < 0 and said.user_data is not None and len(said.user_data) == 4:
        generation = int.from_bytes(said.user_data, "big", signed=True)  # before KIP-792
    return Member(
        one.member_id,
        frozenset(said.topics),
        one.group_instance_id,
        frozenset(
            TopicPartition(owned.topic, number)
            for owned in said.owned_partitions
            for number in owned.partitions
        ),
        generation,
        said.user_data,
    )
