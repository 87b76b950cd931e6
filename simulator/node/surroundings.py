"""What a simulated node sees of its world: time, the network, the other nodes, and the objects to
which it reports. `simulator.world.World` has all of it."""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from paxos.base import Base
from paxos.entry import Entry
from paxos.ids import Ballot, GroupId, NodeId, Now, Slot
from paxos.messages import Message
from paxos.multigroup import MultiGroup
from paxos.replica import Replica
from paxos.step import Notice, Step
from simulator.environment.loop import Loop
from simulator.environment.network import Network
from simulator.environment.options import Options
from simulator.environment.trace import Trace
from simulator.node.state_machine import Machine


class Votes(Protocol):
    def voted(
        self, node: NodeId, group: GroupId, slot: Slot, ballot: Ballot, entry: Entry
    ) -> None: ...


class Logs(Protocol):
    def applied(self, node: NodeId, group: GroupId, slot: Slot, entry: Entry) -> None: ...


class UsedBases(Protocol):
    def used(self, node: NodeId, group: GroupId, base: Base) -> None: ...


class Acknowledgements(Protocol):
    def acknowledged(
        self, node: NodeId, group: GroupId, client: int, seq: int, slot: int
    ) -> None: ...


class AnsweredReads(Protocol):
    def answered(
        self, node: NodeId, group: GroupId, floor: Mapping[int, int], value: Mapping[int, int]
    ) -> None: ...


class MemberDeaths(Protocol):
    def heard(self, frame: bytes) -> None: ...

    def notice(self, what: str, detail: str, grace_ms: int) -> None: ...


class Steals(Protocol):
    def requested(self, node: NodeId, group: GroupId, source: NodeId, at_ns: int) -> None: ...

    def ended(self, node: NodeId) -> None: ...


class OtherNode(Protocol):
    life: int


class Surroundings(Protocol):
    loop: Loop
    trace: Trace
    statistics: Counter[str]
    network: Network
    options: Options
    members: dict[GroupId, tuple[NodeId, ...]]
    checkpoint_slots: int
    settles: bool

    @property
    def nodes(self) -> Mapping[NodeId, OtherNode]: ...

    def dice_for(self, node: NodeId, life: int) -> random.Random: ...

    def new_machine(self, group: GroupId) -> Machine: ...

    def fsync_ns(self, node: NodeId) -> int: ...

    def members_now(self, group: GroupId) -> tuple[NodeId, ...]: ...

    # -- reports of the node ------------------------------------------------------------------

    @property
    def chosen(self) -> Votes: ...

    @property
    def agreement(self) -> Logs: ...

    @property
    def bases(self) -> UsedBases: ...

    @property
    def acknowledged(self) -> Acknowledgements: ...

    @property
    def reads(self) -> AnsweredReads: ...

    @property
    def deaths(self) -> MemberDeaths: ...

    @property
    def steals(self) -> Steals: ...

    def died(self, node: NodeId) -> None:
        """It has reached the point where it was doomed to die."""

    def executed(
        self, node: NodeId, group: GroupId, slot: Slot, entry: Entry, results: list[bytes]
    ) -> None: ...

    def leaving(self, message: Message) -> None: ...

    def proposal_seen(self, group: GroupId, slot: Slot, ballot: Ballot, entry: Entry) -> None: ...

    def said(self, core: MultiGroup, now: Now, peer: NodeId, message: Message, step: Step) -> bool:
        """Whether the peer may go on."""

    def noticed(self, node: NodeId, notice: Notice) -> None: ...

    def lease_changed(self, node: NodeId, replica: Replica) -> None: ...

    def suspended(self, node: NodeId, replica: Replica) -> None: ...

    def acts(self, group: GroupId, *, begins: bool) -> None: ...
