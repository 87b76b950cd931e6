"""Metrics of the balancer: its verdicts on groups, plans, weights, load reports."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from balancer.machines import machines_of
from balancer.planner.problem import WEIGHT_NORMAL
from balancer.stealing.judgement import StealReason
from paxos.ids import GroupId
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.load_meter import LoadMeter
from runtime.balancing.planning_loop import PlanningLoop, masters
from runtime.engine.engine import Engine


class BalancerMetrics(Collector):
    def __init__(
        self,
        registry: CollectorRegistry,
        engine: Engine,
        loop: BalancingLoop,
        planner: PlanningLoop,
        meter: LoadMeter,
    ) -> None:
        self._engine, self._loop, self._planner, self._meter = engine, loop, planner, meter
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        now = self._engine.now()
        groups = GaugeMetricFamily(
            "evenkeel_balance_groups",
            "Paxos groups by the balancer's reason code.",
            labels=["reason"],
        )
        machine = self._loop.machine
        if machine is not None:
            verdicts = Counter(why.value for _, why in machine.explain(self._loop.view(now)))
            for reason in StealReason:
                groups.add_metric([reason.value], verdicts[reason.value])
        plans = CounterMetricFamily(
            "evenkeel_plans", "Placements that this node planned, by outcome.", labels=["outcome"]
        )
        plans.add_metric(["adopted"], self._planner.adopted)
        plans.add_metric(["lost"], self._planner.lost)
        weights = GaugeMetricFamily(
            "evenkeel_group_weight",
            "Weight by the built-in estimator; 1 is average.",
            labels=["group"],
        )
        all_groups = map(GroupId, self._loop.view(now).groups)
        for group, weight in (self._meter.cluster_load.weights(now, all_groups) or {}).items():
            weights.add_metric([str(group)], weight / WEIGHT_NORMAL)
        yield from (groups, plans, weights, *self._reports(), *self._replicas(), *self._machines())

    def _machines(self) -> Iterable[Metric]:
        """By machine (zone), from the registry; nothing where nodes have no zones."""
        registry, alive = self._loop.registry, self._engine.alive()
        zones = {node: one.zone for node, one in registry.nodes.items()}
        members = {group: registry.members(group) for group in map(GroupId, registry.groups)}
        on = Counter(masters(self._engine, self._engine.now()).values())
        nodes = GaugeMetricFamily(
            "evenkeel_machine_nodes",
            "Node processes of a machine (zone) that this node hears.",
            labels=["machine"],
        )
        led = GaugeMetricFamily(
            "evenkeel_machine_masters",
            "Paxos groups whose master is on the machine, as far as this node knows.",
            labels=["machine"],
        )
        crowded = GaugeMetricFamily(
            "evenkeel_machine_crowded_groups",
            "Paxos groups with two or more replicas on the machine.",
            labels=["machine"],
        )
        stopped = GaugeMetricFamily(
            "evenkeel_machine_stops_groups",
            "Paxos groups that have no majority without the machine.",
            labels=["machine"],
        )
        for one in machines_of(zones, members):
            nodes.add_metric([one.machine], len(alive & set(one.nodes)))
            led.add_metric([one.machine], sum(on[node] for node in one.nodes))
            crowded.add_metric([one.machine], len(one.crowded))
            stopped.add_metric([one.machine], len(one.stopped))
        return (nodes, led, crowded, stopped)

    def _replicas(self) -> Iterable[Metric]:
        """Replicas of groups, from the registry and the nodes that are alive."""
        registry, alive = self._loop.registry, self._engine.alive()
        few = moving = getting = leaving = 0
        for group in map(GroupId, registry.groups):
            members, wanted = set(registry.members(group)), set(registry.replica_set(group))
            few += len(members & alive) < len(wanted)
            moving += members != wanted
            getting += len(wanted - members)
            leaving += len(members - wanted)
        yield GaugeMetricFamily(
            "evenkeel_groups_under_replicated",
            "Paxos groups with fewer live members than they should have.",
            value=few,
        )
        yield GaugeMetricFamily(
            "evenkeel_groups_moving",
            "Paxos groups whose members differ from their replica set.",
            value=moving,
        )
        copies = GaugeMetricFamily(
            "evenkeel_replica_moves", "Replicas to be copied, and to be dropped.", labels=["what"]
        )
        copies.add_metric(["to-get"], getting)
        copies.add_metric(["to-leave"], leaving)
        yield copies

    def _reports(self) -> Iterable[Metric]:
        meter = self._meter
        reports = CounterMetricFamily(
            "evenkeel_load_reports", "Load reports by outcome.", labels=["outcome"]
        )
        reports.add_metric(["sent"], meter.reports_sent)
        reports.add_metric(["failed"], meter.reports_failed)
        reports.add_metric(["bad"], meter.reports_bad)
        p99 = GaugeMetricFamily(
            "evenkeel_node_produce_p99_seconds",
            "99th percentile of produce requests, as each node last reported it.",
            labels=["node"],
        )
        for node, report in meter.cluster_load.reports.items():
            p99.add_metric([str(node)], report.produce_p99_us / 1e6)
        return (reports, p99)
