"""Producers that a partition does not know, and whose first sequence number is not 0.

They continue from somewhere: from an earlier topic of this name, or from before the partition
forgot them. Kafka lets an unknown producer begin anywhere. Here that alone would not be safe: a
batch may be chosen whose predecessor is not, because the master died between the two; appended as a
beginning, it would precede the retried one (found by the swarm: seed 22 with brokers).

So the log refuses such a batch at first. By the time the master sees the refusal, everything before
the batch has been applied or is lost. If the producer is still unknown, the master records that it
begins here, under its epoch, and proposes the batch again. Only the batch that was refused first is
a beginning; those behind it follow it, or are refused.

A predecessor may also have been sent to the previous master, and be on its way here through another
connection. So a new master first waits as long as for any gap, with an answer that clients retry
(`broker.producers.sequence_gaps`): from when it became master, or from when it first saw the batch,
if masters change more quickly.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from balancer.registry.records import PartitionPlace
from broker.ports import Groups
from broker.producers.sequence_gaps import PATIENCE_NS, SequenceGaps
from broker.proposals.commands import admit, fenced
from broker.proposals.intake import Outcome
from paxos.ids import GroupId, Now
from wire.records.batch import BatchHeader

if TYPE_CHECKING:
    from broker.state_machine.machine import GroupMachine


class UnknownProducers:
    def __init__(
        self, groups: Groups, machines: Mapping[GroupId, "GroupMachine"], gaps: SequenceGaps
    ) -> None:
        self._groups = groups
        self._gaps = gaps
        self._machines = machines
        self._since: dict[GroupId, tuple[int, int]] = {}
        """Per Paxos group: its epoch, and when this node learnt of it."""
        self._under_way: set[tuple[int, int]] = set()
        """Producer ids and partition uids whose admission waits for the log."""

    def masters_changed(self, now: Now) -> None:
        for group in self._machines:
            epoch = self._groups.epoch(group)
            known = self._since.get(group)
            if known is None or known[0] != epoch:
                self._since[group] = (epoch, now.boot_ns)

    def is_unknown(self, place: PartitionPlace, producer_id: int) -> bool:
        """Whether the partition, as applied here, does not know this producer."""
        machine = self._machines.get(place.group)
        state = None if machine is None else machine.partitions.get(place.uid)
        return state is None or producer_id not in state.producers

    def may_begin(self, place: PartitionPlace, header: BatchHeader) -> bool:
        """The log has refused this batch of an unknown producer. True if it should be proposed
        again: the producer begins with it, or with an earlier one."""
        group, groups = place.group, self._groups
        if not groups.acting(group) or not groups.caught_up(group):
            return False
        if not self.is_unknown(place, header.producer_id):
            return True  # it has begun since
        key = (header.producer_id, place.uid)
        if key in self._under_way:
            return True
        epoch = groups.epoch(group)
        heard_epoch, since = self._since.get(group, (epoch, -PATIENCE_NS))
        now_ns = groups.now().boot_ns
        is_new = heard_epoch != epoch or now_ns - since < PATIENCE_NS
        if is_new and self._gaps.may_close(header.producer_id, place.uid, now_ns):
            return False
        self._under_way.add(key)
        command = admit(place.uid, header.producer_id, header.producer_epoch, header.base_sequence)
        groups.submit(group, fenced(epoch, command), partial(self._on_outcome, key))
        return True

    def _on_outcome(self, key: tuple[int, int], _outcome: Outcome) -> None:
        self._under_way.discard(key)
