"""A node's status as JSON: the answer to GET /status (docs/reference.md)."""

import os
import resource
from pathlib import Path
from typing import Any, Final

from balancer.registry.registry import Registry
from broker.requests.context import Broker
from paxos.ids import MS, NOBODY, GroupId, Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.handovers import Handovers
from runtime.config.config import Config
from runtime.config.listeners import ListenerSettings, kafka_address
from runtime.config.peer_tls import insecure
from runtime.engine.engine import Engine
from runtime.metrics.upkeep import group_status, upkeep_status
from runtime.upkeep.upkeep import Upkeep
from wire.software import VERSION

_PAGE_BYTES: Final = resource.getpagesize()


def rss_bytes() -> int:
    """Resident memory of this process, in bytes."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * _PAGE_BYTES


def node_status(
    config: Config,
    engine: Engine,
    broker: Broker,
    loop: BalancingLoop,
    handovers: Handovers,
    upkeep: Upkeep,
    started_boot_ns: int,
) -> dict[str, Any]:
    now = engine.now()
    registry = broker.registry
    machine = loop.machine
    token = registry.token
    return {
        "node": config.node.id,
        "incarnation": engine.multi.incarnation,
        "cluster_id": config.node.cluster_id,
        "version": VERSION,
        "cluster_version": registry.cluster_version.version,
        "pid": os.getpid(),
        "durability": config.storage.durability,
        "kafka": str(kafka_address(config.for_clients)),
        "listeners": [_listener(one) for one in config.for_clients],
        "peer_links": _peer_links(config),
        "uptime_s": round((now.boot_ns - started_boot_ns) / 1e9, 3),
        **_clock(engine),
        "clients": broker.client_service(),
        "nodes": _nodes(config, engine, broker, now),
        "groups_count": config.groups.count,
        "placement_version": registry.versions.placement,
        "balancer": {
            "enabled": machine is not None,
            "paused": registry.paused,
            "state": "off" if machine is None else machine.state.value,
            "token": None
            if token is None or token.expires_wall_ns < now.wall_ns
            else {"group": token.group, "source": token.source, "target": token.target},
        },
        "groups": _groups(engine, broker, upkeep, now),
        "group_members": group_members(registry),
        "storage": upkeep_status(upkeep),
        "steals": [
            {
                "group": steal.group,
                "source": steal.source,
                "target": steal.target,
                "outcome": steal.outcome.name.lower(),
                "duration_ms": round(steal.duration_ns / MS, 3),
                "handover_ms": round(steal.phases.handover_ns / MS, 3),
                "finished_wall_ms": wall_ns / MS,
            }
            for wall_ns, steal in loop.finished
        ],
        "handovers": [
            {
                "group": one.group,
                "target": one.target,
                "outcome": one.outcome,
                "asked": one.asked,
                "reported": one.reported,
                "phases_ms": {phase: round(ns / MS, 3) for phase, ns in one.phases_ns.items()},
                "finished_wall_ms": one.finished_wall_ns / MS,
            }
            for one in handovers.finished
        ],
        "forwarded_requests": engine.statistics.forwarded_out,
        "rss_bytes": rss_bytes(),
    }


def _listener(one: ListenerSettings) -> dict[str, Any]:
    return {
        "name": one.name,
        "protocol": one.protocol,
        "bind": str(one.bind),
        "advertised": str(one.told_to_clients),
        "client_certificates": one.client_certificates,
        "insecure": one.insecure,
    }


def _peer_links(config: Config) -> dict[str, Any]:
    return {
        "bind": str(config.listen.peer),
        "mode": config.peer_tls.mode,
        "insecure": insecure(config.listen, config.peer_tls),
    }


def group_members(registry: Registry) -> dict[str, list[int]]:
    """The nodes that have each Paxos group, as its master last noted them; includes groups that
    this node does not have."""
    everybody = sorted(registry.nodes)
    return {
        str(group): [int(node) for node in registry.members(GroupId(group)) or everybody]
        for group in registry.groups
    }


def _clock(engine: Engine) -> dict[str, Any]:
    clock, terms = engine.clock, engine.terms
    return {
        "clock_offset_ms": {
            str(node): round(offset / MS, 3) for node, offset in sorted(clock.offsets_ns.items())
        },
        "clock_trusted": clock.trusted,
        "clock_complaint": clock.complaint,
        "lease_settings": {
            "ours": terms.ours._asdict(),
            "differing": {str(node): what for node, what in terms.differing.items()},
        },
    }


def _nodes(config: Config, engine: Engine, broker: Broker, now: Now) -> list[dict[str, Any]]:
    there = engine.alive()
    registered = broker.registry.nodes
    rows: list[dict[str, Any]] = []
    for node in sorted({*config.peers, *registered}):
        known = registered.get(node)
        rows.append(
            {
                "id": node,
                "kafka": None if known is None else f"{known.kafka.host}:{known.kafka.port}",
                "http": None if known is None else f"{known.http.host}:{known.http.port}",
                "zone": "" if known is None else known.zone,
                "alive": node in there,
            }
        )
    return rows


def _groups(engine: Engine, broker: Broker, upkeep: Upkeep, now: Now) -> list[dict[str, Any]]:
    placement = broker.registry.placement
    return [
        {
            "group": one.group,
            "master": None if one.holder == NOBODY else one.holder,
            "acting": one.acting,
            "ideal": placement.get(one.group),
            "lease_left_ms": round(one.lease_left_ns / MS, 1),
            "ballot": list(one.ballot),
            "epoch": one.epoch,
            "applied": one.applied,
            "chosen": max(one.chosen_to, one.applied),
            "role": one.role.value,
            "voting": one.voting,
            "members": list(one.members),
            "in_flight": one.in_flight,
            "promised": list(one.promised),
            "lease_version": one.lease_ver,
            "chain": f"{one.chain:08x}",
            "diverged": list(one.diverged),
            "in_doubt": one.doubt,
            "lag": {
                str(node): max(0, one.applied - applied)
                for node, applied in one.peers_applied.items()
                if node in one.members or node in broker.registry.replica_set(one.group)
            },
            **group_status(upkeep, one.group),
        }
        for one in engine.multi.statistics(now)
    ]
