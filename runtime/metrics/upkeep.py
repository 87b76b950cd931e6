"""Metrics and status of checkpoints, cold data and state transfers."""

from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from paxos.ids import GroupId
from runtime.engine.engine import Engine
from runtime.upkeep.upkeep import Upkeep


class UpkeepMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, engine: Engine, upkeep: Upkeep) -> None:
        self._engine, self._upkeep = engine, upkeep
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        yield from self._checkpoints()
        yield from self._cold()
        yield from self._catching_up()

    def _checkpoints(self) -> Iterable[Metric]:
        checkpointing = self._upkeep.checkpointing
        now_ns, labels = self._engine.boot_ns(), ["group"]
        age = GaugeMetricFamily(
            "evenkeel_checkpoint_age_seconds",
            "Age of the Paxos group's last checkpoint.",
            labels=labels,
        )
        slot = GaugeMetricFamily(
            "evenkeel_checkpoint_slot", "Slot of the Paxos group's last checkpoint.", labels=labels
        )
        size = GaugeMetricFamily(
            "evenkeel_checkpoint_bytes", "Size of the Paxos group's last checkpoint.", labels=labels
        )
        took = GaugeMetricFamily(
            "evenkeel_checkpoint_seconds",
            "How long writing the last checkpoint took.",
            labels=labels,
        )
        for group, taken in sorted(checkpointing.taken.items()):
            age.add_metric([str(group)], (now_ns - taken.at_boot_ns) / 1e9)
            slot.add_metric([str(group)], taken.slot)
            size.add_metric([str(group)], taken.size)
            took.add_metric([str(group)], taken.seconds)
        yield from (age, slot, size, took)
        statistics = checkpointing.statistics
        yield _counter(
            "evenkeel_checkpoints", "Checkpoints written by this node.", statistics.written
        )
        yield _counter(
            "evenkeel_checkpoint_failures",
            "Checkpoints for which there was no room.",
            statistics.failed,
        )
        text = "Longest part of a tick spent on a checkpoint."
        yield _gauge("evenkeel_checkpoint_slice_seconds", text, statistics.slice_ns_max / 1e9)
        retired = statistics.segments_retired
        yield _counter("evenkeel_segments_retired", "Segments of the log retired.", retired)

    def _cold(self) -> Iterable[Metric]:
        settled, cold = self._upkeep.tiering.statistics, self._upkeep.cold.statistics()
        kept = len(self._engine.wal.kept())
        window = kept * self._upkeep.segment_bytes
        yield _gauge("evenkeel_log_window_bytes", "Bytes of the log that are kept.", window)
        limit = self._upkeep.checkpointing.window_bytes
        yield _gauge(
            "evenkeel_log_window_limit_bytes", "Bytes of the log that should be kept.", limit
        )
        yield _counter(
            "evenkeel_settled_bytes",
            "Bytes moved from the log to cold segments.",
            settled.bytes_tiered,
        )
        text = "Batches unreadable in the log, requested from peers."
        yield _counter("evenkeel_settle_damaged", text, settled.damaged)
        yield _gauge("evenkeel_cold_held_bytes", "Bytes in cold segments.", cold.bytes_held)
        yield _gauge("evenkeel_cold_files", "Files of cold segments.", cold.files)
        yield _counter("evenkeel_cold_damage", "Damaged cold data found.", cold.damaged)

    def _catching_up(self) -> Iterable[Metric]:
        catching_up = self._upkeep.catching_up
        sink, source = catching_up.sink, catching_up.source
        waiting = sink.waiting + (sink.view() is not None)
        yield _gauge("evenkeel_catching_up", "Paxos groups and damaged places to fetch.", waiting)
        received = sink.statistics.bytes_received
        yield _counter(
            "evenkeel_catch_up_received_bytes", "Bytes received from peers to catch up.", received
        )
        sent = source.statistics.bytes_sent
        yield _counter("evenkeel_catch_up_sent_bytes", "Bytes sent to peers that catch up.", sent)
        transfers = sink.statistics.transfers
        yield _counter(
            "evenkeel_state_transfers", "Paxos groups taken over from a peer.", transfers
        )
        yield _counter(
            "evenkeel_cold_mended",
            "Damaged places in cold segments repaired from peers.",
            sink.statistics.repaired,
        )


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def upkeep_status(upkeep: Upkeep) -> dict[str, Any]:
    """The part of /status about the background jobs."""
    view, sink = upkeep.catching_up.sink.view(), upkeep.catching_up.sink
    return {
        "segments": len(upkeep.wal.kept()),
        "segments_retired": upkeep.checkpointing.statistics.segments_retired,
        "checkpoints": upkeep.checkpointing.statistics.written,
        "cold_bytes": upkeep.cold.bytes_held,
        "settled_bytes": upkeep.tiering.statistics.bytes_tiered,
        "transfers": sink.statistics.transfers,
        "mended": sink.statistics.repaired,
        "received_bytes": sink.statistics.bytes_received,
        "bytes_per_s": round(upkeep.catching_up.bytes_per_s),
        "waiting": sink.waiting,
        "refusals": sink.statistics.refusals,
        "timeouts": sink.statistics.timeouts,
        "bad_answers": sink.statistics.bad_answers,
        "complaint": sink.statistics.complaint,
        "catching_up": None
        if view is None
        else {"group": view.group, "phase": view.phase, "source": view.source},
    }


def group_status(upkeep: Upkeep, group: GroupId) -> dict[str, Any]:
    taken = upkeep.checkpointing.taken.get(group)
    return {
        "checkpoint": None if taken is None else taken.slot,
        "log_start": upkeep.wal.slots(group).start,
    }
