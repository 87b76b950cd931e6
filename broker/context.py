"""What all request handlers of a node share: its Broker."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from broker.admissions import Admissions
from broker.burdens import Burdens
from broker.config import BrokerConfig
from broker.gaps import Gaps
from broker.holds import Holds
from broker.late_reads import LateReads
from broker.leaders import Leaders
from broker.metadata_cache import MetadataCache
from broker.portions import Portions
from broker.ports import AppliedLog, Aside, Groups, LogDir, Timers, Worker
from broker.producer_ids import ProducerIds
from broker.produces import Produces
from broker.progress import Progress
from broker.retention import Retainer
from broker.searches import Searches
from broker.traffic import Traffic

if TYPE_CHECKING:
    from balancer.registry import Registry
    from broker.consumer_groups import ConsumerGroups
    from broker.machine import GroupMachine
    from broker.parked import ParkedFetches
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
    aside: Aside
    fetcher: Worker
    """A thread that reads for fetches what is not in memory."""
    registry: "Registry"
    machines: "dict[GroupId, GroupMachine]"
    tail: "Tail"
    parked: "ParkedFetches"
    consumer_groups: "ConsumerGroups"
    statistics: "BrokerStatistics"
    new_topic_id: Callable[[], bytes]
    """16 bytes of chance, never zero and never the same again: a topic's id (KIP-516)."""
    log_dir: LogDir
    on_bug: Callable[[str, Exception], None]
    """Told of an exception no handler should have let out, to log it with its traceback."""
    sends_away: Callable[[], bool] = lambda: False
    """Whether this node is cut off from its peers, and clients should ask others."""
    clients_are: Callable[[], str] = lambda: "served"
    """The same with what becomes of them, in a word."""
    gaps: Gaps = attrs.field(init=False, factory=Gaps)
    holds: Holds = attrs.field(init=False)
    leaders: Leaders = attrs.field(init=False)
    metadata_cache: MetadataCache = attrs.field(init=False, factory=MetadataCache)
    producer_ids: ProducerIds = attrs.field(init=False)
    traffic: Traffic = attrs.field(init=False, factory=Traffic)
    portions: Portions = attrs.field(init=False)
    burdens: Burdens = attrs.field(init=False)
    produces: Produces = attrs.field(init=False)
    progress: Progress = attrs.field(init=False)
    retainer: Retainer = attrs.field(init=False)
    admissions: Admissions = attrs.field(init=False)
    searches: Searches = attrs.field(init=False)
    late_reads: LateReads = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.holds = Holds(self.groups, self.timers)
        self.portions = Portions(self.config.portions_bytes_max)
        self.burdens = Burdens(self.config.decoded_bytes_max)
        self.leaders = Leaders(self.groups)
        self.producer_ids = ProducerIds(self.me, self.groups, self.timers)
        self.produces = Produces(self.groups, self.timers)
        self.progress = Progress(self.groups, self.timers, self._wake_fetches)
        unpacked = self.config.unpacked_bytes_max
        self.late_reads = LateReads(self.fetcher)
        self.searches = Searches(self.aside, self.groups, self.timers, unpacked)
        self.retainer = Retainer(
            self.groups, self.registry, self.machines, self.config, self.statistics
        )
        self.admissions = Admissions(self.groups, self.machines, self.gaps)

    def _wake_fetches(self, group: "GroupId") -> None:
        self.parked.appended(list(self.machines[group].partitions))
