"""The real cold store on a disk in memory, with the operations that stories use on the fake one."""

from collections.abc import Callable

from broker.state_machine.partition import CopyPlan
from paxos.ids import NodeId
from storage.cold.store import ColdStore
from storage.disk.memory import MemoryDisk
from storage.identity import boot
from wire.records.batch import PATCHED_BYTES, patched_head


class RealCold(ColdStore):
    def __init__(self, segment_bytes: int) -> None:
        self._disk_in_memory = MemoryDisk()
        super().__init__(self._disk_in_memory, boot(self._disk_in_memory, "test", NodeId(1)))
        self._segment_bytes = segment_bytes

    def settle(self, plan: CopyPlan, read_span: Callable[[int, int], memoryview]) -> None:
        rows = []
        for base, end, time_ms, position, size, epoch in plan.batches():
            data = read_span(position, size)
            rows.append(
                (base, end, time_ms, [patched_head(data, base, epoch), data[PATCHED_BYTES:]])
            )
        known = self.end(plan.uid)
        if known is not None and known < plan.bases[0]:
            self.drop_before(plan.uid, plan.bases[0])
        self.append(plan.uid, rows, segment_bytes=self._segment_bytes)
