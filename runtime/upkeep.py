"""What a node does beside serving, so that it starts soon and its log does not grow for ever.

Checkpoints are taken, data is moved out of the log, and members that were away are helped and help
themselves. All of it in threads of its own and in small pieces on the loop; nothing waits for it.
"""

from collections.abc import Mapping

from broker.machine import GroupMachine
from paxos.ids import GroupId, Now
from paxos.multigroup import MultiGroup
from runtime.checkpointing import CheckpointConfig, Checkpointing
from runtime.dataplane import Wakeup
from runtime.journal import Journal
from runtime.worker import Worker
from storage.checkpoints import Checkpoint, CheckpointFiles
from storage.wal import Wal


class Upkeep:
    def __init__(
        self,
        multi: MultiGroup,
        wal: Wal,
        machines: Mapping[GroupId, GroupMachine],
        files: CheckpointFiles,
        config: CheckpointConfig,
        journal: Journal,
    ) -> None:
        self.wakeup = Wakeup()
        self._saver = Worker("evenkeel-checkpoint", self.wakeup.set)
        self.checkpointing = Checkpointing(
            multi,
            wal,
            machines,
            files,
            self._saver,
            config,
            journal,
            clear_below=lambda: wal.kept().start,
        )

    def begin(self, now: Now, checkpoints: Mapping[GroupId, Checkpoint]) -> None:
        """Start the threads; these checkpoints were there."""
        self.checkpointing.found(now.boot_ns, checkpoints)
        self._saver.start()

    def tick(self, now: Now) -> None:
        """Every runtime.dataplane.TICK_S, when all machines are level with their replicas."""
        self.take()
        self.checkpointing.tick(now.boot_ns)

    def take(self) -> None:
        """What the threads have done.

        Raises:
            StorageFailed: the disk failed them.
        """
        self.wakeup.clear()
        self._saver.take()

    def dropped(self, group: GroupId) -> None:
        """This node is no member of the group any more; the log is told afterwards."""
        self.checkpointing.dropped(group)

    def stop(self) -> bool:
        """False: a thread is still busy with the disk."""
        stopped = self._saver.stop()
        if stopped:
            self.wakeup.close()
        return stopped
