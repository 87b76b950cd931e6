"""The blocking client gets the same answers from real nodes and from a broker that is not ours."""

import time

import pytest

from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import DataLossError, RefusedError
from tests.spark.bus import Bus, OurBus
from wire.error_codes import ErrorCode
from wire.records.batch import Record, iterate_records
from wire.records.batch_writer import build_batch

pytestmark = pytest.mark.cluster

BATCHES = 20
PER_BATCH = 100
RECORDS = BATCHES * PER_BATCH


@pytest.fixture(params=["bus", "foreign"])
def kafka(request: pytest.FixtureRequest) -> Bus:
    found: Bus = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def topic(kafka: Bus) -> str:
    if isinstance(kafka, OurBus):
        return kafka.create("client", 3)
    kafka.produce("client", {3: [(None, b"that is how a topic is made there")]})
    return "client"


def client(kafka: Bus, retry_ms: int = 20_000) -> Cluster:
    settings = ClusterSettings(bootstrap=kafka.bootstrap, retry_ms=retry_ms, backoff_max_ms=50)
    return Cluster(settings)


def value(number: int) -> bytes:
    return b"record %d" % number


def test_what_is_written_is_read(kafka: Bus, topic: str) -> None:
    places = [Place(topic, number) for number in range(3)]
    with client(kafka) as cluster:
        assert cluster.topics([topic])[topic] == cluster.topics()[topic] >= 3
        for first in range(0, RECORDS, PER_BATCH):
            records = [
                Record(value(first + i), timestamp_ms=1000 + first) for i in range(PER_BATCH)
            ]
            produced = cluster.produce_many(dict.fromkeys(places, build_batch(records)))
            assert {one.error for one in produced.values()} == {ErrorCode.NONE}
            assert {one.base_offset for one in produced.values()} == {first}
        starts = cluster.offsets(dict.fromkeys(places, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(places, LATEST))
        assert {one.offset for one in starts.values()} == {0}
        assert {one.offset for one in ends.values()} == {RECORDS}
        late = cluster.offsets({places[0]: int(time.time() * 1000) + 1_000_000})
        assert late[places[0]].offset == -1
        for start, end in ((0, RECORDS), (150, 1550), (1, 2), (7, 7)):
            batches = [batch for some in cluster.read(places[1], start, end) for batch in some]
            read = [one for batch in batches for one in iterate_records(batch)]
            wanted = [one.value for one in read if start <= one.offset < end]
            assert wanted == [value(number) for number in range(start, end)]
            assert len(read) <= end - start + 2 * PER_BATCH


def test_what_is_not_there_is_an_error(kafka: Bus, topic: str) -> None:
    place = Place(topic, 0)
    with client(kafka, retry_ms=200) as cluster:
        end = cluster.offsets({place: LATEST})[place].offset
        cluster.produce(place, build_batch([Record(b"last")]))
        read = cluster.read(place, end, end + 9)
        assert [batch.header.last_offset for batch in next(read)] == [end]
        with pytest.raises(DataLossError, match=f"the log ends at {end + 1}") as caught:
            next(read)
        assert (caught.value.start, caught.value.end) == (end + 1, end + 9)
        with pytest.raises(RefusedError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            cluster.topics([topic, "nobody-has-made-this"])
        with pytest.raises(RefusedError, match=r"client.*/77 cannot be used: UNKNOWN_TOPIC"):
            cluster.offsets({Place(topic, 77): LATEST})


def test_ids_and_features(kafka: Bus) -> None:
    with client(kafka) as cluster:
        first, second = cluster.producer_id(), cluster.producer_id()
        assert first.id != second.id
        assert len(cluster.features()) == 3
        assert cluster.supports_write_tokens() is isinstance(kafka, OurBus)
