"""Recovering a node's groups from its files: first checkpoints, then the log above them.

If a checkpoint is damaged, the older one is used and more of the log is replayed. If both are, the
group starts empty or with what the log still has, non-voting, and gets its state from a peer
(broker.transfer).
"""

from collections.abc import Collection, Mapping

from balancer.registry.registry import Registry
from broker.state_machine.checkpoint_chunks import ImageError, base_of, decode_chunk
from broker.state_machine.machine import GroupMachine
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from paxos.base import Base, BaseError
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId, Now, Slot
from paxos.replica import Replica
from paxos.state.core import Recovered
from runtime.config.config import Config
from runtime.system.journal import Journal
from storage.checkpoints import Checkpoint, CheckpointFiles
from storage.errors import DirectoryRefused
from storage.format import Place
from storage.identity import Identity
from storage.log.model import Recovered as RecoveredLog
from storage.log.model import RecoveredGroup
from storage.log.wal import Wal


def read_checkpoints(files: CheckpointFiles, journal: Journal) -> dict[GroupId, Checkpoint]:
    """The newest intact checkpoint of every group that has one. This also reads what older ones
    need of the log, so that retiring it later does not wait for the disk."""
    found: dict[GroupId, Checkpoint] = {}
    for group in files.groups():
        files.needs(group)
        checkpoint = files.load(group)
        if checkpoint is None:
            continue
        for name in checkpoint.damaged:
            journal.error("checkpoint damaged", group=group, file=name, lost=checkpoint.lost)
        if not checkpoint.lost:
            found[group] = checkpoint
    return found


def say_what_was_found(
    journal: Journal, identity: Identity, recovered: RecoveredLog, *, checkpoints: int
) -> None:
    journal.info(
        "log opened",
        incarnation=identity.incarnation,
        checkpoints=checkpoints,
        records=recovered.records,
        bytes=recovered.bytes_read,
        cut=None if recovered.cut is None else str(recovered.cut),
        damage=[str(hole) for hole in recovered.damage],
    )
    for name in identity.damaged:
        journal.error("damaged file replaced by its copy", file=name)


def log_bases(checkpoints: Mapping[GroupId, Checkpoint]) -> dict[GroupId, tuple[Slot, int]]:
    """The slot and segment from which the log of each group is needed (storage.log.opening)."""
    return {group: (one.slot, one.needs) for group, one in checkpoints.items()}


def restore(machine: GroupMachine, checkpoint: Checkpoint, log_from: Place) -> Base:
    """Load the checkpoint into the machine, and return the replica's part of it. The log now begins
    at `log_from`.

    Raises:
        DirectoryRefused: the file is intact, but another version wrote it that we cannot read.
    """
    try:
        chunks = [decode_chunk(chunk) for chunk in checkpoint.chunks]
        base = base_of(chunks)
        machine.restore(base.slot, chunks, log_from=log_from)
    except (ImageError, BaseError) as error:
        raise DirectoryRefused(
            f"the checkpoint of group {checkpoint.group} at slot {checkpoint.slot}: {error}"
        ) from error
    return base


def as_paxos(found: RecoveredGroup | None, base: Base | None) -> Recovered | None:
    """What storage recovered, as the type of the core."""
    if found is None:
        return None if base is None else Recovered(base=base)
    return Recovered(
        promised=found.promised,
        votes=found.votes,
        learned=found.learned,
        voting=found.voting,
        floor=found.floor,
        base=base,
        proven=found.proven,
        lost=found.lost,
    )


def replay(wal: Wal, now: Now, replica: Replica, machine: GroupMachine, end: Slot) -> None:
    """Apply the entries in the log above the base, up to `end`."""
    start = Slot(replica.learner.applied + 1)
    for slot, entry, position in wal.replay(replica.group, start, end):
        replica.replay(now, slot, entry)
        machine.apply(slot, entry, position, keep_in_tail=False, answer=False)
    machine.take_grown()


def refuse_alone(
    config: Config,
    recovered: RecoveredLog,
    witnessed: Collection[NodeId],
    ordered: Collection[GroupId] = (),
) -> None:
    """Refuse a damaged log if there is no other node to repair it from. `witnessed` are the nodes
    seen by earlier incarnations: a cluster that began with this node may have grown.

    Raises:
        DirectoryRefused: there is no other node, so this node could never vote again.
    """
    silent = sorted(
        group
        for group, found in recovered.groups.items()
        if (not found.voting or found.proven > found.applied) and group not in ordered
    )
    if silent and len(config.peers) == 1 and not witnessed:
        where = "; ".join(str(hole) for hole in recovered.damage) or "see an earlier start's log"
        raise DirectoryRefused(
            f"the log is damaged in groups {', '.join(map(str, silent))} and there is no other "
            f"node to learn from: restore the directory from a copy made after the last stop, or "
            f"go on without what was lost: evenkeel data unsafe-recover ({where})"
        )


def scratch_machine(group: GroupId) -> GroupMachine:
    """A machine that is only used to check whether a peer's state can be loaded."""
    return GroupMachine(
        group,
        tail=Tail(0),
        statistics=BrokerStatistics(),
        registry=Registry() if group == REGISTRY_GROUP else None,
    )
