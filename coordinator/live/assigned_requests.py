"""What a ConsumerGroupHeartbeat says, read and checked apart from the state of its group."""

from collections.abc import Iterable
from typing import Final

from coordinator.limits import CoordinatorConfig, text_fits
from coordinator.model import AssignedHeartbeat, ErrorCode, TopicIdPartitions
from coordinator.replicated.assigned_group import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    AssignedMember,
    Subscription,
    by_topic,
)
from coordinator.replicated.assignor import ASSIGNORS, Share

EPOCH_MAX: Final = 2**31 - 1


class RefusedError(Exception):
    """A request that gets an error; nothing has changed."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


def check_heartbeat(request: AssignedHeartbeat, config: CoordinatorConfig) -> None:
    """Refuse what is wrong with a heartbeat whatever the state of the group."""
    if not request.group:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "the group id is empty")
    if not text_fits(request.group, config.group_id_bytes_max):
        raise RefusedError(ErrorCode.INVALID_GROUP_ID, "the group id is too long")
    _check_texts(request, config)
    if request.epoch < AWAY_EPOCH or request.epoch > EPOCH_MAX:
        raise RefusedError(ErrorCode.INVALID_REQUEST, f"epoch {request.epoch} is out of range")
    if (request.names_itself or request.epoch != JOINING_EPOCH) and not request.member_id:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "no member id")
    if request.epoch == AWAY_EPOCH and request.instance_id is None:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "only a static member may leave temporarily")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"{request.assignor[:40]!r}: there are {' and '.join(ASSIGNORS)}",
        )
    _check_lists(request, config)
    if request.epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms < 0:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "no rebalance timeout")
        if request.topics is None and request.pattern is None:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "no subscription")
        if request.owned is None or request.owned:
            raise RefusedError(
                ErrorCode.INVALID_REQUEST, "a joining member owns no partitions, and says so"
            )


def _check_texts(request: AssignedHeartbeat, config: CoordinatorConfig) -> None:
    for name, text in (("instance id", request.instance_id), ("rack id", request.rack_id)):
        if text == "":
            raise RefusedError(ErrorCode.INVALID_REQUEST, f"the {name} is empty")
    texts = (request.member_id, request.instance_id, request.rack_id, request.pattern)
    for text in (*texts, request.client_id, request.client_host):
        if not text_fits(text or "", config.text_bytes_max):
            raise RefusedError(ErrorCode.INVALID_REQUEST, "a text is too long")


def _check_lists(request: AssignedHeartbeat, config: CoordinatorConfig) -> None:
    topics, owned = request.topics or (), request.owned or ()
    if (
        len(topics) > config.subscriptions_per_member_max
        or sum(len(one.partitions) for one in owned) > config.assigned_partitions_max
    ):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "too many topics or partitions")
    if any(not text_fits(topic, config.topic_bytes_max) for topic in topics):
        raise RefusedError(ErrorCode.INVALID_REQUEST, "the name of a topic is too long")


def merged(known: Subscription, request: AssignedHeartbeat) -> Subscription:
    """A field that is None in a heartbeat keeps its value."""
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        known.topics if request.topics is None else tuple(sorted(set(request.topics))),
        known.pattern if request.pattern is None else request.pattern or None,
        known.assignor if request.assignor is None else request.assignor,
        known.rack_id if request.rack_id is None else request.rack_id,
        known.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
    )


def share_of(owned: tuple[TopicIdPartitions, ...] | None) -> Share | None:
    if owned is None:
        return None
    return frozenset((topic_id, one) for topic_id, partitions in owned for one in partitions)


def by_topic_id(share: Share) -> tuple[TopicIdPartitions, ...]:
    return tuple(TopicIdPartitions(topic, tuple(ones)) for topic, ones in by_topic(share).items())


def chosen(members: Iterable[AssignedMember]) -> str:
    """The assignor that most members ask for; the default if none does."""
    votes = [one.subscription.assignor for one in members if one.subscription.assignor]
    if not votes:
        return ASSIGNORS[0]
    return max(ASSIGNORS, key=votes.count)
