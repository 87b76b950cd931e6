"""This version serves a directory that an earlier version wrote, with everything in it."""

from pathlib import Path

import pytest

from coordinator.model import ConsumerGroupId
from coordinator.topics import ANY_TOPIC
from node import Node
from tests.runtime.one_node import one_node, run_until
from tests.upgrade.old_directories import (
    GOLDEN,
    GROUPS,
    PLAIN,
    SEQUENCES,
    SETS,
    TOPIC,
    ask,
    orders_batch,
    produce,
    unpack,
    wait_for_masters,
)
from wire.error_codes import ErrorCode
from wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.offsets import OffsetFetchRequest, OffsetFetchRequestTopic
from wire.messages.topics import CreatableTopic, CreateTopicsRequest, DeleteTopicsRequest
from wire.records.batch import as_view, iterate_records, split

ARCHIVES = sorted(GOLDEN.glob("*.tar.xz"))
EARLIEST, LATEST = -2, -1


def test_there_are_old_directories() -> None:
    assert ARCHIVES


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: path.name.partition(".")[0])
def test_an_older_directory_is_served(archive: Path, tmp_path: Path) -> None:
    """Batches, offsets, sequences, log starts, settings and deletions, exactly as they were
    left."""
    unpack(archive, tmp_path)
    with one_node(tmp_path, *SETS, groups=GROUPS) as node:
        wait_for_masters(node)
        assert {topic.name for topic in node.registry.topics.values()} >= {TOPIC}
        assert node.registry.topic("gone") is None

        def bounds(partition: int) -> list[int]:
            found = []
            for what in (EARLIEST, LATEST):
                asked = ListOffsetsTopic(TOPIC, [ListOffsetsPartition(partition, -1, what)])
                answer = ask(node, ListOffsetsRequest(-1, 0, [asked]), 5)
                found.append(answer.topics[0].partitions[0].offset)
            return found

        assert bounds(0) == [0, 10 * SEQUENCES]
        assert bounds(1) == [PLAIN - 2, PLAIN]

        def fetched(partition: int, offset: int) -> tuple[int, list[bytes]]:
            asked = FetchTopic(
                TOPIC,
                partitions=[
                    FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)
                ],
            )
            answer = ask(node, FetchRequest(max_wait_ms=0, topics=[asked]), 11)
            part = answer.responses[0].partitions[0]
            batches = split(as_view(part.records)) if part.records else []
            return part.error_code, [one.value for b in batches for one in iterate_records(b)]

        assert fetched(0, 0) == (0, [b"%d/%d" % (at // 10, at % 10) for at in range(30)])
        assert fetched(1, PLAIN - 2) == (0, [b"plain 3", b"plain 4"])
        assert fetched(1, 0)[0] == ErrorCode.OFFSET_OUT_OF_RANGE

        again = produce(node, 0, orders_batch(SEQUENCES - 1))
        assert (again.error_code, again.base_offset) == (0, 10 * (SEQUENCES - 1))
        following = produce(node, 0, orders_batch(SEQUENCES))
        assert (following.error_code, following.base_offset) == (0, 10 * SEQUENCES)

        committed = OffsetFetchRequest("readers", topics=[OffsetFetchRequestTopic(TOPIC, [0])])
        known = ask(node, committed, 5).topics[0].partitions[0]
        assert (known.committed_offset, known.metadata) == (12, "twelve")
        run_until(node, lambda: uid_of_the_offset(node) != ANY_TOPIC)
        assert ask(node, committed, 5).topics[0].partitions[0].committed_offset == 12
        described = ask(
            node,
            DescribeConfigsRequest([DescribeConfigsResource(2, TOPIC, ["retention.bytes"])]),
            4,
        )
        assert described.results[0].configs[0].value == "1000000000"
        assert (
            ask(node, DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=5_000), 5)
            .responses[0]
            .error_code
            == 0
        )
        anew = CreateTopicsRequest([CreatableTopic(TOPIC, 2, 1)])
        assert ask(node, anew, 5).topics[0].error_code == 0
        assert ask(node, committed, 5).topics[0].partitions[0].committed_offset == -1


def uid_of_the_offset(node: Node) -> int:
    """The topic to which an offset is attributed that an old release wrote."""
    for machine in node.machines.values():
        group = machine.consumer_groups.get(ConsumerGroupId("readers"))
        if group is not None:
            return group.offsets[TOPIC][0].uid
    raise AssertionError("the group is gone")
