"""What the engine needs of the parts around it, and what the links need of the engine."""

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
    """What replicas get that the logs of their peers do not reach back to."""

    def want(self, fetch: FetchState) -> None: ...

    def on_message(self, node: NodeId, message: CatchUpMessage) -> None: ...

    def peer_down(self, node: NodeId) -> None: ...


class Links(Protocol):
    """What the engine needs of the links to other nodes."""

    def send(self, to: NodeId, message: Message) -> None: ...

    def send_bulk(self, to: NodeId, message: Message) -> None:
        """Behind everything that is small."""

    def takes_bulk(self, to: NodeId) -> bool:
        """Whether what was sent before is on its way."""
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
    """Who wants to know what the engine sees."""

    def on_notice(self, now: Now, notice: Notice) -> None: ...

    def may_hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        """The master's registry check of a steal: yes, no, or None for "ask again shortly"."""

    def begin_handover(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        """The registry allows it: prepare, then `hand_over`."""

    def masters_changed(self, now: Now) -> None:
        """Acting or epoch of some group has changed."""

    def groups_applied(self, now: Now, groups: set[GroupId]) -> None:
        """These groups' state machines have applied entries in this round."""


class Handler(Protocol):
    """What the engine does with what peers say."""

    def peer_up(self, node: NodeId, incarnation: Incarnation) -> None: ...

    def peer_down(self, node: NodeId) -> None: ...

    def on_messages(self, sender: NodeId, messages: Iterable[Message]) -> None:
        """Of one frame, in order; decoding them may raise."""

    def on_forward(
        self, sender: NodeId, number: int, group: GroupId, flags: int, command: memoryview
    ) -> None: ...

    def on_forwarded(self, sender: NodeId, number: int, outcome: Outcome) -> None: ...

    def on_clock(self, node: NodeId, offset_ns: int, error_ns: int) -> None: ...

    def on_time(self, node: NodeId, wall_ns: int) -> None:
        """Its wall clock has shown this, some time ago."""

    def on_terms(self, node: NodeId, terms: LeaseTerms) -> None: ...

    def on_draining(self, node: NodeId, draining: bool) -> None: ...

    def on_low(self, node: NodeId, low: bool) -> None: ...

    def on_disk(self, node: NodeId, disk_class: int) -> None:
        """How fast the node's disk is: a class of storage.disk.health."""

    def on_life(self, node: NodeId, life: Life) -> None: ...

    def on_verdict(self, node: NodeId, verdict: Verdict) -> None: ...

    def on_masters(self, node: NodeId, words: list[MasterClaim]) -> None: ...

    def on_catch_up(self, node: NodeId, message: CatchUpMessage) -> None: ...

    def on_refused(self, node: NodeId, why: RefusedFor) -> None: ...

    def life(self, to: NodeId) -> Life | None:
        """What we say of ourselves, first of all and from time to time."""
        ...

    def wall_ns(self) -> int: ...

    def boot_ns(self) -> int: ...
