"""Exam rows O2 to O4, as far as one node shows them: a flood costs only what it must.

Beside each flood a quiet client produces. It sees no error, and in the full dose it needs no more
than twice its usual time (or `P99_MS_MIN`, as the machine has other things to do as well). Rows O1,
O5 and O6 are in test_overload.py.
"""

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from runtime.clients import places
from tests.broker.batches import batch
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.exam.load.flooded_node import (
    DOSE,
    MIB,
    TOPIC,
    USUAL,
    Caller,
    Flooded,
    Quiet,
    compare,
    flooded,
    memory_group,
    produce_one,
)
from tests.runtime.test_node import Place
from wire.apis import Request
from wire.error_codes import ErrorCode
from wire.messages import configs, fetch, membership, metadata, offsets, produce

pytestmark = pytest.mark.cluster

MEMORY: Final = 256 * MIB
TIMES: Final = 10 if FULL else 2
"""Expensive requests of each kind from each of four clients: they take longer than the quiet
client."""
BIG: Final = "limits.frame_bytes_max=16777216"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def in_group(group: Path) -> Callable[[], None]:
    """Runs in the child before it becomes a node."""

    def enter() -> None:
        (group / "cgroup.procs").write_text(str(os.getpid()))

    return enter


def unfinished(size: int = 16_000_000) -> bytes:
    return struct.pack(">ihh", size, 0, 9) + bytes(size - 100_000)


def test_O4_unfinished_requests_do_not_fill_the_memory(place: Place) -> None:
    """Each request has sent nearly all of its 16 MB; together they need far more memory than the
    node has."""
    with (
        memory_group(MEMORY) as group,
        flooded(place, BIG, preexec_fn=in_group(group)) as node,
        Quiet(node.port) as quiet,
    ):
        usual, burned = quiet.until(USUAL), quiet.beside_burners(USUAL)
        took = node.hold(unfinished(), 40)
        assert took < 20, "the others were not read: TCP pushes back on them"
        compare("O4 memory", usual, burned, quiet.until(USUAL))
        assert node.alive
        assert node.rss < MEMORY
        node.let_go()
        quiet.until(USUAL)
        assert not quiet.errors
        assert node.alive


def test_O3_answers_that_nobody_reads_do_not_fill_the_memory(place: Place) -> None:
    with (
        memory_group(MEMORY) as group,
        flooded(place, BIG, preexec_fn=in_group(group)) as node,
        Quiet(node.port) as quiet,
    ):
        usual, burned = quiet.until(USUAL), quiet.beside_burners(USUAL)
        writer = node.caller()
        block = MIB
        for _ in range(40):
            data = produce.PartitionProduceData(0, memoryview(one_batch(block)))
            asked = produce.ProduceRequest(
                None, -1, 30_000, [produce.TopicProduceData(TOPIC, [data])]
            )
            answer = writer.ask(asked, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        partition = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=16 * MIB)
        wanted = fetch.FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=16 * MIB,
            topics=[fetch.FetchTopic(TOPIC, partitions=[partition])],
        )
        greedy = [node.caller(f"127.0.0.{2 + at % 4}") for at in range(100)]
        for one in greedy:
            for _ in range(10):
                one.send(wanted, 12)
        compare("O3 unread answers", usual, burned, quiet.until(USUAL))
        assert node.alive
        assert node.rss < MEMORY
        assert not quiet.errors
        for one in greedy:
            one.close()


def one_batch(size: int) -> bytes:
    return batch("x" * size)


def test_O4_few_descriptors_are_no_failed_disk(place: Place) -> None:
    """The limit is lowered while the node runs, and connections take the remaining descriptors."""
    with flooded(place) as node, Quiet(node.port) as quiet:
        quiet.until(USUAL)
        resource.prlimit(node.process.pid, resource.RLIMIT_NOFILE, (128, 20_000))
        node.hold(b"", 300)
        quiet.until(USUAL)
        writer = node.caller("127.0.0.202")
        for _ in range(30 * DOSE):  # segments of 4 MB: the node has to open new ones
            data = produce.PartitionProduceData(0, memoryview(one_batch(MIB)))
            asked = produce.ProduceRequest(
                None, -1, 30_000, [produce.TopicProduceData(TOPIC, [data])]
            )
            answer = writer.ask(asked, 9)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert node.alive
        assert not quiet.errors
        assert node.place.get("/livez")[0] == 200
        assert node.metadata() == 1, "a new client is let in"
        assert not [line for line in node.process.lines if "Traceback" in line]


def test_O4_who_says_nothing_keeps_nobody_out(place: Place) -> None:
    """More silent connections than there are places, to Kafka's port and to the HTTP port."""
    with (
        flooded(place, "limits.connections_max=100", "limits.connections_per_ip_max=50") as node,
        Quiet(node.port) as quiet,
    ):
        quiet.until(10)
        node.hold(b"", 300)
        assert node.metadata() == 1
        probes = [socket.create_connection(("127.0.0.1", node.port + 2)) for _ in range(100)]
        assert node.place.get("/livez")[0] == 200
        quiet.until(USUAL)
        assert not quiet.errors
        for probe in probes:
            probe.close()


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_O4_who_asked_once_keeps_nobody_out(place: Place) -> None:
    """Connections that asked once and are idle hold all places, until they have been idle for long
    enough. Then new clients get those places, and active clients keep theirs."""
    with (
        flooded(place, "limits.connections_max=60", "limits.connections_per_ip_max=60") as node,
        Quiet(node.port) as quiet,
    ):
        quiet.until(10)
        resting = 0
        with contextlib.suppress(ConnectionError):
            for at in range(100):
                node.caller(f"127.0.0.{2 + at % 4}").ask(metadata.MetadataRequest([]), 9)
                resting += 1
        assert 40 < resting < 60, "all places are taken"
        until = time.monotonic() + places.RESTED_NS / 1e9 + 2
        while time.monotonic() < until:
            quiet.until(1)
        for _ in range(10):
            assert node.metadata() == 1
        quiet.until(USUAL)
        assert not quiet.errors


def test_O2_dear_requests_do_not_hold_up_the_others(place: Place) -> None:
    resources = [configs.DescribeConfigsResource(2, TOPIC)] * 10_000
    dear = configs.DescribeConfigsRequest(resources, True, True)
    many = membership.FindCoordinatorRequest("", 0, [f"g{at}" for at in range(50_000)])
    with flooded(place) as node, Quiet(node.port) as quiet:
        usual, burned = quiet.until(USUAL), quiet.beside_burners(USUAL)
        callers = [node.caller(f"127.0.0.{2 + at}") for at in range(4)]
        with ThreadPoolExecutor(2 * len(callers)) as pool:
            # The node stops reading from a client that does not read its answers: so do both at
            # once.
            sent = [pool.submit(send_all, caller, [dear, many], TIMES) for caller in callers]
            read = [pool.submit(receive_all, caller, 2 * TIMES) for caller in callers]
            compare("O2 dear requests", usual, burned, quiet.until(USUAL))
            for one in (*sent, *read):
                one.result()
        assert not quiet.errors


def send_all(caller: Caller, requests: Sequence[Request], times: int) -> None:
    for _ in range(times):
        for request in requests:
            caller.send(request, 4)


def receive_all(caller: Caller, count: int) -> None:
    for _ in range(count):
        caller.receive()


def test_what_is_too_large_is_answered(place: Place) -> None:
    """The answer is MESSAGE_TOO_LARGE and the connection goes on; over 100 MB it closes, as in
    Kafka."""
    with flooded(place) as node:
        caller = node.caller()
        for size in (3 * MIB, 20 * MIB, 3 * MIB):
            data = produce.PartitionProduceData(0, memoryview(bytes(size)))
            asked = produce.ProduceRequest(
                None, -1, 30_000, [produce.TopicProduceData(TOPIC, [data])]
            )
            told = caller.ask(asked, 9).responses[0].partition_responses[0].error_code
            assert told == ErrorCode.MESSAGE_TOO_LARGE
        share = membership.SyncGroupRequestAssignment("m", bytes(2 * MIB))
        big = membership.SyncGroupRequest("g", 1, "m", None, "consumer", "range", [share])
        assert caller.ask(big, 5).error_code == ErrorCode.INVALID_REQUEST
        partition = offsets.OffsetCommitRequestPartition(0, 1, committed_metadata="m" * (2 * MIB))
        commit = offsets.OffsetCommitRequest(
            "g", topics=[offsets.OffsetCommitRequestTopic(TOPIC, [partition])]
        )
        (refused,) = caller.ask(commit, 8).topics[0].partitions  # no error for the whole request
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert produce_one(caller) == 0
        caller.sock.sendall(struct.pack(">ihh", 101 * MIB, 0, 9))
        with pytest.raises(ConnectionError):
            caller.receive()


def test_memory_of_a_connection_goes_with_it(place: Place) -> None:
    """The memory is free at once, although an idle node runs no cyclic collection."""
    with flooded(place, BIG) as node:
        before = node.rss
        node.hold(unfinished(), 8)
        assert _held(node) > 100 * MIB
        node.let_go()
        until = time.monotonic() + 30
        while _held(node) > 0:
            assert time.monotonic() < until
            time.sleep(0.05)
        assert node.rss < before + 48 * MIB


def _held(node: Flooded) -> int:
    """How much memory the node itself accounts to unfinished frames."""
    _, text = node.place.get("/metrics")
    for line in text.decode().splitlines():
        if line.startswith('evenkeel_buffer_bytes{kind="frames"}'):
            return int(float(line.split()[-1]))
    raise AssertionError("no such metric")
