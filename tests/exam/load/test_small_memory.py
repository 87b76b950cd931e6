"""A node with a memory limit of 256 MB keeps serving under every flood (a control group limits it).

Most of these floods send few bytes: a request that is decoded, decompressed, answered or delayed
may take a hundred times its size. Beside them a quiet client produces without an error. In the
taste one node stands all floods in turn; in the full dose each flood lasts longer and has its own
node.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.broker.batches import batch, timed
from tests.cluster.scenery import FULL
from tests.exam.load.flooded_node import MIB, TOPIC, Flooded, Quiet, flooded, memory_group
from tests.exam.load.test_floods import BIG, MEMORY, in_group, unfinished
from tests.runtime.test_node import Place
from wire.apis import Request, encode_request
from wire.error_codes import ErrorCode
from wire.messages import configs, fetch, membership, produce, topics
from wire.records.batch import Compression

pytestmark = pytest.mark.cluster

DOSE: Final = 10 if FULL else 1
BESIDE: Final = 10 * DOSE
"""Records of the quiet client during each flood."""
PATIENCE_S: Final = 0.1
"""After this long, a flood that is no longer read has arrived."""
WIDE: Final = "wide"
PARTITIONS: Final = 790


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def send(node: Flooded, connections: int, times: int, request: Request, version: int) -> None:
    frame = b"".join(encode_request(request, version, 1, "flood"))
    for at in range(connections):
        caller = node.caller(f"127.0.0.{2 + at % 4}")
        caller.sock.settimeout(PATIENCE_S)
        with suppress(OSError):
            for _ in range(times):
                caller.sock.sendall(frame)


def produced(data: bytes) -> produce.ProduceRequest:
    part = produce.PartitionProduceData(0, memoryview(data))
    return produce.ProduceRequest(None, -1, 30_000, [produce.TopicProduceData(TOPIC, [part])])


def many_names(node: Flooded) -> None:
    """Decoded, each is twenty times as large."""
    keys = [f"{at:x}" for at in range(150_000)]
    send(node, 8 * DOSE, 2, membership.FindCoordinatorRequest("", 0, keys), 4)


def long_answers(node: Flooded) -> None:
    """Answers that nobody reads, each of which has to be joined before anybody could."""
    resources = [configs.DescribeConfigsResource(2, TOPIC, [f"k{at}"]) for at in range(20)]
    resources += [configs.DescribeConfigsResource(4, f"{at}") for at in range(2_000)]
    send(node, 8 * DOSE, 2, configs.DescribeConfigsRequest(resources, True, True), 4)


def parked(node: Flooded) -> None:
    """Delayed fetches, each of many partitions."""
    partitions = [fetch.FetchPartition(at, fetch_offset=0) for at in range(PARTITIONS)]
    one = fetch.FetchRequest(
        max_wait_ms=30_000,
        min_bytes=16 * MIB,
        max_bytes=16 * MIB,
        topics=[fetch.FetchTopic(WIDE, partitions=partitions)],
    )
    send(node, 4 * DOSE, 500, one, 12)


def bombs(node: Flooded) -> None:
    """A few kilobytes that decompress to a hundred megabytes: more than this node has room for."""
    for codec in (Compression.ZSTD, Compression.LZ4)[: 2 if FULL else 1]:
        bomb = timed([0], compression=codec, pad=100 * MIB)
        assert len(bomb) < MIB
        answer = node.caller().ask(produced(bomb), 9).responses[0].partition_responses[0]
        assert answer.error_code == ErrorCode.MESSAGE_TOO_LARGE
        send(node, 4 * DOSE, 5, produced(bomb), 9)


def unfinished_requests(node: Flooded) -> None:
    node.hold(unfinished(), 4 * DOSE)


def unread_answers(node: Flooded) -> None:
    writer = node.caller()
    large = produced(batch("x" * MIB))
    for _ in range(20):
        answer = writer.ask(large, 9).responses[0].partition_responses[0]
        assert answer.error_code == 0
    partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=16 * MIB)
    wanted = fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=16 * MIB,
        topics=[fetch.FetchTopic(TOPIC, partitions=[partition])],
    )
    send(node, 20 * DOSE, 10, wanted, 12)


Flood = Callable[[Flooded], None]
FLOODS: Final[Sequence[Flood]] = (
    many_names,
    long_answers,
    parked,
    bombs,
    unfinished_requests,
    unread_answers,
)
TURNS: Final = [[flood] for flood in FLOODS] if FULL else [FLOODS]


@pytest.mark.parametrize("floods", TURNS, ids=[one[0].__name__ if FULL else "all" for one in TURNS])
def test_O4_a_small_node_serves_on(place: Place, floods: Sequence[Flood]) -> None:
    with (
        memory_group(MEMORY) as group,
        flooded(place, BIG, preexec_fn=in_group(group)) as node,
        Quiet(node.port) as quiet,
    ):
        wide = topics.CreateTopicsRequest([topics.CreatableTopic(WIDE, PARTITIONS, 1)], 30_000)
        assert node.caller().ask(wide, 5).topics[0].error_code == 0
        for flood in floods:
            flood(node)
            quiet.until(BESIDE)
            sys.stderr.write(f"{flood.__name__}: {node.rss // MIB} MB of {MEMORY // MIB}\n")
            assert not quiet.errors, flood.__name__
            assert node.alive, flood.__name__
            node.close()
