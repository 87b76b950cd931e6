"""Planted bugs in settling, checkpoints with places, transfers with data (mutants/catalogue.py)."""

from collections.abc import Mapping
from functools import partial
from typing import Final

from broker.lifecycle.tiering import Tiering
from broker.reads.reader import Reader
from broker.reads.time_search import FirstReaching
from broker.state_machine.machine import GroupMachine
from broker.transfer.driver import CatchingUp
from broker.transfer.sink import Sink
from simulator.environment.options import Workload
from simulator.mutants import planting
from simulator.mutants.planting import Mutant
from simulator.node.checkpointing import Checkpoints
from simulator.node.upkeep import Upkeep

SETTLING: Final = (
    "disk=wal",
    "judged=0",
    "checkpoint_slots=20",
    "faults=AMNESIA,BAD_LINK,CRASH_ALL,CUT_ONE,DOOM,FAILED_DISK,FULL_DISK,LOST_DISK,MEMBERS",
)
"""The worlds in which data leaves the log; nothing repairs it there."""

mutant = partial(planting.mutant, workload=Workload.BROKER, settings=SETTLING, tests="tests/broker")

COLD: Final[Mapping[str, Mutant]] = {
    "index-dropped-first": mutant(
        "ADR 20",
        "batches are read from the cold store before they are durable there",
        (Tiering._is_done, "self._busy = True", "self._busy = True; state.mark_tiered(plan.end)"),
    ),
    "log-retired-under-readers": mutant(
        "ADR 20",
        "the log is retired although batches are still read from it",
        (Upkeep._retires_below, "self.tiering.read_from()", "self._window_start()"),
    ),
    "applied-late-and-retired": mutant(
        "ADR 20",
        "entries applied after a pass count as settled",
        (Tiering.read_from, "chain(numbers, (self.clear_below,))", "(self.clear_below,)"),
        why_not="it takes a transfer that lasts as long as the log window, and slots above it",
        tests="tests/runtime/upkeep/test_checkpointing.py",
    ),
    "parts-taken-for-level": mutant(
        "ADR 21",
        "a checkpoint after a restore claims that its parts are as recent as the log",
        (
            GroupMachine._seen,
            "max(self.applied, self._floors.get(part, self._floors[_LEASE]))",
            "self.applied",
        ),
    ),
    "places-before-durable": mutant(
        "ADR 21",
        "a checkpoint is written before the log that it names is durable",
        (Checkpoints.may_save, "self._node.is_durable(until)", "True"),
        settings=(*SETTLING[:-1], "faults=CRASH,CRASH_ALL,SLOW_DISK"),
    ),
    "state-before-data": mutant(
        "ADR 27",
        "a peer's state becomes our checkpoint while its data is on the way to the disk",
        (Sink._go_on, "if self._unwritten:", "if False:"),
        tests="tests/broker/transfer",
    ),
    "rest-not-fetched": mutant(
        "ADR 27",
        "data appended during a transfer is not fetched",
        (Sink._on_state, "job.phase = Phase.REST", "job.phase = Phase.REST; job.spans.clear()"),
        why_not="settling finds the missing data, and gets it from a peer",
        tests="tests/broker/transfer",
    ),
    "anothers-cold-end": mutant(
        "ADR 27",
        "the end of a partition's local data is taken from another partition",
        (
            CatchingUp.cold_end,
            "self._cold.end(uid)",
            "self._cold.end(max(self._cold.uids(), default=uid))",
        ),
        tests="tests/broker/transfer",
    ),
    "cold-tail-shown": mutant(
        "I7",
        "a reader gets data of the cold store above the partition's end",
        (Reader._from_cold, "if end is None or end > partition.next_offset:", "if False:"),
        why_not="the data there is chosen: no reader gets anything false",
        tests="tests/broker/reads/test_cold.py",
    ),
    "times-of-the-log-only": mutant(
        "ADR 35",
        "a time is not searched in cold data",
        (FirstReaching.next_job, "since < state.index_start", "False"),
    ),
}
