"""Masters are stolen and a node is killed while the blocking client writes and reads: same records.

One thread hurts the cluster. The other one writes with a producer id and reads back what it has
written, all the time, through the same connections.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from tests.cluster.scenery import FULL
from tests.spark.bus import OurBus
from wire.cluster_view import NO_LEADER
from wire.error_codes import ErrorCode
from wire.records.batch import Record, iterate_records
from wire.records.batch_writer import build_batch

pytestmark = pytest.mark.cluster

PARTITIONS = 3
PER_BATCH = 200
STORY_MS = 60_000
"""No single delay is that long."""


DOSES = ["kill", "pause"] * 5 if FULL else ["kill"]


def hurt(bus: OurBus, topic: str) -> None:
    """Every master moves at least once by a steal. Then the node that has all of them dies or
    stands still, and comes back when others have taken over."""
    for number, dose in enumerate(DOSES):
        node = (number + 1) % 3 + 1
        bus.steal_to(number % 3 + 1)
        bus.place_all_on(node)
        end, begin = (bus.kill, bus.restart) if dose == "kill" else (bus.pause, bus.resume)
        end(node)
        while bus.leader_of(topic, 0) in (node, NO_LEADER):
            pass  # the nodes hold the question
        begin(node)
    bus.spread()


class Story:
    """Writes records that count up in every partition, and reads what it has not read yet."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster = cluster
        self.places = [Place(topic, number) for number in range(PARTITIONS)]
        self.written = 0
        self.read = dict.fromkeys(self.places, 0)
        self.producer = cluster.producer_id()

    def write(self) -> None:
        numbers = range(self.written, self.written + PER_BATCH)
        records = [Record(b"%d" % number, b"k" * 100) for number in numbers]
        batch = build_batch(
            records,
            producer_id=self.producer.id,
            producer_epoch=self.producer.epoch,
            base_sequence=self.written,
        )
        for place, one in self.cluster.produce_many(dict.fromkeys(self.places, batch)).items():
            assert one.error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER), (place, one)
        self.written += PER_BATCH

    def read_back(self, place: Place) -> None:
        """From the last position to the partition's present end: everything that was
        acknowledged."""
        for batches in self.cluster.read(place, self.read[place], self.written):
            for batch in batches:
                assert batch.header.base_offset == self.read[place]
                for record in iterate_records(batch):
                    assert record.value == b"%d" % self.read[place]
                    self.read[place] += 1
        assert self.read[place] == self.written


def test_a_killed_node_and_stolen_masters_are_only_a_delay(bus: OurBus) -> None:
    topic = bus.create("hurt", PARTITIONS)
    settings = ClusterSettings(
        bootstrap=bus.bootstrap, fetch_bytes=64 * 1024, request_ms=2_000, retry_ms=STORY_MS
    )
    with Cluster(settings) as cluster, ThreadPoolExecutor(1) as other:
        story = Story(cluster, topic)
        faults = other.submit(hurt, bus, topic)
        rounds = 0
        while not faults.done():
            story.write()
            story.read_back(story.places[rounds % PARTITIONS])
            rounds += 1
        faults.result()
        story.write()
        for place in story.places:
            story.read_back(place)
        assert cluster.offsets(dict.fromkeys(story.places, EARLIEST))[story.places[0]].offset == 0
        ends = cluster.offsets(dict.fromkeys(story.places, LATEST))
        assert {one.offset for one in ends.values()} == {story.written}, "nothing is there twice"
        assert rounds > PARTITIONS


def test_a_reader_that_is_on_its_way_follows_the_masters(bus: OurBus) -> None:
    """Its leader changes twice between two fetches of one range, with the next one under way."""
    topic = bus.create("followed", 1)
    place = Place(topic, 0)
    settings = ClusterSettings(bootstrap=bus.bootstrap, fetch_bytes=64 * 1024)
    with Cluster(settings) as cluster:
        batch = build_batch([Record(b"x" * 1000)] * 50)
        for _ in range(20):
            assert cluster.produce(place, batch).error is ErrorCode.NONE
        seen = 0
        node = bus.leader_of(topic, 0)
        for turn, batches in enumerate(cluster.read(place, 0, 1000)):
            for one in batches:
                assert one.header.base_offset == seen
                seen = one.header.last_offset + 1
            if turn in (1, 3):
                node = node % 3 + 1
                bus.place_all_on(node)
        assert seen == 1000
        bus.spread()
