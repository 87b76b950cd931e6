"""A consumer's assigned partitions and its progress, without a broker."""

from collections.abc import Collection
from typing import cast

import attrs
import pytest
import trio
import trio.testing

from evenkeel import ClientConfig, Consumer, ConsumerConfig, RebalanceListener
from evenkeel.client import Client
from evenkeel.consumer.autocommit import AutoCommit
from evenkeel.consumer.fetcher import Fetcher
from evenkeel.coordinator import Coordinator
from evenkeel.errors import CommitError, EvenkeelError, OffsetError, TimedOutError
from wire.cluster_view import PartitionView, TopicPartition, TopicView

PLACE = TopicPartition("t", 0)


@attrs.define
class Cluster:
    """One node leads everything; what a client starts is only recorded. Commits end as the test
    says."""

    config: ClientConfig = attrs.Factory(ClientConfig)
    started: int = 0
    commit_fails: EvenkeelError | None = None
    topics: dict[str, TopicView] = attrs.Factory(dict)

    @property
    def view(self) -> "Cluster":
        return self

    def leader(self, place: TopicPartition) -> int:
        return 1

    def partition(self, place: TopicPartition) -> PartitionView | None:
        return None

    def follow(self, topics: Collection[str]) -> None: ...

    def start(self, work: object) -> None:
        self.started += 1

    async def commit(self, *_: object, **__: object) -> None:
        await trio.lowlevel.checkpoint()
        if self.commit_fails is not None:
            raise self.commit_fails


def consumer_of(cluster: Cluster) -> Consumer:
    """As inside its `async with`, without any task."""
    consumer = Consumer("nowhere", ConsumerConfig(group="g"))
    consumer._client = cast(Client, cluster)
    consumer._coordinator = cast(Coordinator, cluster)
    consumer._fetcher = Fetcher(cast(Client, cluster), ConsumerConfig(), None, lambda: None)
    consumer._open = True
    return consumer


async def test_D10_while_the_listener_runs_nothing_is_read_and_it_may_seek() -> None:
    """However long it takes: such a partition is not fetched, not handed out, and its position is
    not looked up."""
    cluster = Cluster()
    consumer = consumer_of(cluster)
    may_end, is_told = trio.Event(), trio.Event()

    class Seeking(RebalanceListener):
        async def assigned(self, places: Collection[TopicPartition]) -> None:
            consumer.seek(PLACE, 17)
            consumer._fetcher.assigned[PLACE].error = OffsetError("of a lookup before")
            is_told.set()
            await may_end.wait()

    consumer._listener = Seeking()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.assigned, [PLACE])
        await is_told.wait()
        consumer._fetcher._start_requests(0.0)
        assert cluster.started == 0
        assert consumer._next_records() is None, "not even what is wrong with it"
        assert [one.settling for one in consumer._fetcher.assigned.values()] == [True]
        may_end.set()
    assert consumer.known_position(PLACE) == 17
    with pytest.raises(OffsetError):
        consumer._next_records()
    consumer._fetcher.assigned[PLACE].not_before = 0.0
    consumer._fetcher._start_requests(0.0)
    assert cluster.started == 1, "and then it is read"


@pytest.mark.parametrize("says", ["is not assigned", "no offset to begin at"])
async def test_who_waits_for_a_position_hears_that_there_will_be_none(says: str) -> None:
    """The partition is taken away, or the consumer fails: nothing new arrives after that."""
    consumer = consumer_of(Cluster())
    consumer._take([PLACE])
    told: list[str] = []

    async def wait() -> None:
        try:
            await consumer.position(PLACE)
        except EvenkeelError as error:
            told.append(str(error))

    with trio.fail_after(5):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            if says == "is not assigned":
                consumer._drop([PLACE])
            else:
                consumer._fail(OffsetError(says))
    assert len(told) == 1
    assert says in told[0]


async def test_D10_what_is_being_taken_away_is_not_read_while_the_listener_runs() -> None:
    """During `revoked` it is still ours, but only to be committed; then it is gone."""
    cluster = Cluster()
    consumer = consumer_of(cluster)
    consumer._take([PLACE])
    consumer.seek(PLACE, 5)
    may_end, is_told = trio.Event(), trio.Event()

    class Leaving(RebalanceListener):
        async def revoked(self, places: Collection[TopicPartition]) -> None:
            is_told.set()
            await may_end.wait()

    consumer._listener = Leaving()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(consumer.revoked, [PLACE])
        await is_told.wait()
        assert consumer.assignment == {PLACE}
        consumer._fetcher._start_requests(0.0)
        assert cluster.started == 0
        may_end.set()
    assert not consumer.assignment


@pytest.mark.parametrize("error", [CommitError("moved on"), TimedOutError("too late"), None])
async def test_E13_a_commit_that_fails_is_no_report(error: EvenkeelError | None) -> None:
    consumer = consumer_of(Cluster(commit_fails=error))
    consumer._take([PLACE])
    consumer.seek(PLACE, 5)
    consumer._fetcher.assigned[PLACE].processed = 5
    assert await consumer._report_progress([PLACE]) is (error is None)


async def test_D10_an_assignment_sets_the_interval_of_commits_back() -> None:
    consumer = consumer_of(Cluster())
    consumer._auto_commit = cast(AutoCommit, counted := Restarts())
    await consumer.assigned([PLACE])
    assert counted.restarts == 1


class Restarts:
    restarts = 0

    def restart(self) -> None:
        self.restarts += 1
