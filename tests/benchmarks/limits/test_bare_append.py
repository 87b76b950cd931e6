"""The bare append with its three processes, alone and beside a cluster."""

from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.limits import append, echo
from benchmarks.limits.bare import bare_append, end, line_of
from benchmarks.limits.loads import LOADS, Scale
from benchmarks.limits.machine import PROBES
from benchmarks.limits.measure import BARE, PRODUCT, Limits
from benchmarks.limits.ring import Entry, entries
from benchmarks.load.jobs import RequestJob
from benchmarks.report.progress import PlainView
from benchmarks.suites.bench import QUICK, Bench, BenchmarkFailed, start_module
from cluster.workload import stored
from tests.benchmarks.suites.test_fresh_cluster import SOON_EVEN
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from wire.records.batch import iterate_records, split

pytestmark = pytest.mark.cluster

PARTITIONS = 3
MESSAGES = 3_000
LOG_BYTES = 64 * 1024 * 1024
LOG_S = 20.0


def produce(bootstrap: str) -> dict[tuple[int, int], bytes]:
    """What was acknowledged: (partition, offset) -> value."""
    acknowledged: dict[tuple[int, int], bytes] = {}
    errors: list[KafkaError] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            errors.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        acknowledged[partition, offset] = value

    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 1, "on_delivery": told}
    )
    for number in range(MESSAGES):
        producer.produce("checked", b"message %d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(LOG_S) == 0
    assert not errors
    return acknowledged


def places_of(found: list[Entry]) -> dict[tuple[int, int], list[bytes | None]]:
    """A log's contents: values by partition and offset, of either topic."""
    places: dict[tuple[int, int], list[bytes | None]] = {}
    for entry in found:
        (batch,) = split(memoryview(entry.records))
        for delta, record in enumerate(iterate_records(batch)):
            place = entry.partition, entry.base_offset + delta
            places.setdefault(place, []).append(record.value)
    return places


async def test_what_is_acknowledged_is_in_all_three_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with bare_append(PARTITIONS, LOG_BYTES) as bare:
        target = bare.target
        job = RequestJob(
            bootstrap=target.bootstrap,
            topic="loaded",
            connections=8,
            in_flight=4,
            record_bytes=200,
            records=3,
            rate=0.0,
            first_node=0,
            warm_up_s=0.2,
            window_s=1.0,
            pids=target.pids,
        )
        measured = await Bench(target, QUICK, print).run(job)
        acknowledged = await trio.to_thread.run_sync(produce, target.bootstrap)
        assert len(acknowledged) == MESSAGES
        count = await trio.to_thread.run_sync(stored, target.bootstrap, "loaded", PARTITIONS)
        assert measured.count > 0
        assert measured.bytes == measured.count * 600
        assert count >= 3 * measured.count
        with trio.fail_after(LOG_S):  # a majority has everything; the third gets a moment for it
            for log in bare.logs:
                while True:
                    found = list(entries(log))
                    places = places_of(found)
                    if all(value in places.get(at, ()) for at, value in acknowledged.items()):
                        break
                    await trio.sleep(0.05)
                sequences = [entry.sequence for entry in found]
                assert sequences == list(range(1, len(sequences) + 1))
                loaded = sum(values.count(b"x" * 200) for values in places.values())
                assert loaded == count
    assert not list((tmp_path / "data").iterdir()), "its logs go with it"


@pytest.mark.parametrize("kind", echo.KINDS)
async def test_an_echo_server_outlives_its_clients(kind: str) -> None:
    """Closing a socket with an unread echo resets it: that used to end servers, and their loads."""
    server = start_module(echo.__name__, kind)
    try:
        port = int(await line_of(server))
        for _ in range(5):
            load = partial(echo.load_echo, port, 16, 0.05)
            per_s, latency_ns = await trio.to_thread.run_sync(load)
            assert per_s > 0
            assert latency_ns.count >= 16
            assert server.poll() is None
    finally:
        end([server])


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_both_sides_are_measured_beside_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As short as possible: it only shows that measuring works."""
    monkeypatch.chdir(tmp_path)
    lines: list[str] = []
    limits = Limits(
        probes=PROBES,
        loads=[one for one in LOADS if one.name in ("requests-1x64", "batches-1mb")],
        consume=False,
        scale=Scale(name="test", pairs=1, warm_up_s=0.2, window_s=1.0),
        partitions=6,
        spread=False,
        overrides=SOON_EVEN,
        view=PlainView(lines.append),
    )
    await limits.measure()
    told = "\n".join(lines)
    names = ["echo-64", "echo-1", "loopback", "disk", "requests-1x64", "batches-1mb"]
    assert [one.name for one in limits.outcomes] == names, told
    for outcome in limits.outcomes:
        assert not outcome.failure, told
        # CPU is counted in ticks of 10 ms: such a short run may take none of them.
        assert all(one.value > 0 for one in outcome.figures if " us" not in one.name), told
    assert limits.configurations[PRODUCT]["settings"]["storage"]["durability"] == "fsync"
    assert limits.configurations[BARE]["partitions"] == 6
    assert not list((tmp_path / "data").iterdir()), "all data goes with them"


async def test_a_process_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(append, "__name__", "benchmarks.limits.nothing")
    with pytest.raises(BenchmarkFailed, match="nothing"):
        async with bare_append(PARTITIONS, LOG_BYTES):
            pytest.fail("it has started")
