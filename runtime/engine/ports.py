"""The interfaces of the parts around the engine, and that of the engine for the links."""

from collections.abc import Iterable
from typing import Protocol

from broker.proposals.intake import Outcome
from broker.transfer.messages import Message as CatchUpMessage
from paxos.entry import Buffer, Entry
from paxos.ids import GroupId, Incarnation, NodeId, Now, Slot
from paxos.messages import Message, StealRequest
from paxos.step import FetchState, Notice
from runtime.membership.admission import Life, Verdict
from runtime.membership.handshake import RefusalReason as RefusedFor
from runtime.membership.lease_terms import LeaseTerms
from runtime.membership.masters import MasterClaim


class Machine(Protocol):
    """The replicated state machine of one group."""

    def apply(
        self, slot: Slot, entry: Entry, position: int, *, keep_in_tail: bool, answer: bool
    ) -> list[bytes]: ...

    def relocate(self, entry: Entry, old: int, new: int) -> None: ...


class CatchingUp(Protocol):
    """State transfer, for replicas that the logs of their peers do not reach back to."""

    def want(self, fetch: FetchState) -> None: ...

    def on_message(self, node: NodeId, message: CatchUpMessage) -> None: ...

    def peer_down(self, node: NodeId) -> None: ...


class Links(Protocol):
    """The links to other nodes."""

    def send(self, to: NodeId, message: Message) -> None: ...

    def send_bulk(self, to: NodeId, message: Message) -> None:
        """Send a large message, after all small ones."""

    def takes_bulk(self, to: NodeId) -> bool:
        """Whether earlier large messages have left, so that another may be sent."""
        ...

    def forward(
        self,
        to: NodeId,
        number: int,
        group: GroupId,
        flags: int,
        chunks: tuple[Buffer, ...],
        size: int,
    ) -> bool: ...

    def answer_forward(self, to: NodeId, number: int, outcome: Outcome) -> None: ...

    def answer_life(self, to: NodeId, verdict: Verdict) -> None: ...

    def connected(self, node: NodeId) -> bool: ...

    def flush(self) -> None: ...


class Hooks(Protocol):
    """What the engine reports to the shell."""

    def on_notice(self, now: Now, notice: Notice) -> None: ...

    def may_hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        """Whether the registry allows a steal; None: not known yet, ask again shortly."""

    def begin_handover(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        """The registry allows it: prepare, then `hand_over`."""

    def masters_changed(self, now: Now) -> None:
        """The master or epoch of some group has changed, or whether we act for it."""

    def groups_applied(self, now: Now, groups: set[GroupId]) -> None:
        """These groups' state machines have applied entries in this round."""


class Handler(Protocol):
    """How the links pass on what peers send."""

    def peer_up(self, node: NodeId, incarnation: Incarnation) -> None: ...

    def peer_down(self, node: NodeId) -> None: ...

    def on_messages(self, sender: NodeId, messages: Iterable[Message]) -> None:
        """The messages of one frame, in order; iterating decodes them and may raise."""

    def on_forward(
        self, sender: NodeId, number: int, group: GroupId, flags: int, command: memoryview
    ) -> None: ...

    def on_forwarded(self, sender: NodeId, number: int, outcome: Outcome) -> None: ...

    def on_clock(self, node: NodeId, offset_ns: int, error_ns: int) -> None: ...

    def on_time(self, node: NodeId, wall_ns: int) -> None:
        """The node's wall clock showed this time, some time ago."""

    def on_terms(self, node: NodeId, terms: LeaseTerms) -> None: ...

    def on_draining(self, node: NodeId, draining: bool) -> None: ...

    def on_low(self, node: NodeId, low: bool) -> None: ...

    def on_disk(self, node: NodeId, disk_class: int) -> None:
        """The class of the node's disk (storage.disk.health)."""

    def on_life(self, node: NodeId, life: Life) -> None: ...

    def on_verdict(self, node: NodeId, verdict: Verdict) -> None: ...

    def on_masters(self, node: NodeId, words: list[MasterClaim]) -> None: ...

    def on_catch_up(self, node: NodeId, message: CatchUpMessage) -> None: ...

    def on_refused(self, node: NodeId, why: RefusedFor) -> None: ...

    def life(self, to: NodeId) -> Life | None:
        """Our own life, to be sent first and then periodically; None: none is sent."""
        ...

    def wall_ns(self) -> int: ...

    def boot_ns(self) -> int: ...
