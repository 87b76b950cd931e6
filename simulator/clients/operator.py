"""An operator: gives orders about things of its own, one after the other, at any node.

Its things are a consumer group without members, a topic that comes and goes and is configured, and
a topic whose records are deleted. What it is told must hold (`simulator.checkers.orders`).
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from paxos.ids import MS
from simulator.checkers.orders import PREFIX, SETTING, Fate
from simulator.clients.kafka_client import AnyResponse, KafkaClient
from simulator.clients.surroundings import Surroundings
from simulator.environment.violation import Violation
from wire.apis import Request
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.group_admin import DeleteGroupsRequest
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from wire.messages.logs import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeletePartition,
    OffsetDeleteRequest,
    OffsetDeleteTopic,
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

START_NS_MAX: Final = 500 * MS
THINK_NS_MAX: Final = 120 * MS
TIMEOUT_MS: Final = 1_500
ANSWER_NS: Final = 2_000 * MS
"""A node mostly answers sooner, unless it is down, cut off or paused; then the order is UNHEARD."""
TOPIC_CONFIG: Final = 2
EVERYTHING, EARLIEST, LATEST, DEFAULT = -1, -2, -1, -1
ELSEWHERE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)
"""A node that says so cannot help, or does not know yet: the next one may."""
UNKNOWN: Final = frozenset(
    (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
)


class _Call(NamedTuple):
    """A request, and where its answer has the error."""

    request: Request
    version: int
    error: Callable[[AnyResponse], int]


def _of_partition(response: AnyResponse) -> int:
    return int(response.topics[0].partitions[0].error_code)


class Operator(KafkaClient):
    def __init__(self, world: Surroundings, address: int) -> None:
        super().__init__(world, "operator", address, START_NS_MAX)
        self._group = f"{PREFIX}group-{address}"
        self._topic = f"{PREFIX}topic-{address}"
        self._log = f"{PREFIX}log-{address}"
        self._targets = dict.fromkeys((self._group, self._topic, self._log), 0)
        self._busy = False
        self._there = False
        """Whether the topic whose records are deleted exists."""
        self._end = self._start = 0
        """What ListOffsets must at least report of it."""
        self._kinds: Mapping[str, tuple[Callable[[], None], ...]] = {
            self._group: (self._commit, self._commit, self._drop_offset, self._drop_group),
            self._topic: (self._create, self._configure, self._configure, self._delete),
            self._log: (self._produce, self._produce, self._delete_records, self._list),
        }

    @property
    def think_ns(self) -> int:
        return min(self._world.options.client_think_ns, THINK_NS_MAX)

    def _act(self) -> None:
        if self._busy:
            return
        if not self._there:
            self._make_log()
            return
        thing = self._chance.choice(list(self._kinds))
        self._chance.choice(self._kinds[thing])()

    def _ask(self, thing: str, call: _Call, answered: Callable[[AnyResponse, int], None]) -> None:
        """`answered` gets the response and its error; None and 0 if there was no answer."""
        self._busy = True
        target = self._targets[thing]

        def done(response: AnyResponse) -> None:
            self._busy = False
            error = 0 if response is None else call.error(response)
            if response is None:  # do not ask that node about other things either
                self._silent.add(target)
                for one, node in self._targets.items():
                    if node == target:
                        self._targets[one] = self._anybody_heard()
            elif error in ELSEWHERE:
                self._targets[thing] = self._anybody_heard()
            else:
                self.progress += 1
            answered(response, error)

        self._caller.call(target, call.request, call.version, ANSWER_NS, done)

    def _order(
        self,
        thing: str,
        make: Callable[[int], _Call],
        *,
        clears: bool,
        then: Callable[[AnyResponse], None] = lambda _response: None,
    ) -> None:
        orders = self._world.orders
        number = orders.begin(thing, clears=clears)

        def answered(response: AnyResponse, error: int) -> None:
            fate = Fate.REFUSED
            if response is None:
                fate = Fate.UNHEARD
            elif error == ErrorCode.NONE:
                fate = Fate.DONE
            elif error in UNKNOWN:
                fate = Fate.UNKNOWN
            self._world.statistics[f"orders {fate.name.lower()}"] += 1
            orders.told(thing, number, fate)
            if fate is Fate.DONE:
                then(response)

        self._ask(thing, make(number), answered)

    # -- a group ------------------------------------------------------------------------------

    def _commit(self) -> None:
        def make(number: int) -> _Call:
            one = OffsetCommitRequestPartition(0, number)
            topics = [OffsetCommitRequestTopic(self._log, [one])]
            return _Call(OffsetCommitRequest(self._group, topics=topics), 8, _of_partition)

        self._order(self._group, make, clears=False)

    def _drop_offset(self) -> None:
        topics = [OffsetDeleteTopic(self._log, [OffsetDeletePartition(0)])]
        request = OffsetDeleteRequest(self._group, topics)

        def error(response: AnyResponse) -> int:
            return int(response.error_code or _of_partition(response))

        self._order(self._group, lambda _: _Call(request, 0, error), clears=True)

    def _drop_group(self) -> None:
        call = _Call(
            DeleteGroupsRequest([self._group]), 2, lambda one: int(one.results[0].error_code)
        )
        self._order(self._group, lambda _: call, clears=True)

    # -- a topic ------------------------------------------------------------------------------

    def _create(self) -> None:
        self._order(self._topic, partial(self._creating, self._topic), clears=False)

    def _creating(self, name: str, number: int) -> _Call:
        configs = [CreatableTopicConfig(SETTING, str(number))] if number else []
        topic = CreatableTopic(name, 1, DEFAULT, configs=configs)
        request = CreateTopicsRequest([topic], timeout_ms=TIMEOUT_MS)
        return _Call(request, 7, lambda one: int(one.topics[0].error_code))

    def _configure(self) -> None:
        def make(number: int) -> _Call:
            configs = [IncrementalAlterableConfig(SETTING, 0, str(number))]
            resource = IncrementalAlterConfigsResource(TOPIC_CONFIG, self._topic, configs)
            request = IncrementalAlterConfigsRequest([resource])
            return _Call(request, 1, lambda one: int(one.responses[0].error_code))

        self._order(self._topic, make, clears=False)

    def _delete(self) -> None:
        request = DeleteTopicsRequest(topic_names=[self._topic], timeout_ms=TIMEOUT_MS)
        call = _Call(request, 5, lambda one: int(one.responses[0].error_code))
        self._order(self._topic, lambda _: call, clears=True)

    # -- records ------------------------------------------------------------------------------

    def _make_log(self) -> None:
        def answered(response: AnyResponse, error: int) -> None:
            exists = error == ErrorCode.TOPIC_ALREADY_EXISTS
            self._there = response is not None and (error == ErrorCode.NONE or exists)

        self._ask(self._log, self._creating(self._log, 0), answered)

    def _produce(self) -> None:
        def make(number: int) -> _Call:
            data = PartitionProduceData(0, memoryview(build_batch([Record(b"%d" % number)])))
            request = ProduceRequest(None, -1, TIMEOUT_MS, [TopicProduceData(self._log, [data])])
            return _Call(request, 9, lambda one: int(_appended(one).error_code))

        def then(response: AnyResponse) -> None:
            self._end = max(self._end, _appended(response).base_offset + 1)

        self._order(self._log, make, clears=False, then=then)

    def _delete_records(self) -> None:
        topic = DeleteRecordsTopic(self._log, [DeleteRecordsPartition(0, EVERYTHING)])
        call = _Call(DeleteRecordsRequest([topic], TIMEOUT_MS), 2, _of_partition)

        def then(response: AnyResponse) -> None:
            self._start = max(self._start, response.topics[0].partitions[0].low_watermark)

        self._order(self._log, lambda _: call, clears=True, then=then)

    def _list(self) -> None:
        which, least = self._chance.choice(((EARLIEST, self._start), (LATEST, self._end)))
        topic = ListOffsetsTopic(self._log, [ListOffsetsPartition(0, -1, which)])
        call = _Call(ListOffsetsRequest(-1, 0, [topic]), 7, _of_partition)

        def answered(response: AnyResponse, error: int) -> None:
            if response is None or error != ErrorCode.NONE:
                return
            offset = response.topics[0].partitions[0].offset
            if offset < least and self._world.fresh:
                raise Violation(f"I7: {offset} of {self._log} is listed, {least} was told before")

        self._ask(self._log, call, answered)


def _appended(response: AnyResponse) -> AnyResponse:
    return response.responses[0].partition_responses[0]
