"""The state in a checkpoint must follow from the chosen log, whichever node made it."""

from collections.abc import Mapping, Sequence

from crc32c import crc32c

from paxos.base import Base
from paxos.entry import Config, decode
from paxos.ids import SLOT_ZERO, GroupId, NodeId, Slot
from simulator.environment.violation import Violation

Members = tuple[NodeId, ...]


class Bases:
    """`logs` are those that all nodes agree on; `founders` the members at the beginning."""

    def __init__(
        self, logs: Mapping[GroupId, Sequence[bytes]], founders: Mapping[GroupId, Members]
    ) -> None:
        self._logs, self._founders = logs, founders
        self._chains: dict[GroupId, list[int]] = {}
        self._configs: dict[GroupId, list[tuple[Slot, Members]]] = {}
        self.count = 0

    def used(self, node: NodeId, group: GroupId, base: Base) -> None:
        """A node continues from this base, after a restart or in place of a log that is gone."""
        self.count += 1
        log = self._logs[group]
        if base.slot > len(log):
            raise Violation(f"I3: node {node} has a base at {base.slot} of group {group}")
        self._read(group, base.slot)
        if base.chain != self._chains[group][base.slot - 1]:
            raise Violation(f"I3: node {node}, group {group}: the base at {base.slot} is another's")
        known = [one for one in self._configs[group] if one[0] <= base.slot]
        configured, members = known[-1]
        if (base.configured, base.members) != (configured, members):
            raise Violation(
                f"I3: node {node}, group {group}: members {base.members} of {base.configured} at "
                f"{base.slot}, they are {members} of {configured}"
            )

    def _read(self, group: GroupId, until: Slot) -> None:
        chains = self._chains.setdefault(group, [])
        founders = tuple(sorted(self._founders[group]))
        configs = self._configs.setdefault(group, [(SLOT_ZERO, founders)])
        for value in self._logs[group][len(chains) : until]:
            chains.append(crc32c(value, chains[-1] if chains else 0))
            control = decode(memoryview(value)).control
            if isinstance(control, Config):
                configs.append((Slot(len(chains)), tuple(sorted(control.members))))
