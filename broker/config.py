"""Limits and defaults of the broker; filled in by node.py from the configuration."""

import attrs

from wire.batch import DECOMPRESSED_BYTES_MAX


@attrs.frozen(kw_only=True)
class BrokerConfig:
    cluster_id: str
    groups_count: int
    """Data groups, numbered from 1; the registry group 0 comes on top."""
    replication: int = 3
    auto_create_topics: bool = False
    default_partitions: int = 1
    batch_bytes_max: int = 16 * 1024 * 1024
    fetch_bytes_max: int = 50 * 1024 * 1024
    fetch_wait_ms_max: int = 30_000
    read_ahead_from_bytes: int = 256 * 1024
    """Who was given so much from the disk for one request will soon ask for more of it."""
    parked_fetches_max: int = 10_000
    parked_bytes_max: int = 128 * 1024 * 1024
    decoded_bytes_max: int = 256 * 1024 * 1024
    portions_bytes_max: int = 128 * 1024 * 1024
    unpacked_bytes_max: int = DECOMPRESSED_BYTES_MAX
    """See broker.burdens."""
    consumer_group_rebalance_delay_ms: int = 100
    no_coordinator_wait_ms: int = 1_000
    retention_ms: int = -1
    retention_bytes: int = -1
    """Of topics that do not say; -1: no limit."""
    retention_check_ms: int = 10_000
    """How often the partitions of this node's groups are looked at."""
