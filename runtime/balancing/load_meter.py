"""The load topic: this node's report every few seconds, and those of the others.

The registry's master creates the topic once the cluster is founded. Reports are ordinary record
batches, so any Kafka client can read them; every node gets them when it applies them.
"""

from collections.abc import Callable
from typing import Final

from balancer.registry.commands import CreateTopic
from balancer.registry.load import (
    LOAD_TOPIC,
    REQUEST_BYTES,
    ClusterLoad,
    GroupLoad,
    LoadError,
    LoadReport,
    decode_report,
    encode_report,
)
from broker.proposals.commands import records
from broker.proposals.intake import Done, Outcome
from broker.requests.context import Broker
from paxos.ids import MS, REGISTRY_GROUP, GroupId, Now
from runtime.engine.engine import Engine
from runtime.membership.registry_client import RegistryClient
from wire.records.batch import BatchError, Record, iterate_records, split
from wire.records.batch_writer import build_batch

TOPIC_CONFIGS: Final = {"retention.ms": "3600000", "retention.bytes": "16777216"}
ASK_EVERY_NS: Final = 1_000 * MS


class LoadMeter:
    """With `interval_ns` 0 this node sends no reports, and still takes those of others."""

    def __init__(
        self,
        engine: Engine,
        broker: Broker,
        client: RegistryClient,
        book: ClusterLoad,
        interval_ns: int,
        cpu_ns: Callable[[], int],
        new_id: Callable[[], bytes],
    ) -> None:
        self._engine, self._broker, self._client = engine, broker, client
        self.cluster_load = book
        self._interval_ns, self._cpu_ns, self._new_id = interval_ns, cpu_ns, new_id
        self._started_boot_ns = self._reported_boot_ns = engine.now().boot_ns
        self._reported_cpu_ns = cpu_ns()
        self._asked_boot_ns = 0
        self._reported = False
        self._under_way = False
        self.reports_sent = 0
        self.reports_failed = 0
        self.reports_bad = 0
        """Records on the topic that are not reports, perhaps of nodes with a newer version."""

    # -- reports of others --------------------------------------------------------------------

    def on_records(self, uid: int, batch: memoryview) -> None:
        """Handle a batch appended in the registry's group, of any partition."""
        if uid != self._uid():
            return
        now = self._engine.now()
        try:
            for one in split(batch):
                for record in iterate_records(one):
                    self._observe(record, now)
        except BatchError:
            self.reports_bad += 1

    def _observe(self, record: Record, now: Now) -> None:
        try:
            self.cluster_load.observe(decode_report(record.value or b""), now)
        except LoadError:
            self.reports_bad += 1

    def _uid(self) -> int | None:
        topic = self._broker.registry.topic(LOAD_TOPIC)
        return None if topic is None else topic.partitions[0].uid

    # -- our own reports ----------------------------------------------------------------------

    def tick(self, now: Now) -> None:
        """Report if it is time; the first report is sent as soon as possible."""
        if not self._interval_ns or self._under_way or not self._client.reachable:
            return
        uid = self._uid()
        if uid is None:
            self._ask_for_topic(now)
        elif not self._reported or now.boot_ns - self._reported_boot_ns >= self._interval_ns:
            self._tell(now, uid)

    def _ask_for_topic(self, now: Now) -> None:
        registry = self._broker.registry
        mine = self._engine.acting(REGISTRY_GROUP)
        ready = registry.cluster is not None and bool(registry.placement)
        if mine and ready and now.boot_ns - self._asked_boot_ns >= ASK_EVERY_NS:
            self._asked_boot_ns = now.boot_ns
            replication = max(1, len(self._engine.members(REGISTRY_GROUP)))
            command = CreateTopic(LOAD_TOPIC, self._new_id(), 1, replication, TOPIC_CONFIGS)
            self._client.propose(command, lambda _result: None)

    def _tell(self, now: Now, uid: int) -> None:
        report = self.sample(now)
        self._reported, self._under_way = True, True
        record = Record(encode_report(report), timestamp_ms=report.wall_ms)
        batch = memoryview(build_batch([record]))
        self._engine.submit(REGISTRY_GROUP, records(uid, batch), self._on_outcome, anywhere=True)

    def _on_outcome(self, outcome: Outcome) -> None:
        self._under_way = False
        if isinstance(outcome, Done):
            self.reports_sent += 1
        else:
            self.reports_failed += 1  # the next report replaces it

    def _bytes_kept(self, group: GroupId) -> int:
        machine = self._broker.machines.get(group)
        return 0 if machine is None else sum(one.bytes_held for one in machine.partitions.values())

    def sample(self, now: Now) -> LoadReport:
        """A report of the load since the last one."""
        engine = self._engine
        traffic, p99_ns = self._broker.traffic.take()
        cpu_ns = self._cpu_ns()
        spent_us = (cpu_ns - self._reported_cpu_ns) // 1_000
        interval_ms = max(1, (now.boot_ns - self._reported_boot_ns) // MS)
        self._reported_cpu_ns, self._reported_boot_ns = cpu_ns, now.boot_ns
        work = {
            group: one.requests * REQUEST_BYTES + one.bytes_in + one.bytes_out
            for group, one in traffic.items()
        }
        whole = max(1, sum(work.values()))
        loads = []
        lag = 0
        for group, replica in sorted(engine.multi.replicas.items()):
            lag = max(lag, replica.learner.chosen_to - replica.learner.applied)
            if not engine.acting(group):
                continue
            one = traffic.get(group)
            cpu_us = spent_us * work.get(group, 0) // whole
            told = (0, 0, 0) if one is None else (one.bytes_in, one.bytes_out, one.requests)
            loads.append(GroupLoad(GroupId(group), *told, cpu_us, self._bytes_kept(group)))
        return LoadReport(
            node=engine.multi.me,
            incarnation=engine.multi.incarnation,
            wall_ms=now.wall_ns // MS,
            interval_ms=interval_ms,
            produce_p99_us=p99_ns // 1_000,
            lag_slots=lag,
            uptime_ms=(now.boot_ns - self._started_boot_ns) // MS,
            groups=tuple(loads),
        )
