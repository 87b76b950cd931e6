"""The live halves of the group coordinators: one for each Paxos group this node is master of.

A consumer group belongs to the Paxos group its name hashes to; its state is in that group's log
(`coordinator.store.GroupStore`, kept by the group's state machine on every node), and the master
alone runs a `coordinator.Coordinator` on it. Here masters come and go: a coordinator is elected
when this node may act and has applied all that was chosen before, and resigned when the epoch
changes or the lease is no longer safe. A steal therefore keeps members, generation and assignments;
clients only hear NOT_COORDINATOR and look for the new address.

Nothing is answered on the strength of a mastership that has ended: acting and epoch are looked at
again after the work, right before the answer leaves (protocol.md [R14]).
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

import attrs

from balancer.catalogue import data_groups
from balancer.registry import Registry
from broker.commands import CommandKind, opaque
from broker.intake import Done, Elsewhere, Outcome, Why
from broker.ports import Groups
from coordinator.coordinator import Coordinator, CoordinatorStatistics
from coordinator.hashing import hash_consumer_group
from coordinator.limits import CoordinatorConfig
from coordinator.model import (
    Effects,
    ErrorCode,
    GroupNotice,
    ProposalFailure,
    ProposalId,
    Request,
    Response,
    refusal,
)
from coordinator.store import GroupStore
from paxos.ids import MS, GroupId, Now, Slot

SWEEP_EVERY_NS: Final = 60_000 * MS
"""How often each coordinator looks for offsets whose time is over."""


class HoldsGroupStore(Protocol):
    """What we need of a group's state machine; the store may be another object after a restore."""

    @property
    def consumer_groups(self) -> GroupStore: ...


class _Asked(NamedTuple):
    """A request on its way, kept to be refused if mastership ends before its answer leaves."""

    request: Request
    answered: Callable[[Response], None]


@attrs.define(eq=False)
class _Office:
    """One tenure of one coordinator: it ends with the lease epoch, and is never entered again."""

    group: GroupId
    epoch: int
    coordinator: Coordinator
    swept_boot_ns: int


def paxos_group_of(registry: Registry, consumer_group: str) -> GroupId | None:
    """The Paxos group that keeps a consumer group; None before the cluster is founded."""
    if registry.cluster is None:
        return None
    groups = data_groups(registry.cluster.groups_count)
    return groups[hash_consumer_group(consumer_group, len(groups))]


class ConsumerGroups:
    """`notice` is told what an operator may want to know: rebalances, members gone, pauses."""

    def __init__(
        self,
        groups: Groups,
        machines: Mapping[GroupId, HoldsGroupStore],
        config: CoordinatorConfig,
        notice: Callable[[GroupId, GroupNotice], None],
    ) -> None:
        self._groups = groups
        self._machines = machines
        self._config = config
        self._notice = notice
        self._coordinators: dict[GroupId, tuple[GroupStore, Coordinator]] = {}
        self._offices: dict[GroupId, _Office] = {}

    # -- mastership and time ------------------------------------------------------------------

    def masters_changed(self, now: Now) -> None:
        """Acting or epoch of some group may have changed: open and close offices accordingly."""
        for group in sorted(self._machines):
            self._look(group, now)

    def tick(self, now: Now) -> None:
        """Time passes; call it no later than `next_deadline`."""
        self.masters_changed(now)
        now_ms, wall_ms = now.boot_ns // MS, now.wall_ns // MS
        for office in list(self._offices.values()):
            coordinator = office.coordinator
            due_ms = coordinator.next_deadline()
            if due_ms is not None and due_ms <= now_ms:
                self._carry_out(office, coordinator.tick(now_ms))
            if now.boot_ns - office.swept_boot_ns >= SWEEP_EVERY_NS and self._is_open(office):
                office.swept_boot_ns = now.boot_ns
                self._carry_out(office, coordinator.sweep(now_ms, wall_ms))

    def next_deadline(self) -> int | None:
        """The boot time (ns) by which some coordinator wants to be ticked, None if none does."""
        deadlines = [
            deadline_ms
            for office in self._offices.values()
            if (deadline_ms := office.coordinator.next_deadline()) is not None
        ]
        return min(deadlines) * MS if deadlines else None

    def _look(self, group: GroupId, now: Now) -> _Office | None:
        """The office of a group, opened if it is ours now, closed if it is not any more."""
        acting = self._groups.acting(group)
        epoch = self._groups.epoch(group)
        office = self._offices.get(group)
        if office is not None and (not acting or epoch != office.epoch):
            self._close(office)
            office = None
        if office is None and acting and self._groups.caught_up(group):
            office = self._open(group, epoch, now)
        return office

    def _open(self, group: GroupId, epoch: int, now: Now) -> _Office | None:
        machine = self._machines.get(group)
        if machine is None:
            return None
        store = machine.consumer_groups
        known = self._coordinators.get(group)
        if known is None or known[0] is not store:
            known = (store, Coordinator(store, self._config))
            self._coordinators[group] = known
        office = self._offices[group] = _Office(group, epoch, known[1], now.boot_ns)
        office.coordinator.elected(now.boot_ns // MS, Slot(epoch))
        return office

    def _close(self, office: _Office) -> None:
        """Whoever waits here is told to look elsewhere; what is on its way may yet come true."""
        del self._offices[office.group]
        for reply in office.coordinator.resigned().replies:
            assert isinstance(reply.token, _Asked)
            reply.token.answered(reply.response)

    def _is_open(self, office: _Office) -> bool:
        return self._offices.get(office.group) is office

    # -- requests -----------------------------------------------------------------------------

    def ask(
        self, group: GroupId | None, request: Request, answered: Callable[[Response], None]
    ) -> None:
        """Put a request to the coordinator of a Paxos group; `answered` is called exactly once.

        `answered` must not raise. Where this node is not the coordinator it says so.
        """
        if group is None:
            answered(refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        now = self._groups.now()
        office = self._look(group, now)
        if office is None:
            loading = self._groups.acting(group)
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.NOT_COORDINATOR
            answered(refusal(request, error))
            return
        effects = office.coordinator.handle(now.boot_ns // MS, request, _Asked(request, answered))
        self._carry_out(office, effects)

    def coordinated(self) -> list[GroupId]:
        """The Paxos groups whose consumer groups are this node's to answer for."""
        return [group for group in sorted(self._machines) if self._groups.acting(group)]

    # -- effects ------------------------------------------------------------------------------

    def _carry_out(self, office: _Office, effects: Effects) -> None:
        if effects.replies:
            may_answer = self._may_answer(office)
            for token, response in effects.replies:
                assert isinstance(token, _Asked)
                if not may_answer:
                    response = refusal(token.request, ErrorCode.NOT_COORDINATOR)
                token.answered(response)
        for proposal in effects.proposals:
            self._groups.submit(
                office.group,
                opaque(CommandKind.CONSUMER_GROUP, proposal.command),
                partial(self._on_outcome, office, proposal.proposal_id),
            )
        for notice in effects.notices:
            self._notice(office.group, notice)

    def _may_answer(self, office: _Office) -> bool:
        group = office.group
        return self._groups.acting(group) and self._groups.epoch(group) == office.epoch

    def _on_outcome(self, office: _Office, proposal_id: ProposalId, outcome: Outcome) -> None:
        """A command was applied, or will not be as far as this tenure is concerned."""
        if not self._is_open(office):
            return
        verdict: bytes | ProposalFailure
        match outcome:
            case Done(result=result):
                verdict = result
            case Elsewhere(why=Why.OVERLOADED):
                verdict = ProposalFailure.OVERLOADED
            case Elsewhere():
                verdict = ProposalFailure.NOT_MASTER
        now_ms = self._groups.now().boot_ns // MS
        self._carry_out(office, office.coordinator.on_committed(now_ms, proposal_id, verdict))

    # -- statistics ---------------------------------------------------------------------------

    def statistics(self) -> Iterator[tuple[GroupId, CoordinatorStatistics]]:
        """Of all coordinators this process ever ran, by Paxos group."""
        for group, (_, coordinator) in sorted(self._coordinators.items()):
            yield group, coordinator.statistics()
