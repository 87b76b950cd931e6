"""Limits and defaults of the broker; filled in by node.py from the configuration."""

import attrs

from paxos.ids import MS
from wire.records.batch import DECOMPRESSED_BYTES_MAX


@attrs.frozen(kw_only=True)
class BrokerConfig:
    cluster_id: str
    groups_count: int
    """Paxos groups that carry data, numbered from 1; the registry's, group 0, comes on top."""
    listeners: str = ""
    """Where clients connect, as in Kafka's `listeners`; only DescribeConfigs tells it."""
    replication: int = 3
    auto_create_topics: bool = False
    default_partitions: int = 1
    batch_bytes_max: int = 16 * 1024 * 1024
    fetch_bytes_max: int = 50 * 1024 * 1024
    fetch_wait_ms_max: int = 30_000
    read_ahead_from_bytes: int = 256 * 1024
    """A client that got this much from the disk in one request will probably ask for more soon."""
    parked_fetches_max: int = 10_000
    parked_bytes_max: int = 128 * 1024 * 1024
    decoded_bytes_max: int = 256 * 1024 * 1024
    portions_bytes_max: int = 128 * 1024 * 1024
    unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
    """See broker.requests.request_memory."""
    consumer_group_rebalance_delay_ms: int = 100
    no_coordinator_wait_ms: int = 1_000
    retention_ms: int = -1
    retention_bytes: int = -1
    """For topics that do not set it; -1: no limit."""
    retention_check_ms: int = 10_000
    """How often the partitions of the groups this node is master of are checked."""


@attrs.frozen(kw_only=True)
class IntakeConfig:
    entry_bytes_max: int = 1024 * 1024
    """Soft: an entry takes commands until it holds this much; one larger command travels alone."""
    backlog_bytes_max: int = 4 * 1024 * 1024
    """While a Paxos group has more than this waiting, connections that produce to it are not read
    (`backlogged`): more would only lengthen everybody's queue (docs/exam.md, O1). What has arrived
    is still accepted: a refusal in the middle of a pipeline lets later requests overtake."""
    queue_bytes_max: int = 32 * 1024 * 1024
    """The most that other nodes may queue here for a group on its way; no backlog exceeds it."""
    refuse_bytes_max: int = 128 * 1024 * 1024
    """Beyond this all senders are refused: the last resort against clients that send and leave."""
    undecided_bytes_max: int = 4 * 1024 * 1024
    """Bytes proposed and not yet applied. Beyond it commands wait here, where they can still be
    batched and forwarded, instead of in the links and the log (one entry is always allowed)."""
    batch_wait_ns: int = 0
    batch_bytes_min: int = 64 * 1024
    """While entries are under way, commands wait this long for company, or until they add up to
    this many bytes (E2); a lone command never waits. Without a wait the commands of a round still
    share entries, and rounds grow with the load: there, waiting was measured to save nothing."""
    group_commit_ns: int = 1 * MS
    """For `broker.proposals.group_commit`: how long clients that were answered have to ask
    again."""
    forward_grace_ns: int = 1_000 * MS
    """How long the old master keeps forwarding after a steal (docs/kafka.md)."""
    forward_unaware_ns: int = 600_000 * MS
    """The same for clients that have not been told of it: longer than they wait before they ask for
    metadata unprompted, which is five minutes by default in all known ones (ADR 50)."""
    adopt_wait_ns: int = 1_000 * MS
    """How long forwarded commands wait for a group that is being handed to this node."""

    @property
    def backlog_bytes(self) -> int:
        return min(self.backlog_bytes_max, self.queue_bytes_max)
