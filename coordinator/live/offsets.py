"""OffsetCommit, OffsetFetch and OffsetDelete: committed offsets, stored in the log (D12)."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Final

from coordinator.limits import CoordinatorConfig, text_fits
from coordinator.live.assigning import Assigning
from coordinator.live.group import LiveGroup
from coordinator.live.rebalance import CHANGE_ERRORS, Rebalance
from coordinator.live.tenure import CommitUnderWay, OffsetDeleteUnderWay, Tenure
from coordinator.model import (
    NO_OFFSET,
    ConsumerGroupId,
    ErrorCode,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetDelete,
    OffsetDeleteResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionError,
    PartitionOffset,
    ProposalFailure,
    Token,
    TopicErrors,
    TopicOffsets,
    TopicPartitions,
    refusal,
)
from coordinator.replicated.commands import CommitOffsets, DropOffsets, Result, encode
from coordinator.replicated.store import no_member_error, stale_error
from coordinator.replicated.stored import StoredGroup, StoredOffset
from coordinator.states import GroupState
from coordinator.subscription import CONSUMER_PROTOCOL, subscribed_topics
from coordinator.topics import Topics

UNKNOWN_PARTITION: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
OFFSET_BYTES: Final = 36
"""The numbers of one offset in a command, rounded up."""


class Offsets:
    def __init__(
        self,
        tenure: Tenure,
        rebalance: Rebalance,
        assigning: Assigning,
        topics: Callable[[], Topics],
    ) -> None:
        self._assigning = assigning
        self._topics = topics
        self._tenure = tenure
        self._rebalance = rebalance

    # --- OffsetCommit

    def commit(self, request: OffsetCommit, token: Token) -> None:
        """Propose the partitions that are valid; the answer follows when the log has them."""
        tenure = self._tenure
        error = self._refuse_commit(request)
        if error != ErrorCode.NONE:
            tenure.reply(token, refusal(request, error))
            return
        topics, errors = _sort_out(request, tenure.config, self._topics())
        if not topics:
            tenure.reply(token, OffsetCommitResponse(topics=errors))
            return
        command = encode(
            CommitOffsets(
                request.group,
                request.generation,
                request.member_id,
                request.instance_id,
                request.commit_wall_ms,
                topics,
                self._topic_ids(request.group, topics),
            )
        )
        under_way = CommitUnderWay(tenure.defer(request, token), errors)
        tenure.propose(request.group, command, under_way)

    def _topic_ids(
        self, group: ConsumerGroupId, topics: tuple[TopicOffsets, ...]
    ) -> tuple[bytes, ...]:
        """Lets the log check which of the topics a member holds, in groups with broker-side
        assignment."""
        if not self._assigning.has_members(group):
            return ()
        ids = self._topics().ids
        return tuple(ids[topic][0] if topic in ids else b"" for topic, _ in topics)

    def _refuse_commit(self, request: OffsetCommit) -> ErrorCode:
        tenure, config = self._tenure, self._tenure.config
        if not text_fits(request.group, config.group_id_bytes_max):
            return ErrorCode.INVALID_GROUP_ID
        if sum(len(t.partitions) for t in request.topics) > config.commit_partitions_max:
            return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        if not text_fits(request.instance_id or "", config.text_bytes_max):
            return ErrorCode.INVALID_REQUEST
        member_bytes_max = 2 * config.text_bytes_max  # our ids hold a name and some numbers
        if not text_fits(request.member_id, member_bytes_max):
            return ErrorCode.INVALID_REQUEST
        if self._assigning.has_members(request.group):
            return ErrorCode.NONE  # fenced by the member's epoch when it is applied
        group = self._rebalance.view(request.group)
        error = _fence(group, request, tenure.store.get(request.group))
        if error != ErrorCode.NONE:
            return error
        if group is None:
            if not tenure.room_in_log(request.group):
                return ErrorCode.POLICY_VIOLATION
        elif request.member_id in group.members:
            self._rebalance.refresh(group, group.members[request.member_id])
        return ErrorCode.NONE

    def on_commit(self, under_way: CommitUnderWay, outcome: Result | ProposalFailure) -> None:
        """Answer with the log's verdict on what was proposed, and with our own on the rest."""
        if isinstance(outcome, ProposalFailure):
            error, stale = CHANGE_ERRORS[outcome], frozenset[int]()
        else:
            error, stale = outcome.error, frozenset(outcome.stale)
        request = under_way.pending.request
        replaced = frozenset() if error else self._replaced(request)
        too_old = stale_error(self._tenure.store.get(request.group), request.member_id)
        places = count()
        topics = []
        for topic, partitions in under_way.topics:
            verdicts = []
            for partition, refused in partitions:
                verdict = refused
                if verdict == ErrorCode.NONE:
                    verdict = too_old if next(places) in stale else error
                if verdict == ErrorCode.NONE and (topic, partition) in replaced:
                    verdict = UNKNOWN_PARTITION
                verdicts.append(PartitionError(partition, verdict))
            topics.append(TopicErrors(topic, tuple(verdicts)))
        self._tenure.answer(under_way.pending, OffsetCommitResponse(topics=tuple(topics)))

    def _replaced(self, request: OffsetCommit) -> frozenset[tuple[str, int]]:
        """The partitions for which the log has an offset of a later topic with the same name."""
        stored = self._tenure.store.get(request.group)
        offsets = stored.offsets if stored is not None else {}
        return frozenset(
            (topic, one.partition)
            for topic, partitions in request.topics
            for one in partitions
            if (kept := offsets.get(topic, {}).get(one.partition)) is not None
            and kept.uid > one.uid
        )

    # --- OffsetFetch

    def fetch(self, request: OffsetFetch, token: Token) -> None:
        """Answer from the log: every fetch sees each commit that was answered before it. Offsets of
        an earlier topic with the same name are left out."""
        error = _fence_fetch(self._tenure.store.get(request.group), request)
        if error != ErrorCode.NONE:
            self._tenure.reply(token, refusal(request, error))
            return
        if request.topics is None:
            topics = tuple(
                TopicOffsets(
                    topic, tuple(_partition_offset(p, partitions[p]) for p in sorted(partitions))
                )
                for topic, partitions in sorted(self._valid_offsets(request.group).items())
            )
        else:
            topics = tuple(
                TopicOffsets(topic, tuple(self._named(request.group, topic, partitions)))
                for topic, partitions in request.topics
            )
        response = OffsetFetchResponse(error=ErrorCode.NONE, topics=topics)
        self._tenure.reply(token, response)

    def _named(
        self, group: ConsumerGroupId, topic: str, partitions: tuple[int, ...]
    ) -> Iterator[PartitionOffset]:
        """The offsets of these partitions: a large group's others cost nothing."""
        stored, topics = self._tenure.store.get(group), self._topics()
        known = stored.offsets.get(topic, {}) if stored is not None else {}
        for partition in partitions:
            one = known.get(partition)
            valid = one is not None and topics.is_of(topic, partition, one.uid)
            yield _partition_offset(partition, one if valid else None)

    def _valid_offsets(self, group: ConsumerGroupId) -> dict[str, dict[int, StoredOffset]]:
        stored, topics = self._tenure.store.get(group), self._topics()
        if stored is None:
            return {}
        valid = {
            topic: {
                partition: one
                for partition, one in partitions.items()
                if topics.is_of(topic, partition, one.uid)
            }
            for topic, partitions in stored.offsets.items()
        }
        return {topic: partitions for topic, partitions in valid.items() if partitions}

    # --- OffsetDelete

    def delete(self, request: OffsetDelete, token: Token) -> None:
        tenure = self._tenure
        group, stored = self._rebalance.view(request.group), tenure.store.get(request.group)
        error = _refuse_delete(group, stored)
        if error != ErrorCode.NONE:
            tenure.reply(token, refusal(request, error))
            return
        assigned = self._assigning.view(request.group)
        in_use = (
            _topics_in_use(group)
            if assigned is None
            else self._assigning.planning.topics_in_use(assigned)
        )
        topics = []
        answers = []
        for topic, partitions in request.topics:
            used = in_use is None or topic in in_use
            verdict = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if used else ErrorCode.NONE
            answers.append(
                TopicErrors(topic, tuple(PartitionError(p, verdict) for p in partitions))
            )
            kept = _only_stored(stored, TopicPartitions(topic, partitions))
            if kept.partitions and not used:
                topics.append(kept)
        response = OffsetDeleteResponse(error=ErrorCode.NONE, topics=tuple(answers))
        if not topics:
            tenure.reply(token, response)
            return
        under_way = OffsetDeleteUnderWay(tenure.defer(request, token), response)
        tenure.propose(request.group, DropOffsets(request.group, tuple(topics)), under_way)

    def on_delete(self, under_way: OffsetDeleteUnderWay, outcome: Result | ProposalFailure) -> None:
        if isinstance(outcome, ProposalFailure):
            self._tenure.refuse(under_way.pending, CHANGE_ERRORS[outcome])
        elif outcome.error != ErrorCode.NONE:
            self._tenure.refuse(under_way.pending, outcome.error)
        else:
            self._tenure.answer(under_way.pending, under_way.response)


def _fence(group: LiveGroup | None, request: OffsetCommit, stored: StoredGroup | None) -> ErrorCode:
    """The rule that also holds when it is applied, on what we know already."""
    if group is None:
        if request.generation < 0:
            return ErrorCode.NONE
        return no_member_error(stored)
    if group.state == GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if request.generation < 0 and group.state == GroupState.EMPTY:
        return ErrorCode.NONE  # the group has no members: a simple consumer, or an operator
    error = group.fence(request.member_id, request.instance_id)
    if error != ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state == GroupState.COMPLETING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _sort_out(
    request: OffsetCommit, config: CoordinatorConfig, there: Topics
) -> tuple[tuple[TopicOffsets, ...], tuple[TopicErrors, ...]]:
    """What to propose, and for every partition asked for the error (NONE: it is proposed)."""
    proposed, errors = [], []
    left_bytes = config.commit_bytes_max
    for topic, partitions in request.topics:
        bad_name = not topic or not text_fits(topic, config.topic_bytes_max)
        good, verdicts = [], []
        for one in partitions:
            if bad_name:
                error = ErrorCode.INVALID_TOPIC_EXCEPTION
            elif not there.is_of(topic, one.partition, one.uid):
                error = UNKNOWN_PARTITION  # its topic was deleted while the request waited
            elif not text_fits(one.metadata, config.offset_metadata_bytes_max):
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                left_bytes -= OFFSET_BYTES + len(topic) + 4 * len(one.metadata)
                error = ErrorCode.NONE if left_bytes >= 0 else ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            if error == ErrorCode.NONE:
                good.append(one)
            verdicts.append(PartitionError(one.partition, error))
        if good:
            proposed.append(TopicOffsets(topic, tuple(good)))
        errors.append(TopicErrors(topic, tuple(verdicts)))
    return tuple(proposed), tuple(errors)


def _fence_fetch(group: StoredGroup | None, request: OffsetFetch) -> ErrorCode:
    """Check who fetches: a member starts consuming at the offsets it gets here (KIP-848).

    The check uses what the log has, as the offsets do: a member gets no epoch before the log has
    it.
    """
    nobody = not request.member_id and request.epoch < 0
    if group is None or group.assigned is None or nobody:
        return ErrorCode.NONE
    for member in group.assigned.members:
        if member.member_id == request.member_id:
            same = request.epoch == member.epoch
            return ErrorCode.NONE if same else ErrorCode.STALE_MEMBER_EPOCH
    return ErrorCode.UNKNOWN_MEMBER_ID


def _partition_offset(partition: int, stored: StoredOffset | None) -> PartitionOffset:
    if stored is None:
        return PartitionOffset(partition, NO_OFFSET)
    return PartitionOffset(partition, stored.offset, stored.leader_epoch, stored.metadata)


def _refuse_delete(group: LiveGroup | None, stored: StoredGroup | None) -> ErrorCode:
    if group is None and stored is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    if group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL:
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def _topics_in_use(group: LiveGroup | None) -> frozenset[str] | None:
    """The topics that members subscribe to; None if a member's metadata does not say."""
    topics: frozenset[str] = frozenset()
    for member in group.members.values() if group is not None else ():
        name = group.protocol_name if group is not None else None
        theirs = subscribed_topics(member.metadata(name or member.protocols[0].name))
        if theirs is None:
            return None
        topics |= theirs
    return topics


def _only_stored(stored: StoredGroup | None, asked: TopicPartitions) -> TopicPartitions:
    known = stored.offsets.get(asked.topic, {}) if stored is not None else {}
    return TopicPartitions(asked.topic, tuple(p for p in asked.partitions if p in known))
