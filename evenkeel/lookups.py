"""Beginning and end of partitions, and offsets by time: ListOffsets at each leader."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

import trio

from evenkeel.client import Client
from evenkeel.config import Isolation
from evenkeel.errors import EvenkeelError, refusal
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

END: Final = -1
BEGINNING: Final = -2
CONSUMER: Final = -1
"""`replica_id` of a client, which is not a replica."""


class FoundOffset(NamedTuple):
    """`offset` is -1 if there is no record that late; `timestamp_ms` is the record's, or -1."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation = Isolation.READ_UNCOMMITTED,
    *,
    timeout_s: float | None = None,
) -> dict[TopicPartition, FoundOffset]:
    """For each partition the offset of a time in ms, or of BEGINNING or END.

    Raises:
        TimedOutError, BrokerError: if one of them cannot be found.
    """
    found: dict[TopicPartition, FoundOffset] = {}
    if wanted:
        attempt = partial(_try_all, client, wanted, isolation, found)
        await client.until_done("offsets are not found", attempt, timeout_s=timeout_s)
    return found


async def _try_all(
    client: Client,
    wanted: Mapping[TopicPartition, int],
    isolation: Isolation,
    found: dict[TopicPartition, FoundOffset],
) -> None:
    """Ask each leader for what is not found yet; raise a failure after all have answered."""
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    failures: list[EvenkeelError] = []
    for place in sorted(wanted.keys() - found.keys()):
        try:
            leader = await client.leader(place)
        except EvenkeelError as error:
            failures.append(error)
        else:
            by_leader.setdefault(leader, {})[place] = wanted[place]
    async with trio.open_nursery() as nursery:
        for node, part in by_leader.items():
            nursery.start_soon(_ask, client, node, part, isolation, found, failures.append)
    failures.sort(key=lambda error: error.retriable)  # a final error comes first
    if failures:
        raise failures[0]


async def _ask(
    client: Client,
    node: int,
    part: Mapping[TopicPartition, int],
    isolation: Isolation,
    found: dict[TopicPartition, FoundOffset],
    failed: Callable[[EvenkeelError], None],
) -> None:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place, time_ms in part.items():
        view = client.view.partition(place)
        epoch = -1 if view is None else view.epoch
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(place.partition, epoch, time_ms)
        )
    request = ListOffsetsRequest(
        CONSUMER,
        isolation.value,
        [ListOffsetsTopic(*one) for one in topics.items()],
        # By then the broker answers with what it has found, while we still listen.
        client.config.request_timeout_ms * 3 // 4,
    )
    try:
        answer = await client.ask(node, request, ListOffsetsResponse)
    except EvenkeelError as error:
        failed(error)
        return
    for topic in answer.topics:
        for one in topic.partitions:
            place = TopicPartition(topic.name, one.partition_index)
            if one.error_code == ErrorCode.NONE:
                found[place] = FoundOffset(one.offset, one.timestamp, one.leader_epoch)
            else:
                failed(refusal(f"the offset in {place} was not reported", one.error_code))
