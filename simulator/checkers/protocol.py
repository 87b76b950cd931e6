"""What must hold in every world (docs/protocol.md, "Invariants"), each as an object of its own.

The checkers see everything: entries as they are proposed, voted for on disk, and applied on any
node, and what clients are told. None of them asks the code under test for its opinion.
"""

from collections.abc import Mapping

import attrs

from paxos.entry import Entry
from paxos.ids import Ballot, Epoch, GroupId, Incarnation, NodeId, Slot
from paxos.lease import Lease
from simulator.environment.violation import Violation
from simulator.node.state_machine import Machine


def encoding(entry: Entry) -> bytes:
    chunks = entry.chunks
    return bytes(chunks[0]) if len(chunks) == 1 else b"".join(chunks)


class OneValuePerBallot:
    """I1: no node ever proposes, or votes for, two values in one slot at one ballot (R2)."""

    def __init__(self) -> None:
        self._values: dict[tuple[GroupId, Slot, Ballot], bytes] = {}

    def seen(self, group: GroupId, slot: Slot, ballot: Ballot, entry: Entry) -> None:
        value = encoding(entry)
        known = self._values.setdefault((group, slot, ballot), value)
        if known != value:
            raise Violation(f"I1: two values at group {group} slot {slot} {ballot}")


class Chosen:
    """I2, from the votes on disk alone: a majority of one configuration at one ballot is a choice.

    Only for groups whose members never change: otherwise the majority depends on the ballot.
    """

    def __init__(self, members: Mapping[GroupId, tuple[NodeId, ...]]) -> None:
        self._members = dict(members)
        self._voters: dict[tuple[GroupId, Slot, Ballot], set[NodeId]] = {}
        self._values: dict[tuple[GroupId, Slot], bytes] = {}

    def set_members(self, members: Mapping[GroupId, tuple[NodeId, ...]]) -> None:
        self._members = dict(members)

    def members_change(self, group: GroupId) -> None:
        self._members.pop(group, None)

    def voted(self, node: NodeId, group: GroupId, slot: Slot, ballot: Ballot, entry: Entry) -> None:
        members = self._members.get(group)
        if members is None or node not in members:
            return
        voters = self._voters.setdefault((group, slot, ballot), set())
        voters.add(node)
        if 2 * len(voters) > len(members):
            value = encoding(entry)
            known = self._values.setdefault((group, slot), value)
            if known != value:
                raise Violation(
                    f"I2: group {group} slot {slot}: a second value is chosen, at {ballot} by "
                    f"{sorted(voters)}"
                )


class Agreement:
    """I2, I3: all nodes apply prefixes of one log; its model is the stand-in's state machine."""

    def __init__(self, models: Mapping[GroupId, Machine | None]) -> None:
        self.logs: dict[GroupId, list[bytes]] = {group: [] for group in models}
        self.models = models

    def applied(self, node: NodeId, group: GroupId, slot: Slot, entry: Entry) -> None:
        log, value = self.logs[group], encoding(entry)
        if slot == len(log) + 1:
            log.append(value)
            model = self.models[group]
            if model is not None:
                model.apply(slot, entry)
        elif slot > len(log) or log[slot - 1] != value:
            raise Violation(
                f"I3: node {node} applies another entry in group {group} slot {slot}: "
                f"{entry.kind.name} {entry.control}"
            )


class Results:
    """I3 for the results of the state machines: the same on every node, in every life."""

    def __init__(self) -> None:
        self._results: dict[tuple[GroupId, Slot], list[bytes]] = {}

    def applied(self, node: NodeId, group: GroupId, slot: Slot, results: list[bytes]) -> bool:
        """Returns whether no node has applied this slot before."""
        if not results:
            return False
        known = self._results.setdefault((group, slot), results)
        if known != results:
            raise Violation(
                f"I3: node {node} makes {results} of group {group} slot {slot}, others {known}"
            )
        return known is results


class OneMaster:
    """I4: at any true time at most one node acts for a group, while clocks are within the bound."""

    def __init__(self, *, enforced: bool) -> None:
        self._enforced = enforced
        self.seen_two = 0

    def acting(self, group: GroupId, nodes: list[NodeId]) -> None:
        if len(nodes) > 1:
            self.seen_two += 1
            if self._enforced:
                raise Violation(f"I4: nodes {nodes} all act for group {group}")


class Acknowledged:
    """I6: what was acknowledged is in the log, once, where the answer said, in sequence order."""

    def __init__(self, agreement: Agreement) -> None:
        self._agreement = agreement
        self.highest: dict[GroupId, dict[int, int]] = {group: {} for group in agreement.logs}
        self.count = 0

    def acknowledged(self, node: NodeId, group: GroupId, client: int, seq: int, slot: int) -> None:
        model = self._agreement.models[group]
        assert model is not None
        slots = model.where.get(client, [])
        if seq > len(slots):
            raise Violation(
                f"I6: node {node} acknowledged {client}/{seq} of group {group}, which is not in "
                f"the log (executed up to {len(slots)})"
            )
        if slots[seq - 1] != slot:
            raise Violation(
                f"I6: node {node} said slot {slot} for {client}/{seq} of group {group}, which was "
                f"executed in slot {slots[seq - 1]}"
            )
        highest = self.highest[group]
        highest[client] = max(seq, highest.get(client, 0))
        self.count += 1

    def floor(self, group: GroupId) -> dict[int, int]:
        """What a read that begins now must see."""
        return dict(self.highest[group])


class Reads:
    """I7: a read returns everything that was acknowledged before it began."""

    def __init__(self, *, enforced: bool) -> None:
        self._enforced = enforced
        self.count = 0
        self.stale = 0

    def answered(
        self, node: NodeId, group: GroupId, floor: Mapping[int, int], value: Mapping[int, int]
    ) -> None:
        self.count += 1
        for client, seq in floor.items():
            if value.get(client, 0) < seq:
                self.stale += 1
                if self._enforced:
                    raise Violation(
                        f"I7: node {node} read group {group} and missed {client}/{seq}, "
                        f"acknowledged before: {value.get(client, 0)}"
                    )


@attrs.frozen
class LeaseRecord:
    holder: NodeId
    incarnation: Incarnation
    epoch: Epoch
    expires_wall_ns: int


class Leases:
    """The lease is replicated state: equal wherever a version is applied; and I8."""

    def __init__(self) -> None:
        self._records: dict[tuple[GroupId, Slot], LeaseRecord] = {}
        self._latest: dict[GroupId, Slot] = {}

    def seen(self, node: NodeId, group: GroupId, lease: Lease, *, stolen: bool = False) -> bool:
        """Returns whether this version is new to the cluster. `stolen`: a Steal made it, which may
        move the expiry nearer (Strategy.MOVE_EXPIRY); its author was suspended before."""
        record = LeaseRecord(lease.holder, lease.incarnation, lease.epoch, lease.expires_wall_ns)
        known = self._records.get((group, lease.ver))
        if known is not None:
            if known != record:
                raise Violation(f"group {group} lease {lease.ver}: {known}, node {node}: {record}")
            return False
        self._records[group, lease.ver] = record
        latest = self._latest.get(group)
        if latest is not None and latest < lease.ver:
            before = self._records[group, latest]
            same = before.epoch == record.epoch and not stolen
            if same and record.expires_wall_ns < before.expires_wall_ns:
                raise Violation(f"I8: group {group} lease {lease.ver} shortens {latest}")
        if latest is None or latest < lease.ver:
            self._latest[group] = lease.ver
        return True
