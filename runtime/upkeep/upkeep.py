"""The background jobs of a node, so that it starts fast and its log does not grow for ever.

They take checkpoints, move data out of the log, and transfer state to and from members that are
behind. They run in threads of their own and in small steps on the loop; nothing waits for them.

| thread | does |
|---|---|
| `evenkeel-checkpoint` | writes checkpoint files, and checks and writes those from a peer |
| `evenkeel-settle` | appends to the cold store, repairs and drops its data: its only writer |
| `evenkeel-fetch` | reads data for fetches that is not in memory (broker.reads.disk_reads) |
| `evenkeel-search` | searches batches for offsets by time (broker.reads.search_queue) |
| `evenkeel-help` | reads state and data for peers, checks damage, measures disk usage |
| `evenkeel-serve` | reads the log for peers (runtime.disk.log_server) |
| `evenkeel-compact` | rewrites compacted partitions (runtime.upkeep.compactor) |
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import attrs

from balancer.registry.registry import Registry
from broker.config import BrokerConfig
from broker.lifecycle.compaction_lag import CompactionLag
from broker.lifecycle.compaction_plan import compacted_partitions, impatient_partitions, to_repair
from broker.lifecycle.disk_forecast import Limits
from broker.lifecycle.retention import Segments
from broker.lifecycle.tiering import Tiering
from broker.lifecycle.token_bucket import TokenBucket
from broker.requests.context import Broker
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.transfer.driver import CatchingUp
from paxos.ids import MS, GroupId, Now
from runtime.engine.engine import Engine
from runtime.network.dataplane import Signal
from runtime.system.journal import Journal
from runtime.system.worker import Worker
from runtime.upkeep.checkpointing import CheckpointConfig, Checkpointing
from runtime.upkeep.compactor import Compactor
from runtime.upkeep.damaged_batches import DamagedBatches
from runtime.upkeep.disk_usage import DiskUse
from storage.checkpoints import Checkpoint, CheckpointFiles
from storage.cold.store import ColdStore
from storage.disk.files import Disk
from storage.errors import ColdDamaged
from storage.format import Place

THREADS: Final = ("checkpoint", "settle", "help", "search", "fetch", "serve")


@attrs.frozen(kw_only=True)
class UpkeepConfig:
    checkpoints: CheckpointConfig
    tiering: Callable[[], TokenBucket]
    catching_up: Callable[[], TokenBucket]
    segments: Callable[[Mapping[str, str]], Segments]
    """When to begin a new cold segment, from a topic's settings."""
    compact_bytes_per_s: int
    compact_every_ms: int
    broker: BrokerConfig


class Upkeep:
    """All background jobs of a node. `scratch`: see broker.transfer.driver."""

    def __init__(
        self,
        engine: Engine,
        machines: Mapping[GroupId, GroupMachine],
        files: CheckpointFiles,
        cold: ColdStore,
        config: UpkeepConfig,
        statistics: BrokerStatistics,
        registry: Registry,
        scratch: Callable[[GroupId], GroupMachine],
        wakeup: Signal,
        journal: Journal,
    ) -> None:
        self._engine, self._machines, self._statistics = engine, machines, statistics
        self.files, self.cold, self.wal = files, cold, engine.wal
        self.segment_bytes = config.checkpoints.segment_bytes
        self.wakeup, threads = wakeup, engine.wal.threads
        wake = wakeup.set
        self._workers = tuple(Worker(f"evenkeel-{name}", wake, threads) for name in THREADS)
        self._saver, self._mover, self.reader, self.searcher, self.fetcher, server = self._workers
        engine.log_server.reader = engine.repairs.reader = server
        self.tiering = Tiering(
            engine.wal,
            machines,
            cold,
            self._mover,
            config.tiering(),
            registry.is_gone,
            partial(_segments, registry, config.segments),
            self._suspect,
            journal,
        )
        self._damaged_batches = DamagedBatches(engine, machines, self.tiering)
        self.checkpointing = Checkpointing(
            engine.multi,
            engine.wal,
            machines,
            files,
            self._saver,
            config.checkpoints,
            journal,
            read_from=self.tiering.read_from,
        )
        self.catching_up = CatchingUp(
            engine,
            machines,
            files,
            cold,
            self.checkpointing,
            self.tiering,
            (self._saver, self._mover, self.reader),
            (config.catching_up(), config.catching_up()),
            registry,
            scratch,
            journal,
        )
        engine.catching_up = self.catching_up
        engine.repairs.given_up = self._given_up
        self._registry, self._config, self._topics_seen = registry, config, -1
        self._wall_ms = 0
        self.disk_use: DiskUse | None = None
        self._lag = CompactionLag(machines, self.tiering, self._written_since_ms)
        self.compactor = Compactor(
            cold,
            lambda: self._wall_ms,
            journal,
            bytes_per_s=config.compact_bytes_per_s,
            every_s=config.compact_every_ms / 1000,
            threads=threads,
        )

    def watch(self, disk: Disk, broker: Broker, limits: Limits) -> DiskUse:
        """Measure disk usage periodically, in the reader's thread."""
        taken = self.checkpointing.taken
        self.disk_use = DiskUse(
            disk,
            broker,
            self.reader,
            log_bytes=lambda: self.wal.bytes_staged,
            checkpoints=lambda: [one.size for one in taken.values()],
            limits=limits,
        )
        return self.disk_use

    def _written_since_ms(self, uid: int) -> int | None:
        return self.cold.written_since_ms(uid) if self.cold.knows(uid) else None

    def begin(self, now: Now, checkpoints: Mapping[GroupId, Checkpoint]) -> None:
        """Start the threads; `checkpoints` were found at the start."""
        self.checkpointing.found(now.boot_ns, checkpoints)
        for worker in self._workers:
            worker.start()
        self.compactor.start()

    def tick(self, now: Now) -> None:
        """Called every runtime.network.dataplane.TICK_S, while every machine has applied what its
        replica has."""
        for worker in self._workers:
            if worker.has_done:
                self.take()
                break
        self._look_at_damage()
        self._damaged_batches.tick(now.boot_ns)
        self.checkpointing.tick(now.boot_ns)
        cleared = self.tiering.clear_below
        self.tiering.tick(now.boot_ns, self.checkpointing.window_start())
        if self.tiering.clear_below > cleared:
            self.checkpointing.retire()
        self.catching_up.tick(now.boot_ns)
        if self.disk_use is not None:
            self.disk_use.tick(now.boot_ns)
        self._see_to_compaction(now)

    def _see_to_compaction(self, now: Now) -> None:
        """Assign partitions to the compactor; only a trusted clock tells the age of tombstones."""
        if not now.trusted:
            return
        topics = self._registry.versions.topics
        if topics != self._topics_seen:
            self._topics_seen = topics
            every_topic = self._registry.topics.values()
            self.compactor.assign(compacted_partitions(every_topic, self._config.broker))
            self._lag.assign(impatient_partitions(every_topic, self._config.broker))
        self._wall_ms = now.wall_ns // MS
        self._lag.tick(now)

    def take(self) -> None:
        """Take the results of the threads.

        Raises:
            StorageFailed: the disk has failed in one of them.
        """
        self.wakeup.clear()
        for worker in self._workers:
            worker.take()

    def dropped(self, group: GroupId, machine: GroupMachine) -> None:
        """Drop the files of a group that this node no longer has; the log forgets it after this."""
        self.checkpointing.dropped(group)
        self.catching_up.dropped(group)
        for uid in machine.partitions:
            self.tiering.not_fetched(uid)  # if the group comes back, its data is requested again
            self._mover.submit(partial(self.cold.drop, uid), lambda _: None)

    @property
    def busy(self) -> bool:
        """Whether a thread has a job, or a result to be taken."""
        return any(worker.jobs for worker in self._workers)

    def stop(self) -> bool:
        """Stop all threads; False if one is still busy with the disk."""
        stopped = [self.compactor.stop(), *(worker.stop() for worker in self._workers)]
        if all(stopped):
            self.wakeup.close()
        return all(stopped)

    # -- damage -------------------------------------------------------------------------------

    def _suspect(self, place: Place) -> None:
        if self._engine.scrubber is not None:
            self._engine.scrubber.suspect(place)

    def _given_up(self, group: GroupId, below: Place) -> None:
        """Replace log damage that no peer's log can repair: by a checkpoint, and by cold data."""
        self.checkpointing.soon(group)
        self.tiering.tier_below(group, below)

    def _look_at_damage(self) -> None:
        """Collect damage of cold data and checkpoints: find its extent, and begin the repair."""
        met = self._statistics.damaged_cold
        while met:
            uid, offset = met.popleft()
            self.reader.submit(partial(self._damage_at, uid, offset), self.damaged)
        self.damaged(self.compactor.take_damaged())
        scrubber = self._engine.scrubber
        if scrubber is not None and scrubber.found_beside_the_log:
            self.damaged(scrubber.take_cold())
            for group in scrubber.take_checkpoints():
                self.checkpointing.soon(group)

    def _damage_at(self, uid: int, offset: int) -> list[ColdDamaged]:
        bases = [base for one, base in self.cold.files() if one == uid and base <= offset]
        return self.cold.check(uid, max(bases), lambda _size: None) if bases else []

    def damaged(self, found: list[ColdDamaged]) -> None:
        """Request these offsets from a peer."""
        for one in found:
            for group, machine in self._machines.items():
                state = machine.partitions.get(one.uid)
                if state is None:
                    continue
                want = partial(self._want, group, one.uid)
                if self.compactor.compacts(one.uid):
                    self.reader.submit(partial(self._to_repair, one, state.log_start), want)
                else:
                    want((one.base, one.end))

    def _want(self, group: GroupId, uid: int, offsets: tuple[int, int]) -> None:
        self.catching_up.sink.request_data(group, uid, *offsets, repairs=True)

    def _to_repair(self, damage: ColdDamaged, log_start: int) -> tuple[int, int]:
        return to_repair(self.cold.facts(damage.uid), log_start, damage.base, damage.end)


def _segments(
    registry: Registry, rule: Callable[[Mapping[str, str]], Segments], uid: int
) -> Segments:
    """The segment settings of a partition; the defaults if this node does not know its topic."""
    partition = registry.partition(uid)
    topic = None if partition is None else registry.topic(partition.topic)
    return rule({} if topic is None else topic.configs)
