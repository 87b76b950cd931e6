"""What all request handlers of a node share: its Broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from broker.config import BrokerConfig
from broker.delayed.delayed_operations import DelayedOperations
from broker.delayed.delayed_produces import DelayedProduces
from broker.groups.progress_requests import ProgressRequests
from broker.lifecycle.retention import RetentionEnforcer
from broker.ports import (
    AppliedLog,
    BackgroundWorker,
    Groups,
    LiveSettings,
    LogDir,
    Timers,
    Worker,
)
from broker.producers.producer_ids import ProducerIds
from broker.producers.sequence_gaps import SequenceGaps
from broker.producers.unknown_producers import UnknownProducers
from broker.reads.disk_reads import DiskReads
from broker.reads.search_queue import SearchQueue
from broker.requests.leaders import Leaders
from broker.requests.metadata_cache import MetadataCache
from broker.requests.portions import Portions
from broker.requests.request_memory import RequestMemory
from broker.security.authentication import Authentication
from broker.security.authorizer import Authorizer
from broker.security.quotas import ClientQuotas
from broker.traffic import Traffic

if TYPE_CHECKING:
    from balancer.registry.registry import Registry
    from broker.delayed.delayed_fetches import DelayedFetches
    from broker.groups.consumer_groups import ConsumerGroups
    from broker.state_machine.machine import GroupMachine
    from broker.statistics import BrokerStatistics
    from broker.tail import Tail
    from paxos.ids import GroupId, NodeId


@attrs.define(kw_only=True, eq=False)
class Broker:
    """Everything the handlers of one node share."""

    me: "NodeId"
    config: BrokerConfig
    groups: Groups
    log: AppliedLog
    timers: Timers
    background: BackgroundWorker
    fetcher: Worker
    """A thread that reads data for fetches that is not in memory."""
    registry: "Registry"
    machines: "dict[GroupId, GroupMachine]"
    tail: "Tail"
    delayed_fetches: "DelayedFetches"
    consumer_groups: "ConsumerGroups"
    statistics: "BrokerStatistics"
    new_topic_id: Callable[[], bytes]
    """Returns 16 random bytes, never zero and never the same again: a topic's id (KIP-516)."""
    log_dir: LogDir
    on_bug: Callable[[str, Exception], None]
    """Called with an exception that a handler should not have let out; logs it with its
    traceback."""
    redirects_clients: Callable[[], bool] = lambda: False
    """Whether this node is cut off from its peers, and clients should ask others."""
    client_service: Callable[[], str] = lambda: "served"
    """The same, together with what happens to clients, in a word."""
    live: LiveSettings | None = None
    """What can be changed while the node runs; None: nothing."""
    authentication: Authentication | None = None
    """How clients of SASL listeners prove who they are; None: nobody can."""
    authorizer: Authorizer | None = None
    """Decides what clients may do; None: everybody may do everything."""
    sequence_gaps: SequenceGaps = attrs.field(init=False, factory=SequenceGaps)
    delayed_operations: DelayedOperations = attrs.field(init=False)
    leaders: Leaders = attrs.field(init=False)
    metadata_cache: MetadataCache = attrs.field(init=False, factory=MetadataCache)
    producer_ids: ProducerIds = attrs.field(init=False)
    traffic: Traffic = attrs.field(init=False, factory=Traffic)
    portions: Portions = attrs.field(init=False)
    request_memory: RequestMemory = attrs.field(init=False)
    delayed_produces: DelayedProduces = attrs.field(init=False)
    progress_requests: ProgressRequests = attrs.field(init=False)
    retention: RetentionEnforcer = attrs.field(init=False)
    unknown_producers: UnknownProducers = attrs.field(init=False)
    search_queue: SearchQueue = attrs.field(init=False)
    disk_reads: DiskReads = attrs.field(init=False)
    quotas: ClientQuotas = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.delayed_operations = DelayedOperations(self.groups, self.timers)
        self.portions = Portions(self.config.portions_bytes_max)
        self.request_memory = RequestMemory(self.config.decoded_bytes_max)
        self.leaders = Leaders(self.groups)
        self.producer_ids = ProducerIds(self.me, self.groups, self.timers)
        self.delayed_produces = DelayedProduces(self.groups, self.timers)
        self.progress_requests = ProgressRequests(self.groups, self.timers, self._wake_fetches)
        unpacked = self.config.unpacked_bytes_max
        self.disk_reads = DiskReads(self.fetcher)
        self.search_queue = SearchQueue(self.background, self.groups, self.timers, unpacked)
        self.retention = RetentionEnforcer(
            self.groups, self.registry, self.machines, self.config, self.statistics
        )
        self.quotas = ClientQuotas(
            lambda: self.registry.security.quotas, lambda: self.groups.now().boot_ns
        )
        self.unknown_producers = UnknownProducers(self.groups, self.machines, self.sequence_gaps)

    def _wake_fetches(self, group: "GroupId") -> None:
        self.delayed_fetches.appended(list(self.machines[group].partitions))
