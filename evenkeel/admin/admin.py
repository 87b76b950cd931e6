"""The admin client: topics, settings, records, consumer groups, and partition leaders.

    async with Admin("localhost:9092") as admin:
        await admin.create_topic("orders", partitions=12)

Every method raises a refusal of the broker as a BrokerError and retries transient failures. If an
answer was lost on the way, a retry may find the work done: then it is no error if the object to
create already exists, or the object to delete is gone.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

import trio

from evenkeel import lookups
from evenkeel.admin.acls import AccessAdmin
from evenkeel.admin.descriptions import (
    ClusterDescription,
    PartitionDescription,
    Reassignment,
    Setting,
    TopicDescription,
)
from evenkeel.admin.groups import GroupAdmin
from evenkeel.admin.quotas import QuotaAdmin
from evenkeel.admin.users import UserAdmin
from evenkeel.client import Client, open_client
from evenkeel.config import ClientConfig
from evenkeel.coordinator import topic_map
from evenkeel.errors import (
    BrokerError,
    DisconnectedError,
    TimedOutError,
    refusal,
)
from evenkeel.lifetime import Scoped
from evenkeel.lookups import FoundOffset
from wire.apis import Request
from wire.cluster_view import TopicPartition, TopicView
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages import configs, logs, placement, topics
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic

R = TypeVar("R")
T = TypeVar("T")

TOPIC_RESOURCE: Final = 2
NODE_RESOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
SET, DELETE = 0, 1
UP_TO_NOW: Final = -1
"""For `delete_records`: all records there are."""
PREFERRED: Final = 0
LOOK_EVERY_S: Final = 0.05


class Admin(AccessAdmin, GroupAdmin, QuotaAdmin, UserAdmin, Scoped["Admin"]):
    """Changes a cluster and describes it; any number of tasks may use it at once."""

    def __init__(
        self, bootstrap: str | Iterable[str], *, client: ClientConfig | None = None
    ) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._config = ClientConfig() if client is None else client

    @property
    def client(self) -> Client:
        self._check_open()
        return self._client

    def _lifetime(self) -> AbstractAsyncContextManager["Admin"]:
        return self._run()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator["Admin"]:
        async with open_client(self._bootstrap, self._config) as self._client:
            yield self

    # -- the cluster ------------------------------------------------------------------------------

    async def describe_cluster(self) -> ClusterDescription:
        await self.client.refresh()
        view = self.client.view
        nodes = [view.nodes[ident] for ident in sorted(view.nodes)]
        return ClusterDescription(view.cluster_id, view.controller, nodes)

    async def list_topics(self, *, internal: bool = False) -> dict[str, TopicDescription]:
        """All topics, by name; with `internal` also the cluster's own."""
        return {
            name: one
            for name, one in (await self._describe(None)).items()
            if internal or not one.internal
        }

    async def describe_topic(self, name: str) -> TopicDescription:
        """A topic and its partitions.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION if there is none.
        """
        return (await self._describe([name]))[name]

    async def _describe(self, names: list[str] | None) -> dict[str, TopicDescription]:
        async def once() -> dict[str, TopicDescription]:
            wanted = None if names is None else [MetadataRequestTopic(name=one) for one in names]
            request = MetadataRequest(wanted, allow_auto_topic_creation=False)
            answer = await self.client.metadata(request)
            self.client.view.take(answer, names)
            for one in answer.topics:
                if one.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                    raise refusal(f"topic '{one.name}' cannot be described", one.error_code)
            found = [one.name for one in answer.topics if one.name is not None]
            return {name: _described(self.client.view.topics[name]) for name in found}

        return await self._until_done("describing topics", once, _NOT_THERE)

    # -- topics -----------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication: int = -1,
        settings: Mapping[str, str] | None = None,
        dry_run: bool = False,
    ) -> None:
        """Create a topic, and wait until each of its partitions has a leader.

        -1 takes the cluster's default. With `dry_run` the broker checks the request and does
        nothing.

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS, or why it cannot be created.
        """
        rows = [topics.CreatableTopicConfig(*one) for one in (settings or {}).items()]
        topic = topics.CreatableTopic(name, partitions, replication, configs=rows)
        request = topics.CreateTopicsRequest([topic], self._patience_ms, dry_run)

        async def once() -> None:
            answer = await self._ask_controller(request, topics.CreateTopicsResponse)
            one = answer.topics[0]
            _check(f"topic '{name}' was not created", one.error_code, one.error_message)

        await self._once_only(f"creating topic '{name}'", once, ErrorCode.TOPIC_ALREADY_EXISTS)
        if not dry_run:
            await self._wait_for_leaders(name, partitions)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records, and wait until no node reports it any more.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION if there is none.
        """
        by_name = topics.DeleteTopicState(name, UUID_ZERO)
        request = topics.DeleteTopicsRequest([name], [by_name], self._patience_ms)

        async def once() -> None:
            answer = await self._ask_controller(request, topics.DeleteTopicsResponse)
            one = answer.responses[0]
            _check(f"topic '{name}' was not deleted", one.error_code, one.error_message)

        what = f"deleting topic '{name}'"
        await self._once_only(what, once, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._wait_until_gone(name)

    async def set_partitions(self, name: str, total: int, *, dry_run: bool = False) -> None:
        """Grow a topic to `total` partitions, which must be more than it has.

        Keys may then belong to other partitions than before.
        """
        row = topics.CreatePartitionsTopic(name, total)
        request = topics.CreatePartitionsRequest([row], self._patience_ms, dry_run)

        async def once() -> None:
            answer = await self._ask_controller(request, topics.CreatePartitionsResponse)
            one = answer.results[0]
            _check(f"topic '{name}' was not changed", one.error_code, one.error_message)

        await self._until_done(f"changing topic '{name}'", once, _NOT_THERE)
        if not dry_run:
            await self._wait_for_leaders(name, total)

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Delete the records before these offsets (UP_TO_NOW: all); returns the new first
        offsets."""
        left = dict(before)
        done: dict[TopicPartition, int] = {}

        async def once() -> None:
            for place in sorted(left.keys() - done.keys()):
                leader = await self.client.leader(place)
                row = logs.DeleteRecordsPartition(place.partition, left[place])
                request = logs.DeleteRecordsRequest(
                    [logs.DeleteRecordsTopic(place.topic, [row])], self._patience_ms
                )
                answer = await self.client.ask(leader, request, logs.DeleteRecordsResponse)
                one = answer.topics[0].partitions[0]
                _check(f"records of {place} were not deleted", one.error_code)
                done[place] = one.low_watermark

        await self._until_done("deleting records", once, _NOT_THERE)
        return done

    async def list_offsets(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset]:
        """The first offset not before each time in ms, or at `lookups.BEGINNING` or
        `lookups.END`."""
        return await lookups.list_offsets(self.client, wanted)

    # -- settings ---------------------------------------------------------------------------------

    async def topic_settings(self, name: str) -> dict[str, Setting]:
        return await self._settings(TOPIC_RESOURCE, name, await self.client.controller())

    async def node_settings(self, node: int) -> dict[str, Setting]:
        await self.client.controller()  # so that the nodes' addresses are known
        return await self._settings(NODE_RESOURCE, str(node), node)

    async def _settings(self, kind: int, name: str, node: int) -> dict[str, Setting]:
        resource = configs.DescribeConfigsResource(kind, name)
        request = configs.DescribeConfigsRequest([resource])

        async def once() -> dict[str, Setting]:
            answer = await self.client.ask(node, request, configs.DescribeConfigsResponse)
            result = answer.results[0]
            what = f"the settings of '{name}' were not reported"
            _check(what, result.error_code, result.error_message)
            return {
                one.name: Setting(
                    one.name,
                    one.value,
                    one.config_source == DEFAULT_SOURCE,
                    one.read_only,
                    one.is_sensitive,
                )
                for one in result.configs
            }

        return await self._until_done(f"describing '{name}'", once, _NOT_THERE)

    async def alter_topic_settings(
        self,
        name: str,
        change: Mapping[str, str] | None = None,
        *,
        reset: Collection[str] = (),
        dry_run: bool = False,
    ) -> None:
        """Change some settings of a topic, and reset others to their defaults."""
        rows = _alterations(change, reset)
        resource = configs.IncrementalAlterConfigsResource(TOPIC_RESOURCE, name, rows)
        request = configs.IncrementalAlterConfigsRequest([resource], dry_run)

        async def once() -> None:
            answer = await self._ask_controller(request, configs.IncrementalAlterConfigsResponse)
            one = answer.responses[0]
            _check(f"topic '{name}' was not changed", one.error_code, one.error_message)

        await self._until_done(f"changing topic '{name}'", once, _NOT_THERE)

    async def alter_node_settings(
        self,
        node: int,
        change: Mapping[str, str] | None = None,
        *,
        reset: Collection[str] = (),
        dry_run: bool = False,
    ) -> None:
        """Change settings of one node while it runs, and take others back to what they were at its
        start. With Evenkeel's nodes a restart forgets the changes."""
        await self.client.controller()  # so that the nodes' addresses are known
        rows = _alterations(change, reset)
        resource = configs.IncrementalAlterConfigsResource(NODE_RESOURCE, str(node), rows)
        request = configs.IncrementalAlterConfigsRequest([resource], dry_run)

        async def once() -> None:
            answer = await self.client.ask(node, request, configs.IncrementalAlterConfigsResponse)
            one = answer.responses[0]
            _check(f"node {node} was not changed", one.error_code, one.error_message)

        await self._until_done(f"changing node {node}", once)

    # -- placement --------------------------------------------------------------------------------

    async def elect_leaders(
        self, places: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Make the preferred leaders of these partitions (None: of all) lead; here by steals.

        Returns:
            The outcome for each: None if it leads now, ELECTION_NOT_NEEDED if it did already.
        """
        wanted = None
        if places is not None:
            wanted = [placement.ElectTopicPartitions(*one) for one in topic_map(places).items()]
        request = placement.ElectLeadersRequest(PREFERRED, wanted, self._patience_ms)

        async def once() -> dict[TopicPartition, BrokerError | None]:
            answer = await self._ask_controller(request, placement.ElectLeadersResponse)
            _check("no leaders were elected", answer.error_code)
            return {
                TopicPartition(topic.topic, one.partition_id): _outcome(
                    f"{topic.topic}/{one.partition_id} keeps its leader",
                    one.error_code,
                    one.error_message,
                )
                for topic in answer.replica_election_results
                for one in topic.partition_result
            }

        return await self._until_done("electing leaders", once)

    async def reassign(self, wanted: Mapping[TopicPartition, Collection[int] | None]) -> None:
        """Move partitions to these nodes; None cancels a reassignment.

        Raises:
            BrokerError: for the first that is refused. The others may have been accepted.
        """
        by_topic: dict[str, list[placement.ReassignablePartition]] = {}
        for place, nodes in sorted(wanted.items()):
            row = placement.ReassignablePartition(
                place.partition, None if nodes is None else list(nodes)
            )
            by_topic.setdefault(place.topic, []).append(row)
        request = placement.AlterPartitionReassignmentsRequest(
            timeout_ms=self._patience_ms,
            topics=[placement.ReassignableTopic(*one) for one in by_topic.items()],
        )

        async def once() -> None:
            kind = placement.AlterPartitionReassignmentsResponse
            answer = await self._ask_controller(request, kind)
            _check("nothing was reassigned", answer.error_code, answer.error_message)
            for topic in answer.responses:
                for one in topic.partitions:
                    what = f"{topic.name}/{one.partition_index} was not reassigned"
                    _check(what, one.error_code, one.error_message)

        await self._until_done("reassigning partitions", once, _NOT_THERE)

    async def reassignments(self) -> list[Reassignment]:
        """The reassignments in progress."""

        async def once() -> list[Reassignment]:
            kind = placement.ListPartitionReassignmentsResponse
            request = placement.ListPartitionReassignmentsRequest(self._patience_ms, None)
            answer = await self._ask_controller(request, kind)
            _check("reassignments were not reported", answer.error_code, answer.error_message)
            return [
                Reassignment(
                    TopicPartition(topic.name, one.partition_index),
                    one.replicas,
                    one.adding_replicas,
                    one.removing_replicas,
                )
                for topic in answer.topics
                for one in topic.partitions
            ]

        return await self._until_done("listing reassignments", once)

    # -- asking -----------------------------------------------------------------------------------

    @property
    def _patience_ms(self) -> int:
        """How long a broker may take: it must answer before we give its connection up."""
        return max(1, self._config.request_timeout_ms * 3 // 4)

    async def _ask_controller(self, message: Request, kind: type[R]) -> R:
        return await self.client.ask(await self.client.controller(), message, kind)

    async def _until_done(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T]],
        final: Collection[ErrorCode] = (),
    ) -> T:
        """Retry transient failures; never those in `final`, whatever Kafka's table says."""

        async def once() -> T:
            try:
                return await attempt()
            except BrokerError as error:
                error.retriable = error.retriable and error.code not in final
                raise

        return await self.client.until_done(what, once)

    async def _once_only(
        self, what: str, attempt: Callable[[], Awaitable[None]], done: ErrorCode
    ) -> None:
        """For a change that cannot be made twice: after a lost answer, `done` means success."""
        doubtful = False

        async def once() -> None:
            nonlocal doubtful
            try:
                await attempt()
            except (DisconnectedError, TimedOutError):
                doubtful = True
                raise
            except BrokerError as error:
                if error.code is not done or not doubtful:
                    doubtful = doubtful or error.code is ErrorCode.REQUEST_TIMED_OUT
                    raise

        await self._until_done(what, once, (done,))

    async def _wait_until_gone(self, name: str) -> None:
        what = f"topic '{name}' is being deleted, but still reported"

        async def once() -> None:
            try:
                await self._describe([name])
            except BrokerError as error:
                if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    return
                raise
            await trio.sleep(LOOK_EVERY_S)
            raise refusal(what, ErrorCode.LEADER_NOT_AVAILABLE)

        await self.client.until_done(what, once)

    async def _wait_for_leaders(self, name: str, partitions: int) -> None:
        async def once() -> None:
            described = (await self._describe([name]))[name]
            missing = len(described.partitions) < max(1, partitions)
            if missing or any(one.leader < 0 for one in described.partitions):
                raise refusal(f"topic '{name}' has no leader yet", ErrorCode.LEADER_NOT_AVAILABLE)

        what = f"topic '{name}' exists, but has no leader yet"
        await self.client.until_done(what, partial(_patient, once))


async def _patient(once: Callable[[], Awaitable[None]]) -> None:
    """Retry if the topic is unknown: the node that answers may not know a new topic yet."""
    try:
        await once()
    except BrokerError as error:
        error.retriable = error.retriable or error.code in _NOT_THERE
        await trio.sleep(LOOK_EVERY_S)
        raise


_NOT_THERE: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)


def _check(what: str, code: int, message: str | None = None) -> None:
    if code != ErrorCode.NONE:
        raise refusal(what, code, message)


def _alterations(
    change: Mapping[str, str] | None, reset: Collection[str]
) -> list[configs.IncrementalAlterableConfig]:
    rows = [
        configs.IncrementalAlterableConfig(key, SET, value) for key, value in (change or {}).items()
    ]
    return rows + [configs.IncrementalAlterableConfig(key, DELETE, None) for key in reset]


def _outcome(what: str, code: int, message: str | None) -> BrokerError | None:
    return None if code == ErrorCode.NONE else refusal(what, code, message)


def _described(view: TopicView) -> TopicDescription:
    return TopicDescription(
        view.name,
        view.topic_id.hex(),
        view.internal,
        [
            PartitionDescription(number, one.leader, one.epoch, one.replicas, one.in_sync)
            for number, one in sorted(view.partitions.items())
        ],
    )
