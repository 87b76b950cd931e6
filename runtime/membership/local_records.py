"""Records that a node keeps outside of its log: witnessed nodes, its admission, the incarnation
above which the next one must begin, and evidence. At the start it reads them, and an operator's
order of an unsafe recovery."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from balancer.registry.registry import Registry
from paxos.changes import rejoin
from paxos.changes.membership import first_members
from paxos.entry import NOOP
from paxos.ids import INCARNATION_ZERO, MS, REGISTRY_GROUP, GroupId, Incarnation, NodeId, Now, Slot
from paxos.replica import Replica
from paxos.step import Step
from runtime.config.config import Config
from runtime.membership.admission import Admission
from runtime.system.journal import Journal
from runtime.system.worker import Worker
from storage.disk.files import Disk
from storage.disk.space import write_with_reserve
from storage.errors import DiskFull, StorageError
from storage.evidence import keep_evidence
from storage.format import Place
from storage.identity import Identity, mark_cluster_version
from storage.lives import NEVER_ADMITTED, Lives, read_lives, write_lives
from storage.log.model import Recovered as RecoveredLog
from storage.log.model import RecoveredGroup
from storage.log.wal import Wal
from storage.witness import read_witness, write_witness
from wire.software import CLUSTER_VERSION_BASE

UNSAFE_AFTER_NS: Final = 5_000 * MS
"""The delay of an unsafe recovery, in which the other nodes can say what they know."""


class LocalRecords:
    """Writes its files in the worker's thread, one job at a time."""

    def __init__(self, disk: Disk, directory: Path, worker: Worker, journal: Journal) -> None:
        self._disk, self._directory, self._worker = disk, directory, worker
        self._journal = journal
        self._busy = False
        self._written = read_witness(disk)
        self._lives = read_lives(disk)
        self.admission: Admission | None = None
        self._admission_wanted = self._full = False
        self.cluster_version = self._cluster_version = CLUSTER_VERSION_BASE
        """The present one, and the one that the directory is known to name."""

    def admission_is_durable(self) -> bool:
        """Whether the admission of this incarnation is durable; called while this node takes part.

        Only then may the node register: the incarnation in the registry must be in the directory's
        past at the next start (storage.lives).
        """
        admission = self.admission
        if admission is None or admission.noted:
            return True
        self._admission_wanted = True
        if not self._busy and not self._full:
            lives = self._lives.started(admission.incarnation, admission.incarnation)
            noted = partial(self._admitted, admission, lives)
            self._write(partial(write_lives, self._disk, lives), noted)
        return False

    def _admitted(self, admission: Admission, lives: Lives) -> None:
        self._lives, admission.noted, self._admission_wanted = lives, True, False

    def tick(self) -> None:
        """Write what was witnessed; called once a second. So after a failure of all nodes, about a
        second of a peer's log may not be witnessed."""
        self._full = False
        admission = self.admission
        if self._busy or self._admission_wanted:
            return  # what is small and needed comes first: the disk may be nearly full
        version = self.cluster_version
        if version != self._cluster_version:
            noted = partial(setattr, self, "_cluster_version", version)
            self._write(partial(mark_cluster_version, self._disk, version), noted)
            return
        if admission is not None and (seen := admission.witnessed) != self._written:
            self._write(partial(write_witness, self._disk, seen), partial(self._noted, seen))

    def _write(self, work: Callable[[], None], written: Callable[[], None]) -> None:
        def done(_: None) -> None:
            self._busy = False
            written()

        self._busy = True
        self._worker.submit(work, done, self._not_written)

    def _noted(self, seen: dict[NodeId, tuple[Incarnation, Place]]) -> None:
        self._written = seen

    def _not_written(self, error: StorageError) -> None:
        if not isinstance(error, DiskFull):
            raise error
        self._busy, self._full = False, True  # again at the next tick
        self._journal.debug("local records not written", reason=str(error))

    def close(self) -> None:
        """Write above which incarnation the next one must begin; the worker and the loop have
        ended. On a full disk that costs the reserve, as the start itself does."""
        outlived_by = None if self.admission is None else self.admission.outlived_by
        if outlived_by is None:
            return
        lives = attrs.evolve(self._lives, above=outlived_by)
        try:
            write_with_reserve(self._disk, partial(write_lives, self._disk, lives))
        except DiskFull as full:  # the operator must be told why the directory was refused
            self._journal.error("local records not written", reason=str(full))

    def keep_evidence(self, group: GroupId) -> None:
        def kept(name: str) -> None:
            self._journal.error("evidence kept", group=group, folder=name)

        def failed(error: StorageError) -> None:
            self._journal.error("evidence not kept", group=group, reason=str(error))

        self._worker.submit(partial(keep_evidence, self._directory, group), kept, failed)


def ask_peers(
    config: Config,
    identity: Identity,
    wal: Wal,
    registry: Registry,
    replicas: Mapping[GroupId, Replica],
    disk: Disk,
    recovered: RecoveredLog,
) -> Admission:
    """The admission of this node. A node that founded its cluster alone has no peers to ask; nodes
    that were added since ask it."""
    blank = not recovered.groups
    founded = partial(first_members, founders=config.founders, replicas=config.groups.replicas)

    def quorum_sets() -> list[Collection[NodeId]]:
        """The sets of which enough nodes must know this directory: the members of the registry's
        group; for an empty directory of a founder, all nodes that may have shared a group."""
        if not blank:
            return [replicas[REGISTRY_GROUP].members]
        return [config.peers.keys()] if config.node.id in config.founders else []

    admission = Admission(
        identity.node,
        identity.incarnation,
        INCARNATION_ZERO if blank else identity.previous,
        quorum_sets=quorum_sets,
        nodes=lambda: registry.nodes,
        untouched=untouched_in(wal, recovered, founded),
        witnessed=read_witness(disk),
    )
    if identity.previous == NEVER_ADMITTED and not all(
        found.voting for found in recovered.groups.values()
    ):
        # Peers said that it was emptied. It noted that it does not vote, and lost power halfway.
        # If its node never registered, nobody could tell it again.
        admission.forgetful, admission.settled = True, False
    return admission


def untouched_in(
    wal: Wal,
    recovered: RecoveredLog,
    founded: Callable[[GroupId], Collection[NodeId]],
) -> Callable[[NodeId], bool]:
    """For each node, whether this life has written nothing yet, and earlier ones nothing but
    promises in the groups that the node was founded with (`Admission`). Damage may hide votes."""
    begins_at, intact = wal.end, not wal.known_damage and not recovered.damage
    voted = {group for group, found in recovered.groups.items() if not only_promised(found)}

    def untouched(node: NodeId) -> bool:
        begins = intact and wal.end == begins_at
        return begins and not any(node in founded(group) for group in voted)

    return untouched


def only_promised(found: RecoveredGroup) -> bool:
    """Whether the log has no vote of this node in the group, and never had one."""
    entries = found.applied or found.proven or found.base or found.votes or found.learned
    return found.voting and found.founded and not (entries or found.lost)


class UnsafeOrder:
    """Groups that an operator wants to vote again, even if they have forgotten something."""

    def __init__(self, groups: Collection[GroupId], wal: Wal, journal: Journal) -> None:
        self._groups, self._wal, self._journal = set(groups), wal, journal
        self._alone: list[Replica] = []
        """Groups of one member: what is damaged in their log exists nowhere else."""
        self._due_boot_ns = 0
        self.filled = 0
        """Lost slots that were filled with NoOp."""
        if groups:
            journal.error("unsafe-recover ordered", groups=sorted(groups))

    def tick(self, now: Now, replicas: Mapping[GroupId, Replica], step: Step) -> None:
        """Carry the order out, once, after UNSAFE_AFTER_NS."""
        # Once others have the group as well, they may have what is damaged here.
        self._alone = [one for one in self._alone if one.members == (one.me,)]
        for alone in self._alone:
            self._go_on(now, alone, step)
        if not self._groups:
            return
        if not self._due_boot_ns:
            self._due_boot_ns = now.boot_ns + UNSAFE_AFTER_NS
        if now.boot_ns < self._due_boot_ns:
            return
        groups, self._groups = sorted(self._groups), set()
        for group in groups:
            replica = replicas.get(group)
            if replica is None or not (replica.rejoin is not None or replica.has_gap()):
                self._journal.error("nothing to recover: it votes, or is not here", group=group)
                continue
            rejoin.recover_unsafely(replica, step)
            if replica.members == (replica.me,):
                highest = Slot(self._wal.slots(group).stop - 1)
                rejoin.nothing_is_left_beyond(replica, highest)
                self._alone.append(replica)

    def _go_on(self, now: Now, replica: Replica, step: Step) -> None:
        """Fill a slot that no node has any more; the entries after it are recalled as usual."""
        slot = Slot(replica.learner.applied + 1)
        known = self._wal.slots(replica.group)
        if slot in known and self._wal.readable_to(replica.group, slot, slot) < slot:
            self.filled += 1
            self._journal.error("lost for good", group=replica.group, slot=slot)
            replica.learn(now, slot, NOOP, step)
