"""The sections of a node's configuration: every setting, its range, its default, its meaning.

`runtime.config.config` reads a configuration, and checks the relations between sections.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import attrs

from balancer.registry.records import REPLICAS_MAX, TOPIC_PARTITIONS_MAX
from paxos.entry import CONFIG_MEMBERS_MAX, ENTRY_BYTES_MAX
from paxos.ids import NodeId
from paxos.timing import WINDOW_MAX, Strategy
from runtime.config.fields import (
    Address,
    address_field,
    bool_field,
    choice_field,
    in_range,
    int_field,
    name_check,
    parse_int,
    parse_node_list,
    parse_optional_address,
    parse_path,
    parse_text,
    refuse,
)
from runtime.config.security import SecuritySection

KIB: Final = 1024
MIB: Final = 1024 * KIB
NODE_ID_MAX: Final = 2**31 - 1
"""Kafka's node ids are int32."""
ENTRY_OVERHEAD_BYTES: Final = 64 * KIB
"""What an entry, a log record or a peer frame may contain besides the one request in it."""
DAY_MS: Final = 24 * 3600 * 1000


@attrs.frozen(kw_only=True)
class NodeSection:
    SECTION: ClassVar = "node"
    id: NodeId = attrs.field(
        validator=in_range(1, NODE_ID_MAX),
        metadata={"doc": "this node's number in [peers], for ever", "parse": parse_int},
    )
    cluster_id: str = attrs.field(
        validator=name_check(1),
        metadata={"doc": "nodes of another cluster are refused", "parse": parse_text},
    )
    data_dir: Path = attrs.field(
        validator=attrs.validators.instance_of(Path),
        metadata={"doc": "this node's data directory; no other may use it", "parse": parse_path},
    )
    zone: str = attrs.field(
        default="",
        validator=name_check(0),
        metadata={"doc": "machine, rack or availability zone", "parse": parse_text},
    )
    processes: int = int_field(
        1, 1, CONFIG_MEMBERS_MAX, "node processes that share this machine's memory limit"
    )
    raise_cluster_version: str = choice_field(
        "automatic",
        ("automatic", "by-hand"),
        "when all nodes can read the next one, or only by hand",
    )
    raise_after_s: int = int_field(
        600, 0, 30 * 24 * 3600, "how long all nodes must have been able to read it before"
    )


@attrs.frozen(kw_only=True)
class ListenSection:
    SECTION: ClassVar = "listen"
    kafka: Address = address_field("127.0.0.1:9092", "where Kafka clients connect")  # noqa: RUF009 (frozen)
    peer: Address = address_field("127.0.0.1:7092", "where the other nodes connect")  # noqa: RUF009 (frozen)
    http: Address = address_field("127.0.0.1:8092", "metrics, status and administration")  # noqa: RUF009 (frozen)
    advertised_kafka: Address | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.instance_of(Address)),
        metadata={
            "doc": "the address that clients get, if it is not listen.kafka",
            "parse": parse_optional_address,
        },
    )
    http_origin: str = attrs.field(
        default="",
        validator=attrs.validators.instance_of(str),
        metadata={
            "doc": "where browsers reach a proxy in front of listen.http: https://bus.example.com",
            "parse": parse_text,
        },
    )

    def __attrs_post_init__(self) -> None:
        seen: dict[Address, str] = {}
        for key in ("kafka", "peer", "http"):
            address: Address = getattr(self, key)
            if address in seen:
                why = f"listen.{seen[address]} uses the same address; give each its own port"
                refuse(self, key, address, why)
            seen[address] = key
        origin = urlsplit(self.http_origin)
        if self.http_origin and (
            origin.scheme not in ("http", "https")
            or not origin.hostname
            or self.http_origin != f"{origin.scheme}://{origin.netloc}".lower()
        ):
            why = "expected a scheme and a host as browsers send them: https://bus.example.com"
            refuse(self, "http_origin", self.http_origin, why)
        if self.kafka.is_wildcard and self.advertised_kafka is None:
            why = (
                "clients cannot connect to this address; "
                "set listen.advertised_kafka to an address that clients can reach"
            )
            refuse(self, "kafka", self.kafka, why)
        if self.advertised_kafka is not None and self.advertised_kafka.is_wildcard:
            why = "clients cannot connect to it; set an address that clients can reach"
            refuse(self, "advertised_kafka", self.advertised_kafka, why)

    @property
    def told_to_clients(self) -> Address:
        return self.kafka if self.advertised_kafka is None else self.advertised_kafka


def _check_founders(section: Any, _field: object, founders: str) -> None:  # noqa: ANN401
    nodes = founders.split(",") if founders else []
    if len(set(nodes)) != len(nodes) or not all(
        node.isascii() and node.isdigit() and 1 <= int(node) <= NODE_ID_MAX for node in nodes
    ):
        refuse(section, "founders", founders, "expected node ids, each once, as in 1,2,3")
    if len(nodes) > CONFIG_MEMBERS_MAX:
        refuse(section, "founders", founders, f"at most {CONFIG_MEMBERS_MAX}")


@attrs.frozen(kw_only=True)
class GroupsSection:
    SECTION: ClassVar = "groups"
    count: int = int_field(
        12, 1, 1024, "Paxos groups for data; group 0, the registry, is additional"
    )
    replicas: int = int_field(
        3, 1, REPLICAS_MAX, "nodes that have each Paxos group, at first chosen from the founders"
    )
    founders: str = attrs.field(
        default="",
        validator=_check_founders,
        metadata={
            "doc": 'the nodes the cluster began with, for ever: "1,2,3"; if empty, all of [peers]',
            "parse": parse_node_list,
        },
    )


@attrs.frozen(kw_only=True)
class LeaseSection:
    """R12: the holder stops a margin before the expiry, others start a margin after it."""

    SECTION: ClassVar = "lease"
    duration_ms: int = int_field(
        3000, 100, DAY_MS, "how long a master stays master without renewing"
    )
    renew_every_ms: int = int_field(1000, 10, DAY_MS, "how often a master renews")
    clock_margin_ms: int = int_field(
        200, 1, 60_000, "how far a node's clock may be off the true time, at most"
    )

    def __attrs_post_init__(self) -> None:
        needed = 2 * self.renew_every_ms + 2 * self.clock_margin_ms
        if self.duration_ms <= needed:
            why = (
                "a lease must outlive one lost renewal and both clock margins "
                f"(2 * renew_every_ms + 2 * clock_margin_ms = {needed} ms); "
                f"raise lease.duration_ms above {needed} or lower lease.renew_every_ms"
            )
            refuse(self, "duration_ms", self.duration_ms, why)
        if self.renew_every_ms <= 2 * self.clock_margin_ms:
            why = (
                "the time between two renewals must exceed the difference between two clocks "
                f"(2 * clock_margin_ms = {2 * self.clock_margin_ms} ms), or a renewal may shorten "
                f"the lease (R15); raise lease.renew_every_ms above {2 * self.clock_margin_ms}"
            )
            refuse(self, "renew_every_ms", self.renew_every_ms, why)


@attrs.frozen(kw_only=True)
class PaxosSection:
    SECTION: ClassVar = "paxos"
    window: int = int_field(
        8, 1, WINDOW_MAX - 1, "slots a master may have in flight at once in one Paxos group"
    )
    entry_bytes_max: int = int_field(
        1 * MIB, 1 * KIB, ENTRY_BYTES_MAX, "batching stops here; a larger request is proposed alone"
    )
    batch_wait_ms: int = int_field(
        0, 0, 1000, "how long commands may wait for others while entries are in flight"
    )
    batch_bytes_min: int = int_field(
        64 * KIB, 1, ENTRY_BYTES_MAX, "this many bytes of waiting commands are proposed at once"
    )
    gather_ms: int = int_field(
        1, 0, 3, "group commit: how long answered clients have to ask again, at least; 0: off"
    )
    retransmit_ms: int = int_field(400, 5, 60_000, "when an unanswered message is sent again")
    drain_ms: int = int_field(200, 1, 60_000, "how long a steal may wait for an empty window")
    steal_settle_ms: int = int_field(
        500, 10, 60_000, "after this a Steal with an unknown outcome is closed"
    )
    election_backoff_ms_min: int = int_field(
        20, 1, 60_000, "shortest wait before trying an election"
    )
    election_backoff_ms_max: int = int_field(
        200, 1, 60_000, "longest wait before trying an election"
    )

    def __attrs_post_init__(self) -> None:
        if self.election_backoff_ms_min >= self.election_backoff_ms_max:
            why = (
                "the wait is drawn between min and max so that two candidates do not collide for "
                "ever; raise paxos.election_backoff_ms_max above "
                f"{self.election_backoff_ms_min} (paxos.election_backoff_ms_min)"
            )
            refuse(self, "election_backoff_ms_max", self.election_backoff_ms_max, why)
        if self.steal_settle_ms <= self.retransmit_ms:
            why = (
                "a Steal must be sent again at least once before it is given up; raise it above "
                f"paxos.retransmit_ms = {self.retransmit_ms}"
            )
            refuse(self, "steal_settle_ms", self.steal_settle_ms, why)


@attrs.frozen(kw_only=True)
class StorageSection:
    SECTION: ClassVar = "storage"
    durability: str = choice_field(
        "fsync",
        ("fsync", "unsafe-none"),
        "unsafe-none acknowledges data that a power cut or a kernel crash may lose",
    )
    segment_bytes: int = int_field(
        64 * MIB, 1 * MIB, 1024 * MIB, "size of one write-ahead log file"
    )
    low_water_bytes: int = int_field(
        64 * MIB, 0, 1 << 50, "with less free space, clients' writes get a retriable error"
    )
    reserve_bytes: int = int_field(
        32 * MIB, 0, 1 << 40, "reserved in a file, for elections while the disk is full"
    )
    scrub_bytes_per_s: int = int_field(
        8 * MIB, 0, 1 << 40, "how fast cold data is read again to find damage; 0: never"
    )
    scrub_every_s: int = int_field(
        3600, 1, 365 * 24 * 3600, "a new pass over all data begins this long after the last one"
    )
    checkpoint_bytes: int = int_field(
        256 * MIB,
        64 * KIB,
        1 << 40,
        "logged between two checkpoints of a Paxos group; a start reads that much",
    )
    checkpoint_records: int = int_field(
        200_000, 100, 1 << 40, "the same in records of the log; the first limit reached counts"
    )
    log_bytes: int = int_field(
        512 * MIB,
        2 * MIB,
        1 << 50,
        "log kept for peers that were away; older data is tiered",
    )
    settle_bytes_per_s: int = int_field(
        64 * MIB,
        0,
        1 << 40,
        "how fast data is tiered: slower if it can wait, faster if needed; 0: no limit",
    )
    compact_check_ms: int = int_field(
        15_000,
        10,
        DAY_MS,
        "how often compacted topics are checked; compaction is as fast as tiering",
    )
    data_bytes_max: int = int_field(
        0, 0, 1 << 50, "the most disk space for this node's directory; 0: all of the disk"
    )

    def __attrs_post_init__(self) -> None:
        needed = self.log_bytes + 2 * self.segment_bytes
        needed += 2 * self.low_water_bytes + self.reserve_bytes
        if 0 < self.data_bytes_max < needed:
            why = (
                "the log window, two segments, the reserve and twice the low-water mark need "
                f"{needed} bytes; raise it above that, or lower storage.log_bytes"
            )
            refuse(self, "data_bytes_max", self.data_bytes_max, why)

    retention_check_ms: int = int_field(
        10_000, 10, DAY_MS, "how often masters look for records that retention removes"
    )


@attrs.frozen(kw_only=True)
class BalancerSection:
    SECTION: ClassVar = "balancer"
    enabled: bool = bool_field(True, "whether this node steals masters that belong to it")
    interval_ms: int = int_field(200, 10, DAY_MS, "how often the placement is checked")
    pause_between_steals_ms: int = int_field(
        100, 0, DAY_MS, "pause between two steals in the cluster"
    )
    steal_deadline_ms: int = int_field(2000, 50, DAY_MS, "a steal that takes longer is abandoned")
    token_ms: int = int_field(5000, 100, DAY_MS, "how long the right to steal is lent to a node")
    hold_down_ms: int = int_field(
        3000, 0, DAY_MS, "a node that has just started is not a target for this long"
    )
    mute_ms: int = int_field(
        5000, 0, DAY_MS, "a Paxos group whose steal failed is left alone for this long"
    )
    dead_after_ms: int = int_field(15_000, 100, DAY_MS, "a node away for longer loses its masters")
    replace_after_s: int = int_field(
        600, 1, 365 * 24 * 3600, "if a node is gone for longer, its data is copied to others"
    )
    replica_moves_max: int = int_field(4, 1, 64, "how many Paxos groups change members at once")
    load_interval_ms: int = int_field(5000, 0, DAY_MS, "time between two load reports; 0: none")
    uneven_for_ms: int = int_field(
        20_000, 0, DAY_MS, "by weight: how long a node is above its share before a plan is made"
    )
    uneven_pause_ms: int = int_field(
        60_000, 0, DAY_MS, "by weight: time between two plans that are only made for evenness"
    )
    forward_grace_ms: int = int_field(1000, 0, DAY_MS, "how long an old master still forwards")
    forward_unaware_ms: int = int_field(
        600_000, 0, DAY_MS, "the same for clients that learn of moves from metadata only; 0: not"
    )
    progress_wait_ms: int = int_field(
        50, 0, 10_000, "how long a steal waits for consumers' reports"
    )
    strategy: str = choice_field(
        Strategy.DELEGATE.value,
        tuple(one.value for one in Strategy),
        "how this node hands a master over: handoff.md; all but the default are for comparison",
    )

    def __attrs_post_init__(self) -> None:
        if self.token_ms <= self.steal_deadline_ms:
            why = (
                "the right to steal must outlive the steal, or two may overlap; raise it above "
                f"balancer.steal_deadline_ms = {self.steal_deadline_ms}"
            )
            refuse(self, "token_ms", self.token_ms, why)
        if self.replace_after_s * 1_000 < self.dead_after_ms:
            why = f"a node loses its masters first: balancer.dead_after_ms = {self.dead_after_ms}"
            refuse(self, "replace_after_s", self.replace_after_s, why)


@attrs.frozen(kw_only=True)
class CatchupSection:
    SECTION: ClassVar = "catchup"
    bytes_per_s: int = int_field(
        100_000_000, 0, 1 << 40, "bandwidth of the disk and of the link to a peer; 0: no limit"
    )
    share_percent: int = int_field(
        30, 1, 100, "the share of it that a returning node, or one that helps it, may use"
    )


@attrs.frozen(kw_only=True)
class BrokerSection:
    SECTION: ClassVar = "broker"
    auto_create_topics: bool = bool_field(False, "create a topic when a client asks for it by name")
    default_partitions: int = int_field(
        12, 1, TOPIC_PARTITIONS_MAX, "partitions of a topic that is created without a number"
    )
    default_replication: int = int_field(
        3,
        1,
        CONFIG_MEMBERS_MAX,
        "copies of a topic's data in a cluster created before groups.replicas existed",
    )
    retention_ms: int = int_field(
        7 * DAY_MS,
        -1,
        1 << 62,
        "how long records are kept if the topic has no setting; -1: for ever",
    )
    retention_bytes: int = int_field(
        -1, -1, 1 << 62, "how much of a partition is kept if the topic has no setting; -1: all"
    )
    group_initial_rebalance_delay_ms: int = int_field(
        100, 0, 60_000, "a new consumer group waits this long for more members"
    )
    group_session_timeout_ms_min: int = int_field(1000, 1, DAY_MS, "shorter ones are refused")
    group_session_timeout_ms_max: int = int_field(1_800_000, 1, DAY_MS, "longer ones are refused")

    def __attrs_post_init__(self) -> None:
        low, high = self.group_session_timeout_ms_min, self.group_session_timeout_ms_max
        if low > high:
            why = f"no session timeout would be valid; raise it to {low} or more"
            refuse(self, "group_session_timeout_ms_max", high, why)


@attrs.frozen(kw_only=True)
class LimitsSection:
    SECTION: ClassVar = "limits"
    connections_max: int = int_field(1000, 1, 1_000_000, "client connections to this node")
    connections_per_ip_max: int = int_field(
        500, 1, 1_000_000, "client connections from one address"
    )
    connections_per_ip_per_s: int = int_field(
        500, 1, 1_000_000, "connections that one address may open per second; twice as many at once"
    )
    frame_bytes_max: int = int_field(
        16 * MIB,
        2 * MIB,  # defaults: Java 1 MiB per request, librdkafka 1 MB per batch; neither asks first
        ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES,
        "a larger request is refused (MESSAGE_TOO_LARGE); at least what clients send by default, "
        "and at most what fits into one entry of the log",
    )
    pending_bytes_per_group: int = int_field(
        32 * MIB,
        64 * KIB,
        1 << 40,
        "data produced and not yet chosen; above it, and above 4 MiB, sockets are not read",
    )
    pending_bytes_per_node: int = int_field(
        128 * MIB, 64 * KIB, 1 << 40, "all requests in progress, from their first byte on"
    )
    answer_bytes_per_node: int = int_field(
        128 * MIB, 1 * MIB, 1 << 40, "answers that clients have not read yet"
    )
    peer_queue_bytes: int = int_field(64 * MIB, 64 * KIB, 1 << 40, "data waiting for one peer")
    tail_bytes: int = int_field(32 * MIB, 0, 1 << 40, "newest data kept in memory for consumers")
    fetch_bytes_max: int = int_field(16 * MIB, 64 * KIB, 1024 * MIB, "one answer to one consumer")
    idle_connection_s: int = int_field(600, 1, 7 * 24 * 3600, "a silent connection is closed")

    def __attrs_post_init__(self) -> None:
        at_least = (
            ("connections_max", "connections_per_ip_max", "one address alone may use that many"),
            ("pending_bytes_per_group", "frame_bytes_max", "one request must fit"),
            ("pending_bytes_per_node", "pending_bytes_per_group", "one full Paxos group must fit"),
            ("peer_queue_bytes", "frame_bytes_max", "the entry of one request must fit"),
        )
        for key, floor_key, because in at_least:
            floor: int = getattr(self, floor_key)
            if getattr(self, key) < floor:
                why = f"{because}; raise it to at least limits.{floor_key} = {floor}"
                refuse(self, key, getattr(self, key), why)


@attrs.frozen(kw_only=True)
class LogSection:
    SECTION: ClassVar = "log"
    level: str = choice_field(
        "info", ("debug", "info", "warning", "error"), "the lowest level that is logged"
    )


SECTIONS: Final[Mapping[str, type[Any]]] = {
    "node": NodeSection,
    "listen": ListenSection,
    "groups": GroupsSection,
    "lease": LeaseSection,
    "paxos": PaxosSection,
    "storage": StorageSection,
    "catchup": CatchupSection,
    "balancer": BalancerSection,
    "broker": BrokerSection,
    "limits": LimitsSection,
    "log": LogSection,
    "security": SecuritySection,
}
