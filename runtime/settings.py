"""From the operator's configuration to the settings of each part."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from balancer.planning import PlanningConfig
from balancer.registry.commands import FoundCluster, RegisterNode
from balancer.registry.listeners import SetListeners
from balancer.registry.records import Address as RegistryAddress
from balancer.registry.records import Cluster
from balancer.registry.security import ListenerAddress
from balancer.stealing.steal import BalancingConfig
from broker.config import BrokerConfig, IntakeConfig
from broker.lifecycle.disk_forecast import Limits
from broker.lifecycle.retention import segments_of
from broker.lifecycle.token_bucket import TokenBucket
from coordinator.limits import CoordinatorConfig
from paxos.ids import MS, GroupId, Incarnation, NodeId
from paxos.timing import Strategy, Timing
from runtime.clients.limits import ClientLimits
from runtime.config.config import Config
from runtime.config.fields import Address
from runtime.config.listeners import kafka_address
from runtime.membership.handshake import Hello
from runtime.membership.raising import RaisingConfig
from runtime.upkeep.checkpointing import CheckpointConfig
from runtime.upkeep.upkeep import UpkeepConfig
from storage.disk.space import SpaceConfig
from storage.log.model import Durability, WalConfig
from wire.framing import FRAME_BYTES_MAX, FrameLimits
from wire.records.batch import DECOMPRESSED_BYTES_MAX

BURSTS_PER_S: Final = 20
"""A token bucket allows a burst of what its rate gives in this fraction of a second ..."""
BURST_BYTES_MIN: Final = 256 * 1024
"""... but at least this."""
READ_OVER_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's own limit of a request, socket.request.max.bytes: a longer one closes the connection."""
REQUEST_OVERHEAD_BYTES: Final = 64 * 1024
"""What a produce request may contain besides its record batch."""


def timing(config: Config) -> Timing:
    paxos, lease = config.paxos, config.lease
    return Timing(
        lease_ns=lease.duration_ms * MS,
        renew_every_ns=lease.renew_every_ms * MS,
        margin_ns=lease.clock_margin_ms * MS,
        retransmit_ns=paxos.retransmit_ms * MS,
        drain_ns=paxos.drain_ms * MS,
        settle_ns=paxos.steal_settle_ms * MS,
        backoff_min_ns=paxos.election_backoff_ms_min * MS,
        backoff_max_ns=paxos.election_backoff_ms_max * MS,
        backoff_cap_ns=max(2_000, paxos.election_backoff_ms_max) * MS,
        window=paxos.window,
        strategy=Strategy(config.balancer.strategy),
    )


def intake(config: Config) -> IntakeConfig:
    return IntakeConfig(
        entry_bytes_max=config.paxos.entry_bytes_max,
        queue_bytes_max=config.limits.pending_bytes_per_group,
        refuse_bytes_max=config.limits.pending_bytes_per_node,
        batch_wait_ns=config.paxos.batch_wait_ms * MS,
        batch_bytes_min=config.paxos.batch_bytes_min,
        group_commit_ns=config.paxos.gather_ms * MS,
        forward_grace_ns=config.balancer.forward_grace_ms * MS,
        forward_unaware_ns=config.balancer.forward_unaware_ms * MS,
    )


def wal(config: Config) -> WalConfig:
    return WalConfig(
        segment_bytes=config.storage.segment_bytes,
        durability=Durability(config.storage.durability),
    )


def checkpoints(config: Config) -> CheckpointConfig:
    section = config.storage
    return CheckpointConfig(
        bytes_each=section.checkpoint_bytes,
        records_each=section.checkpoint_records,
        log_bytes=section.log_bytes,
        segment_bytes=section.segment_bytes,
    )


def upkeep(config: Config) -> UpkeepConfig:
    return UpkeepConfig(
        checkpoints=checkpoints(config),
        tiering=partial(tiering, config),
        catching_up=partial(catching_up, config),
        segments=partial(segments_of, config=broker(config)),
        compact_bytes_per_s=config.storage.settle_bytes_per_s,
        compact_every_ms=config.storage.compact_check_ms,
        broker=broker(config),
    )


def tiering(config: Config) -> TokenBucket:
    rate = config.storage.settle_bytes_per_s
    return TokenBucket(rate, max(BURST_BYTES_MIN, rate // BURSTS_PER_S))


def catching_up(config: Config) -> TokenBucket:
    rate = config.catchup.bytes_per_s * config.catchup.share_percent // 100
    return TokenBucket(rate, max(BURST_BYTES_MIN, rate // BURSTS_PER_S))


def space(config: Config) -> SpaceConfig:
    section = config.storage
    return SpaceConfig(low_water_bytes=section.low_water_bytes, reserve_bytes=section.reserve_bytes)


def disk(config: Config) -> Limits:
    section = config.storage
    return Limits(
        log_bytes=section.log_bytes,
        segment_bytes=section.segment_bytes,
        checkpoint_bytes=section.checkpoint_bytes,
        settle_bytes_per_s=section.settle_bytes_per_s,
        reserve_bytes=section.reserve_bytes,
        low_water_bytes=section.low_water_bytes,
        check_ms=section.retention_check_ms,
    )


def balancing(config: Config) -> BalancingConfig:
    section = config.balancer
    return BalancingConfig(
        hold_down_ns=section.hold_down_ms * MS,
        pause_ns=section.pause_between_steals_ms * MS,
        deadline_ns=section.steal_deadline_ms * MS,
        acquire_timeout_ns=min(1_000, section.steal_deadline_ms // 2) * MS,
        token_ns=section.token_ms * MS,
        release_timeout_ns=min(1_000, section.token_ms - section.steal_deadline_ms) * MS,
        cool_down_ns=section.mute_ms * MS,
        patience_ns=max(2_000, 2 * (section.pause_between_steals_ms + 250)) * MS,
    )


def planning(config: Config) -> PlanningConfig:
    section = config.balancer
    return PlanningConfig(
        dead_after_ns=section.dead_after_ms * MS,
        replace_after_ns=section.replace_after_s * 1_000 * MS,
        moves_max=section.replica_moves_max,
        sustain_ns=section.uneven_for_ms * MS,
        weight_pause_ns=section.uneven_pause_ms * MS,
    )


def broker(config: Config) -> BrokerConfig:
    section, limits = config.broker, config.limits
    pending = limits.pending_bytes_per_node
    return BrokerConfig(
        parked_bytes_max=pending // 2,
        decoded_bytes_max=pending // 2,
        portions_bytes_max=pending // 2,
        unpacked_bytes_max=min(DECOMPRESSED_BYTES_MAX, pending),
        cluster_id=config.node.cluster_id,
        groups_count=config.groups.count,
        listeners=",".join(f"{one.name}://{one.bind}" for one in config.for_clients),
        replication=min(section.default_replication, len(config.peers)),
        auto_create_topics=section.auto_create_topics,
        default_partitions=section.default_partitions,
        batch_bytes_max=limits.frame_bytes_max - REQUEST_OVERHEAD_BYTES,
        fetch_bytes_max=limits.fetch_bytes_max,
        consumer_group_rebalance_delay_ms=section.group_initial_rebalance_delay_ms,
        retention_ms=section.retention_ms,
        retention_bytes=section.retention_bytes,
        retention_check_ms=config.storage.retention_check_ms,
    )


def coordinator(config: Config) -> CoordinatorConfig:
    section = config.broker
    session_ms_min = section.group_session_timeout_ms_min
    return CoordinatorConfig(
        initial_rebalance_delay_ms=section.group_initial_rebalance_delay_ms,
        session_timeout_ms_min=session_ms_min,
        session_timeout_ms_max=section.group_session_timeout_ms_max,
        pause_ms_max=max(2, min(3_000, session_ms_min // 2)),
    )


def clients(config: Config) -> ClientLimits:
    limits = config.limits
    records = limits.frame_bytes_max
    return ClientLimits(
        connections_max=limits.connections_max,
        connections_per_ip_max=limits.connections_per_ip_max,
        connections_per_ip_per_s=limits.connections_per_ip_per_s,
        pending_bytes_per_node=limits.pending_bytes_per_node,
        answer_bytes_per_node=limits.answer_bytes_per_node,
        idle_ns=limits.idle_connection_s * 1_000 * MS,
        frames=FrameLimits(
            default=min(FRAME_BYTES_MAX, records),
            by_key={0: records, 1: FRAME_BYTES_MAX},
            read_over_max=READ_OVER_BYTES_MAX,
        ),
    )


def found_cluster(config: Config) -> FoundCluster:
    groups = config.groups
    return FoundCluster(config.node.cluster_id, groups.count, config.founders, groups.replicas)


def raising(config: Config) -> RaisingConfig:
    return RaisingConfig(
        automatic=config.node.raise_cluster_version == "automatic",
        after_ns=config.node.raise_after_s * 1_000 * MS,
    )


def register_node(config: Config, incarnation: Incarnation) -> RegisterNode:
    listen = config.listen
    return RegisterNode(
        config.node.id,
        incarnation,
        _address(kafka_address(config.for_clients)),
        _address(config.peers[config.node.id]),
        _address(listen.http),
        config.node.zone,
    )


def set_listeners(config: Config) -> SetListeners:
    """What the registry should have of this node's listeners: nothing where there is only the
    default one."""
    if config.listeners:
        return SetListeners(
            config.node.id,
            tuple(
                ListenerAddress(one.name, one.security.value, *one.told_to_clients)
                for one in config.for_clients
            ),
        )
    return SetListeners(config.node.id, ())


def _address(address: Address) -> RegistryAddress:
    return RegistryAddress(address.host, address.port)


def founding(config: Config) -> str:
    """The settings with which the cluster's groups were founded; equal on all nodes."""
    return _founding_text(config.groups.count, config.groups.replicas, config.founders)


def hello(config: Config, incarnation: Incarnation) -> Hello:
    """How this process greets other nodes."""
    return Hello(
        cluster_id=config.node.cluster_id,
        node=config.node.id,
        incarnation=incarnation,
        founding=founding(config),
    )


def founding_problem(config: Config, cluster: Cluster | None) -> str:
    """Why the [groups] section contradicts the logs; "" if it does not."""
    if cluster is None:
        return ""
    if not cluster.founders:  # founded before there were replica sets: all nodes have all groups
        if config.groups.replicas >= len(config.founders):
            return ""
        why = f"this cluster's groups are on all its nodes: set it to {len(config.founders)}"
        return f"groups.replicas = {config.groups.replicas}: {why}"
    ours = founding(config)
    founded = _founding_text(cluster.groups_count, cluster.replicas, cluster.founders)
    return "" if ours == founded else f"[groups] {ours}: the cluster was founded with {founded}"


def _founding_text(count: int, replicas: int, founders: Sequence[NodeId]) -> str:
    nodes = ",".join(map(str, founders))
    return f'count = {count}, replicas = {replicas}, founders = "{nodes}"'


def first_guess(group: GroupId, nodes: Sequence[NodeId]) -> NodeId:
    """The node that should first try to become a group's master before there is a placement: the
    one that the placement will name."""
    return nodes[group % len(nodes)]
