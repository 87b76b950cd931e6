"""The published shapes, one by one: refused, or answered at a bounded cost (exam, rows X1, X3)."""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.broker.world import SERVED
from tests.doses import some
from tests.fuzz import shapes
from tests.fuzz.broker_targets import Victim
from tests.fuzz.config_targets import ConfigFile
from tests.fuzz.engine import execute
from tests.fuzz.shapes import Shape
from tests.wire.messages_of import name_of
from wire.apis import APIS, Api, UnsupportedVersion, decode_request, parse_request_header
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.framing import KIB, MIB
from wire.messages.produce import ProduceRequest
from wire.records.batch import Compression, Record
from wire.records.batch_writer import build_batch

SMALL_CPU_MS_MAX = 100
"""For a frame of up to 64 KiB, in all its rounds together: it may name 7,000 consumer groups.
The length of one round, which others wait for, is measured in
tests/broker/requests/test_stretches.py."""
LARGE_CPU_MS_MAX = 16 * SMALL_CPU_MS_MAX
"""For a frame of 1 MiB."""
MEMORY_BYTES_MAX = 32 * MIB
TRIES = 3
YARDSTICK_MS = 7.5
"""How long the work of `slowness` takes on the machine on which the limits were set."""


@pytest.fixture(scope="module", autouse=True)
def _only_new_objects_are_collected() -> Iterator[None]:
    """In a run of all tests there are millions of other objects, and each measurement collects
    first."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """The most memory that the body held at once."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def slowness() -> float:
    """How much slower than the reference this machine is just now; never below one.

    Other programs may use the machine as well, and a hypervisor's stolen time counts as ours.
    """
    began = time.thread_time_ns()
    made = {str(number): number for number in range(60_000)}
    made.clear()
    return max(1.0, (time.thread_time_ns() - began) / 1e6 / YARDSTICK_MS)


def cpu_ms_of(
    frame: bytes, prepare: Callable[[Victim], None], victims: list[Victim], enough_ms: float
) -> float:
    """The least CPU time of several tries, each against a cluster of its own, in milliseconds of
    the reference machine: the loop's time, in all rounds until the answer."""
    best = float("inf")
    for _ in range(TRIES):
        victim = Victim()
        prepare(victim)
        gc.collect()
        gc.disable()
        before = victim.node.background.worked_ns
        began = time.thread_time_ns()
        victim.handle(memoryview(frame), True)
        victim.finish()
        took = time.thread_time_ns() - began - (victim.node.background.worked_ns - before)
        best = min(best, took / 1e6 / slowness())
        gc.enable()
        victims.append(victim)
        if best < enough_ms:
            break
    return best


def handled(frame: bytes, prepare: Callable[[Victim], None], *, inflated: bool = False) -> Victim:
    """A victim that has handled the frame within the limits and is healthy. Background
    decompression has limits of its own (broker.producers.batch_validation), however many frames
    come."""
    victims: list[Victim] = []
    cpu_ms = cpu_ms_of(frame, prepare, victims, SMALL_CPU_MS_MAX)
    assert cpu_ms < SMALL_CPU_MS_MAX, f"{cpu_ms:.0f} ms for {len(frame)} bytes"
    weighed = Victim()
    prepare(weighed)
    with traced() as peak:
        weighed.handle(memoryview(frame), True)
        if not inflated:
            weighed.finish()
        copied = len(weighed.asked[-1][2].frame or b"")  # by the fake that takes the answer
        took = peak() - copied
        assert took < MEMORY_BYTES_MAX, f"{took >> 20} MiB for {len(frame)} bytes"
    victims[-1].check()
    return victims[-1]


def nothing(_victim: Victim) -> None:
    """Only the empty topic exists."""


# -- refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", list(shapes.refused_streams()), ids=lambda shape: shape.name)
def test_refused_streams(shape: Shape) -> None:
    victim = Victim()
    with traced() as peak:
        refusals = 0
        try:
            victim.receive(shape.data)
        except ProtocolError:
            refusals = 1
        assert peak() < 3 * MIB  # the stream itself, and the buffers of an assembler
    refusals += sum(reply.closed is not None for _, _, reply in victim.asked)
    assert refusals == 1
    victim.check()


@pytest.mark.parametrize("api", APIS.values(), ids=name_of)
def test_no_length_and_no_count_is_believed(api: Api) -> None:
    """All of them, in every version: a ProtocolError, or (where a lie is harmless) a message."""
    refused = believed = 0
    with traced() as peak:
        for shape in shapes.lying_requests(api):
            view = memoryview(shape.data)
            try:
                header = parse_request_header(view)
                if not isinstance(header, UnsupportedVersion):
                    decode_request(header, view)
                    believed += 1
            except ProtocolError:
                refused += 1
        assert peak() < MIB
    assert refused > 20 * believed, f"{believed} lies were believed, {refused} refused"


# -- answered at a bounded cost -------------------------------------------------------------------


@pytest.mark.parametrize("api", some(SERVED), ids=name_of)
def test_long_arrays(api: Api) -> None:
    for shape in shapes.fat_requests(api, 64 * KIB):
        handled(shape.data, nothing)


@pytest.mark.parametrize("api", some(SERVED), ids=name_of)
def test_the_longest_arrays(api: Api) -> None:
    """Frames of 1 MiB, the most that any API but Produce may send."""
    for shape in shapes.fat_requests(api, MIB):
        victims: list[Victim] = []
        cpu_ms = cpu_ms_of(shape.data, nothing, victims, LARGE_CPU_MS_MAX)
        assert cpu_ms < LARGE_CPU_MS_MAX, f"{shape.name}: {cpu_ms:.0f} ms"
        victims[-1].check()


def many_records(victim: Victim) -> None:
    """A batch in which only the last record is late enough."""
    records = [Record(b"", timestamp_ms=shapes.LATE_MS - 11_000 + 1 + at) for at in range(11_000)]
    victim.handle(memoryview(shapes.produce(build_batch(records))), True)
    victim.finish()


@pytest.mark.parametrize("count", [1, 100, 3_000])
def test_offsets_for_times_again_and_again(count: int) -> None:
    """One frame of 1.7 KB used to block the node for 5.5 s. Kafka answers once per partition and
    request, and long searches run in the background."""
    victim = handled(shapes.look_up_times(count), many_records)
    rows = victim.answer(-1).topics[0].partitions
    if count == 1:
        assert [(one.error_code, one.offset) for one in rows] == [(0, 10_999)]
    else:
        assert {one.error_code for one in rows} == {ErrorCode.INVALID_REQUEST}


def a_bomb(victim: Victim) -> None:
    """56 KB of gzip that inflate to 55 MiB."""
    data = shapes.bomb(55)
    assert len(data) < 64 * KIB
    victim.handle(memoryview(shapes.produce(data)), True)
    victim.finish()


@pytest.mark.parametrize("count", [1, 5])
def test_a_bomb_in_offsets_for_times(count: int) -> None:
    """It is not inflated on the loop."""
    handled(shapes.look_up_times(count), a_bomb, inflated=True)


def test_a_bomb_is_not_set_off_on_the_loop_when_it_comes() -> None:
    data = shapes.bomb(55)
    victim = handled(shapes.produce(data), nothing, inflated=True)
    (answer,) = victim.answer(-1).responses[0].partition_responses
    assert answer.error_code == ErrorCode.NONE


@pytest.mark.parametrize("compression", [one for one in Compression if one])
def test_nonsense_is_not_stored(compression: Compression) -> None:
    """A batch that does not decompress would stop everybody who consumes it."""
    victim = handled(shapes.produce(shapes.nonsense_batch(compression)), nothing)
    (answer,) = victim.answer(-1).responses[0].partition_responses
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)


def many_batches(victim: Victim) -> None:
    one = memoryview(shapes.produce(build_batch([Record(b"x" * 900)])))
    for _ in range(1_500):  # more than the memory tail holds
        victim.handle(one, True)


@pytest.mark.parametrize("count", [1, 1_900])
def test_fetches_again_and_again(count: int) -> None:
    victim = handled(shapes.fetch_again(count), many_batches)
    partitions = victim.answer(-1).responses[0].partitions
    assert len(partitions) == count
    assert len(partitions[0].records) > 100_000


def test_a_client_that_plays_broker() -> None:
    """Nobody replicates by Fetch: it is refused, and nothing is read."""
    victim = handled(shapes.played_broker(), many_batches)
    response = victim.answer(-1)
    assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert all(not part.records for topic in response.responses for part in topic.partitions)


def test_more_partitions_than_any_producer_has() -> None:
    """A topic and its partitions are more items than a Produce may name: they would be decoded
    while everybody waits."""
    victim = Victim()
    victim.handle(memoryview(shapes.tiny_batches(ProduceRequest.ITEMS_MAX)), True)
    (_, _, reply) = victim.asked[-1]
    assert reply.closed is not None
    assert "partition_data" in reply.closed
    assert f"array of {ProduceRequest.ITEMS_MAX} elements" in reply.closed
    victim.check()


def test_dotted_keys_in_a_configuration_file() -> None:
    """30 KB of them took tomllib two seconds."""
    features = execute(ConfigFile(), b"[node]\n" + b"a." * 15_000 + b"b = 1")
    assert "not a config file" in features
