"""A job that writes under tokens, dies, and runs its micro-batches again, in a thread of its own.

It uses the client that Spark's tasks use, without Spark. The content of a micro-batch follows from
its number. Each chunk has a record of its own, so the partitions show in the end what was written
twice, never, or in the wrong order.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Final

import trio

from cluster import workload
from cluster.launcher import Launcher
from pyspark_evenkeel.client.cluster import LATEST, Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from tests.cluster.scenery import PARTITIONS, in_thread
from wire.error_codes import ErrorCode
from wire.records.batch import Record, iterate_records
from wire.records.batch_writer import build_batch
from wire.records.write_tokens import Position, token_of, writer_id

TOPIC: Final = "tables"
PLACES: Final = [Place(TOPIC, number) for number in range(PARTITIONS)]
CHUNKS: Final = 7
"""Chunks of each micro-batch in each partition: more than the broker remembers with their
offsets."""
DIES_CHANCE: Final = 0.5


class StreamingJob:
    def __init__(self, bootstrap: str) -> None:
        self._settings = ClusterSettings(bootstrap=bootstrap)
        self._chance = Random(7)
        self._offsets: dict[tuple[Place, int, int], int] = {}
        """The offsets of newly written chunks, by partition, micro-batch and chunk."""
        self.complete = 0
        """How many micro-batches, from 0 on, were written as a whole."""
        self.shown = self.there = 0
        """Chunks that were there already: answered with their offsets, and without."""
        self.stop = False

    def run(self, batch: int, chunks: int = CHUNKS) -> None:
        """Run a micro-batch from its beginning; die after that many chunks."""
        with Cluster(self._settings) as cluster:
            for chunk in range(chunks):
                data = _chunk(batch, chunk)
                for place, told in cluster.produce_many(dict.fromkeys(PLACES, data)).items():
                    self._told((place, batch, chunk), told.error, told.base_offset)
        if chunks == CHUNKS:
            self.complete = max(self.complete, batch + 1)

    def run_on(self) -> None:
        """One micro-batch after the other, most of them several times, until stopped."""
        while not self.stop:
            dies = self._chance.random() < DIES_CHANCE
            self.run(self.complete, self._chance.randrange(CHUNKS) if dies else CHUNKS)

    def _told(self, name: tuple[Place, int, int], error: ErrorCode, offset: int) -> None:
        if error is ErrorCode.NONE:
            assert name not in self._offsets, f"{name} is appended again"
            self._offsets[name] = offset
            return
        assert error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"{name}: {error.name}"
        if offset < 0:
            self.there += 1
        else:
            self.shown += 1
            assert self._offsets.setdefault(name, offset) == offset

    def check(self) -> None:
        """Every chunk is in the log once, in order, at the offset that was answered."""
        expected = [
            b"%d/%d" % (batch, chunk) for batch in range(self.complete) for chunk in range(CHUNKS)
        ]
        with Cluster(self._settings) as cluster:
            ends = cluster.offsets(dict.fromkeys(PLACES, LATEST))
            for place in PLACES:
                read = [
                    (record.offset, record.value)
                    for batches in cluster.read(place, 0, ends[place].offset)
                    for one in batches
                    for record in iterate_records(one)
                ]
                values = [value for _, value in read]
                assert values[: len(expected)] == expected, place
                assert len(values) < len(expected) + CHUNKS, "the last one may be incomplete"
                assert [offset for offset, _ in read] == list(range(len(read)))
        for (_, batch, chunk), offset in self._offsets.items():
            assert offset == batch * CHUNKS + chunk


def _chunk(batch: int, chunk: int) -> bytes:
    token = token_of(writer_id("job", 0), Position(batch, chunk, chunk + 1 < CHUNKS))
    return build_batch(
        [Record(b"%d/%d" % (batch, chunk))],
        producer_id=token.producer_id,
        producer_epoch=token.epoch,
        base_sequence=token.sequence,
    )


async def new_job(cluster: Launcher) -> StreamingJob:
    """A job that has not yet written anything to its topic."""
    create = partial(workload.create_topic, partitions=PARTITIONS, replication=3)
    await in_thread(partial(create, cluster.spec.bootstrap, TOPIC))
    return StreamingJob(cluster.spec.bootstrap)


@asynccontextmanager
async def streaming(cluster: Launcher) -> AsyncIterator[StreamingJob]:
    """A job that runs while the body runs; at the end its writes are checked."""
    job = await new_job(cluster)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, job.run_on)
        try:
            yield job
        finally:
            job.stop = True
    await in_thread(job.check)
