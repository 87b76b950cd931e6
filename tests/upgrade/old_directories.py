"""Data directories as an earlier version left them, and their known contents.

`python -m tests.upgrade.old_directories NAME` makes `golden/NAME.tar.xz` with the present program:
once for each change of a format that is on disk, before that change. Archives are never made again:
what matters is that the bytes are the old program's.
"""

import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from broker.api import ApiTable
from node import Node
from paxos.ids import REGISTRY_GROUP
from tests.broker.fakes import FakeReply
from tests.runtime.one_node import one_node, run_until
from wire.apis import APIS, Request, decode_response, encode_request
from wire.messages.logs import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    DeleteTopicsRequest,
)
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

GOLDEN: Final = Path(__file__).parent / "golden"
GROUPS: Final = 2
TOPIC: Final = "orders"
PRODUCER_ID: Final = 7_000
SEQUENCES: Final = 3
"""Batches of ten records each in partition 0, of the idempotent producer."""
PLAIN: Final = 5
"""Records in partition 1; all but the last two are deleted."""
FILLER: Final = "filler"
FILLER_BYTES: Final = 700_000
SETS: Final = (
    "storage.segment_bytes=1048576",
    "storage.reserve_bytes=0",
    "storage.log_bytes=2097152",
    "storage.checkpoint_records=100",
    "storage.checkpoint_bytes=1048576",
)


def ask(node: Node, message: Request, version: int) -> Any:
    """One client request, answered by the node's own table of APIs."""
    api = next(api for api in APIS.values() if api.request is type(message))
    frame = b"".join(encode_request(message, version, 7, "upgrade"))[4:]
    reply = FakeReply()
    ApiTable(node.broker).handle_frame(memoryview(frame), True, "198.51.100.7", reply)
    run_until(node, lambda: reply.settled)
    assert reply.frame is not None, reply.closed
    return decode_response(int(api.key), version, memoryview(reply.frame)[4:])


def wait_for_masters(node: Node) -> None:
    run_until(
        node,
        lambda: node.shell.not_ready() == "" and all(map(node.engine.acting, node.engine.intakes)),
    )


def orders_batch(number: int) -> bytes:
    """The `number`th batch of the idempotent producer, from 0."""
    records = [Record(b"%d/%d" % (number, at), key=b"k%d" % at) for at in range(10)]
    return build_batch(
        records, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=10 * number
    )


def produce(node: Node, partition: int, batch: bytes) -> Any:
    data = [PartitionProduceData(partition, memoryview(batch))]
    answer = ask(node, ProduceRequest(None, -1, 5_000, [TopicProduceData(TOPIC, data)]), 9)
    return answer.responses[0].partition_responses[0]


def fill(node: Node) -> None:
    """The contents of every archive, by the names and numbers above."""
    wait_for_masters(node)
    configs = [CreatableTopicConfig("retention.bytes", "1000000000")]
    topics = [CreatableTopic(TOPIC, 2, 1, [], configs), CreatableTopic("gone", 2, 1, [], [])]
    made = ask(node, CreateTopicsRequest(topics), 5)
    assert [one.error_code for one in made.topics] == [0, 0]
    for number in range(SEQUENCES):
        assert produce(node, 0, orders_batch(number)).base_offset == 10 * number
    for number in range(PLAIN):
        assert produce(node, 1, build_batch([Record(b"plain %d" % number)])).error_code == 0
    trim = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(1, PLAIN - 2)])
    assert ask(node, DeleteRecordsRequest([trim], 5_000), 1).topics[0].partitions[0].error_code == 0
    deleted = ask(node, DeleteTopicsRequest(["gone"], timeout_ms=5_000), 5)
    assert deleted.responses[0].error_code == 0
    offset = OffsetCommitRequestPartition(0, 12, committed_metadata="twelve")
    commit = OffsetCommitRequest(
        "readers", -1, "", topics=[OffsetCommitRequestTopic(TOPIC, [offset])]
    )
    assert ask(node, commit, 8).topics[0].partitions[0].error_code == 0
    run_until(node, lambda: node.wal.synced == node.wal.end)
    assert node.engine.acting(REGISTRY_GROUP)


def fill_the_log(node: Node) -> None:
    """Until what `fill` has written is in checkpoints and cold segments, and its log is gone."""
    topic = CreatableTopic(FILLER, 1, 1, [], [])
    assert ask(node, CreateTopicsRequest([topic]), 5).topics[0].error_code == 0
    orders = node.registry.topic(TOPIC)
    assert orders is not None
    filler = build_batch([Record(bytes(FILLER_BYTES))])
    data = TopicProduceData(FILLER, [PartitionProduceData(0, memoryview(filler))])
    first = node.wal.kept().start
    for _ in range(100):
        answer = ask(node, ProduceRequest(None, -1, 5_000, [data]), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        run_until(node, lambda: not node.upkeep.busy)
        settled = all(node.cold.end(place.uid) for place in orders.partitions)
        if settled and node.wal.kept().start > first + 2:
            return
    raise AssertionError("the log goes on and on")


def make(name: str) -> Path:
    archive = GOLDEN / f"{name}.tar.xz"
    assert not archive.exists(), f"{archive} is an old program's, it is not made again"
    with tempfile.TemporaryDirectory() as scratch:
        with one_node(Path(scratch), *SETS, groups=GROUPS) as node:
            fill(node)
            fill_the_log(node)
        (Path(scratch) / "data" / "lock").unlink()
        with tarfile.open(archive, "w:xz") as packed:
            packed.add(Path(scratch) / "data", "data")
    return archive


def unpack(archive: Path, into: Path) -> None:
    shutil.rmtree(into / "data", ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(into, filter="data")


if __name__ == "__main__":
    made = make(sys.argv[1])
    print(f"{made}: {made.stat().st_size} bytes")  # noqa: T201
