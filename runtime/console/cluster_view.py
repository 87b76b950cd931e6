"""The whole cluster as the console shows it: sections of JSON, from this node's own knowledge and
from the reports of the others (runtime.console.reports).

This node knows the master of every group, from its own replica or from the master's claim
(runtime.membership.masters): if a node does not answer, only the certainty is lost.
"""

from collections.abc import Mapping
from typing import Any, Final

import trio.lowlevel

from balancer.registry.load import LOAD_TOPIC
from balancer.registry.records import Topic
from paxos.ids import MS, GroupId, NodeId, Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.planning_loop import PlanningLoop
from runtime.balancing.view import balancer_status
from runtime.console.messages import State
from runtime.console.recent_traffic import SECOND_NS
from runtime.console.reports import TOPICS_SHOWN_MAX, ClusterReports, lag_of
from runtime.engine.engine import Engine

Sections = dict[str, Any]
PINNED: Final = 1
PAUSED: Final = 2
BY_HAND: Final = 4
NO_LEASE: Final = -1
SLOW_KEYS: Final = ("steals", "plans", "replica_changes", "policy", "weights", "tokens")
"""Parts of GET /balancer that are shown as they are."""
PLAIN_KEYS: Final = (
    "planner",
    "paused",
    "placement_version",
    "policy_version",
    "replicas_state",
    "replica_moves",
)


class ClusterView:
    def __init__(
        self,
        engine: Engine,
        loop: BalancingLoop,
        planner: PlanningLoop,
        book: ClusterReports,
        cluster_id: str,
    ) -> None:
        self._engine, self._loop, self._planner = engine, loop, planner
        self._reports, self._cluster_id = book, cluster_id

    async def quick(self, now: Now) -> Sections:
        """Sections that may change every second. Other tasks run in between: with hundreds of
        groups each half takes milliseconds."""
        status = balancer_status(self._loop, self._planner, now)
        await trio.lowlevel.checkpoint()
        me = self._engine.multi.me
        return {
            "cluster": {
                "id": self._cluster_id,
                "me": me,
                "wall_ms": now.wall_ns // MS,
                "second": now.boot_ns // SECOND_NS,
            },
            "nodes": self._nodes(status["nodes"], now),
            "groups": self._groups(status["groups"], now),
            "leases": [self._lease(one["group"], now) for one in status["groups"]],
            "balancer": {
                "enabled": self._loop.machine is not None,
                **{key: status[key] for key in PLAIN_KEYS},
            },
            **{key: status[key] for key in SLOW_KEYS},
        }

    def slow(self, now: Now) -> Sections:
        """Sections that are updated every few seconds."""
        return {
            "topics": self._topics(now),
            "topics_count": len(self._loop.registry.topics),
            "consumers": self._consumers(now),
            "cut": self._reports.cut(now),
        }

    # -- nodes and groups ---------------------------------------------------------------------

    def _nodes(self, balanced: list[dict[str, Any]], now: Now) -> dict[str, Any]:
        registry = self._loop.registry
        by_id = {one["id"]: one for one in balanced}
        ids = sorted({*registry.nodes, *registry.admitted})
        return {str(node): self._node(node, by_id.get(node, {}), now) for node in ids}

    def _node(self, node: NodeId, balanced: Mapping[str, Any], now: Now) -> dict[str, Any]:
        known = self._loop.registry.nodes.get(node)
        alive = node in self._engine.alive()
        state = self._reports.state(node, now) if alive else None
        heard_ns = self._engine.multi.heard.get(node)
        silent = node != self._engine.multi.me and not alive and heard_ns is not None
        asked = ("zone", "capacity", "draining", "unfit", "masters", "ideals", "replicas")
        return {
            "alive": alive,
            "silent_s": (now.boot_ns - (heard_ns or 0)) // SECOND_NS if silent else None,
            "life": "added" if known is None else "leaving" if known.leaving else "active",
            "kafka": None if known is None else f"{known.kafka.host}:{known.kafka.port}",
            "http": None if known is None else f"{known.http.host}:{known.http.port}",
            **{key: balanced.get(key) for key in asked},
            "p99_ms": balanced.get("produce_p99_ms"),
            "lag": balanced.get("lag_slots"),
            **_told(state),
        }

    def _groups(self, balanced: list[dict[str, Any]], now: Now) -> dict[str, Any]:
        acting = self._reports.acting(now)
        rows = {}
        for one in balanced:
            group = GroupId(one["group"])
            master, epoch = self._engine.master(group), self._engine.epoch(group)
            claim = acting.get(group)
            certain = claim is not None and claim[1].epoch >= epoch
            if claim is not None and certain:
                master, epoch = claim[0], claim[1].epoch
            flags = PINNED * one["pinned"] | PAUSED * one["paused"] | BY_HAND * one["set_by_hand"]
            rows[str(group)] = [
                master,
                int(certain),
                one["ideal"],
                one["why"],
                one["members"],
                one["replica_set"],
                flags,
                one["weight"],
                epoch,
            ]
        return rows

    def _lease(self, group: GroupId, now: Now) -> int:
        """Tenths of a second that are left of a lease, as far as this node knows; or NO_LEASE."""
        replica, heard = self._engine.multi.replicas.get(group), self._engine.elsewhere
        told = heard.of(group, now)
        if replica is not None and (told is None or told.lease_ver <= replica.lease.ver):
            left_ns = replica.lease.expires_wall_ns - now.wall_ns
        elif told is not None:
            left_ns = told.until_boot_ns - now.boot_ns
        else:
            return NO_LEASE
        return NO_LEASE if left_ns <= 0 else left_ns // (100 * MS)

    # -- topics and consumer groups -----------------------------------------------------------

    def _topics(self, now: Now) -> dict[str, Any]:
        """The largest topics: partitions, copies, records, bytes, records and bytes per second.

        A number is null if no node has reported the topic yet.
        """
        registry, held = self._loop.registry, self._reports.held(now)
        names = sorted(
            registry.topics, key=lambda name: (-held.get(name, (0, 0))[0], name == LOAD_TOPIC, name)
        )
        return {name: self._topic(registry.topics[name], held) for name in names[:TOPICS_SHOWN_MAX]}

    def _topic(self, topic: Topic, held: Mapping[str, tuple[int, int]]) -> list[Any]:
        rows = self._reports.partitions.get(topic.name)
        size, bytes_per_s = held.get(topic.name, (None, None))
        per_s = self._reports.records_per_s.get(topic.name)
        return [
            len(topic.partitions),
            topic.replication,
            None if rows is None else sum(one.end - one.start for one in rows.values()),
            size,
            None if per_s is None else round(per_s, 1),
            bytes_per_s,
        ]

    def _consumers(self, now: Now) -> dict[str, Any]:
        """Name -> state, kind, members, lag, partitions of unknown end, coordinator, topics."""
        rows = {}
        for name, (node, one) in sorted(self._reports.consumers(now).items()):
            lag, unknown = lag_of(one, self._reports.partitions)
            topics = [told.topic for told in one.committed]
            rows[name] = [one.state, one.kind, one.members, lag, unknown, node, topics[:20]]
        return rows

    # -- one topic, one consumer group --------------------------------------------------------

    def topic(self, name: str) -> dict[str, Any] | None:
        """A topic's partitions: group, master, first and next offset. None: no such topic."""
        topic = self._loop.registry.topics.get(name)
        if topic is None:
            return None
        rows = self._reports.partitions.get(name, {})
        partitions = []
        for index, place in enumerate(topic.partitions):
            told = rows.get(index)
            start, end = (None, None) if told is None else (told.start, told.end)
            master = self._engine.master(place.group)
            partitions.append([index, place.group, master, start, end])
        configs = dict(sorted(topic.configs.items()))
        return {"name": name, "partitions": partitions, "configs": configs}

    def consumer_group(self, name: str, now: Now) -> dict[str, Any] | None:
        """A consumer group's offsets by partition. None: no node has reported the group."""
        found = self._reports.consumers(now).get(name)
        if found is None:
            return None
        node, one = found
        rows = []
        for topic, indexes, offsets in one.committed:
            ends = self._reports.partitions.get(topic, {})
            for index, offset in zip(indexes, offsets, strict=True):
                place = ends.get(index)
                end = None if place is None else place.end
                lag = None if place is None else max(0, place.end - max(offset, place.start))
                rows.append([topic, index, offset, end, lag])
        return {
            "name": name,
            "state": one.state,
            "kind": one.kind,
            "coordinator": node,
            "group": one.group,
            "members": one.members,
            "clients": list(one.clients),
            "offsets": rows,
        }


def _told(state: State | None) -> dict[str, Any]:
    """A node's own report; `answers` is false if there is none."""
    if state is None:
        return {"answers": False}
    return {
        "answers": True,
        "not_ready": state.not_ready,
        "version": state.version,
        "durability": state.durability,
        "incarnation": state.incarnation,
        "uptime_s": state.uptime_s // 10 * 10,  # or its row would change every second
        "rss_mb": round(state.rss_bytes / 1e6),
        "disk_free_gb": None
        if state.disk_free_bytes < 0
        else round(state.disk_free_bytes / 1e9, 1),
        "disk_low": bool(state.disk_low),
        "connections": state.connections,
        "behind": max((one.behind for one in state.acting), default=0),
    }
