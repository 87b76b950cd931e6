"""The live halves of the group coordinators: one for each Paxos group this node is master of.

A consumer group belongs to the Paxos group its name hashes to. Its state is in that Paxos group's
log (`coordinator.replicated.store.GroupStore`, kept by the state machine on every node), and only
the master runs a `coordinator.Coordinator` on it. This module handles changes of mastership: a
coordinator is elected when this node may act and has applied all that was chosen before, and
resigned when the epoch changes. A steal therefore keeps members, generation and assignments. What
members ask the old node then is passed on to the new one (`broker.groups.forwarded_requests`);
whoever cannot be helped in this way gets NOT_COORDINATOR, and looks up the new address.

While the Paxos group is being handed over, this node may not act, and there is no other master yet:
a client sent away then would be sent back here by any node it asks, and librdkafka, once in such a
circle, may stay in it until its session ends (seen with 2.16). So a tenure is suspended first, and
requests and answers wait until the epoch changes, or until it turns out that this node stays
master.

Nothing is answered under a mastership that has ended: acting and epoch are checked again after the
work, right before the answer leaves (R14). Nor is anything changed under it: each
command names the epoch it was decided in, and the log refuses it in any other ([F1]). So a client
can be told for certain that its change will not be made, or that its outcome is unknown ([F2]).
"""

import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple, Protocol

import attrs

from balancer.registry.catalogue import data_groups
from balancer.registry.registry import Registry
from broker.formats import FormatGate, Place
from broker.groups.forwarded_requests import RequestForwarding, sends_away
from broker.groups.topic_patterns import matching
from broker.ports import Groups
from broker.proposals.commands import CommandKind, fenced, opaque
from broker.proposals.intake import Done, FailureReason, NotDone, Outcome
from coordinator.carried import CARRIED
from coordinator.coordinator import Coordinator, CoordinatorStatistics
from coordinator.limits import CoordinatorConfig
from coordinator.model import (
    ConsumerGroupId,
    Effects,
    ErrorCode,
    GroupNotice,
    ProposalFailure,
    ProposalId,
    Reply,
    Request,
    Response,
    Token,
    fate_unknown,
    refusal,
)
from coordinator.replicated.commands import CommandKind as CoordinatorKind
from coordinator.replicated.commands import decode_result
from coordinator.replicated.store import GroupStore
from coordinator.replicated.stored import StoredGroup
from coordinator.topics import Topics
from paxos.ids import MS, GroupId, NodeId, Now, Slot


def hash_consumer_group(name: str, groups_count: int) -> int:
    """The index, 0 to `groups_count` - 1, of the Paxos group whose log holds consumer group `name`.

    CRC-32 of the UTF-8 name. Unlike `hash()` it is the same in every process and every release: one
    node directs clients to the coordinator, another looks up the committed offsets.
    """
    assert groups_count > 0
    return zlib.crc32(name.encode()) % groups_count


MIXED: Final = int(CoordinatorKind.ASSIGNED_SNAPSHOT_MIXED)
SWEEP_EVERY_NS: Final = 60_000 * MS
"""How often each coordinator looks for expired offsets."""
SUSPENDED_NS_MAX: Final = 1_000 * MS
"""A handover takes milliseconds; if it takes longer than this, clients must find the
coordinator."""
LOADING_NS_MAX: Final = 1_000 * MS
"""A new master catches up within milliseconds; a request that waits longer is refused. Until then
clients are spared the error, because some pass it on: a waiting commit of librdkafka does."""
WAITING_MAX: Final = 10_000
"""Waiting requests of one coordinator that is suspended or loading, each; further ones get
COORDINATOR_LOAD_IN_PROGRESS."""


class HasGroupStore(Protocol):
    """What we need of a Paxos group's state machine; after a restore its store may be another
    object."""

    @property
    def consumer_groups(self) -> GroupStore: ...


class _Asked(NamedTuple):
    """A request under way, kept so that it can be refused if mastership ends before its answer
    leaves."""

    request: Request
    answered: Callable[[Response], None]
    number: int = 0
    """That of the forwarding, if that can pass the request on."""


@attrs.define(eq=False)
class _Tenure:
    """One tenure of one coordinator: it ends with the lease's epoch and is never resumed
    afterwards.

    While it is suspended, `held` has answers that may not leave, and `waiting` requests not yet
    seen by the coordinator.
    """

    group: GroupId
    epoch: int
    coordinator: Coordinator
    suspended_boot_ns: int | None = None
    held: list[Reply] = attrs.Factory(list)
    waiting: list[_Asked] = attrs.Factory(list)
    left: dict[ProposalId, Token] = attrs.Factory(dict)
    """Requests that wait, after the tenure's end, for the outcome of a change."""


@attrs.define(eq=False)
class _Loading:
    """Requests to a master that is not up to date yet, and since when they have waited."""

    since_boot_ns: int
    waiting: list[_Asked] = attrs.Factory(list)

    def overdue(self, now: Now) -> bool:
        return now.boot_ns - self.since_boot_ns > LOADING_NS_MAX

    def refuse(self, error: ErrorCode) -> None:
        waiting, self.waiting = self.waiting, []
        for request, answered, _ in waiting:
            answered(refusal(request, error))


def _asked(token: Token) -> _Asked:
    assert isinstance(token, _Asked)
    return token


def paxos_group_of(registry: Registry, consumer_group: str) -> GroupId | None:
    """The Paxos group that keeps a consumer group; None before the cluster is founded."""
    if registry.cluster is None:
        return None
    groups = data_groups(registry.cluster.groups_count)
    return groups[hash_consumer_group(consumer_group, len(groups))]


class TopicsOf:
    """The registry's topics as coordinators see them, rebuilt only when they change."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._topics = Topics(-1, {})

    def __call__(self) -> Topics:
        version = self._registry.versions.topics
        if version != self._topics.version:
            ids = {
                name: (topic.topic_id, len(topic.partitions))
                for name, topic in self._registry.topics.items()
            }
            uids = {
                name: tuple(place.uid for place in topic.partitions)
                for name, topic in self._registry.topics.items()
            }
            self._topics = Topics(version, ids, uids, self._registry.next_uid)
        return self._topics


class ConsumerGroups:
    """`notice` is called with what an operator may want to know: rebalances, lost members, pauses.

    `topics` are the topics for broker-side assignment (KIP-848). `secret` draws 16 random bytes for
    each tenure.
    """

    def __init__(
        self,
        groups: Groups,
        machines: Mapping[GroupId, HasGroupStore],
        config: CoordinatorConfig,
        notice: Callable[[GroupId, GroupNotice], None],
        topics: Callable[[], Topics],
        secret: Callable[[], bytes],
        group_of: Callable[[str], GroupId | None] = lambda _name: None,
        formats: FormatGate | None = None,
    ) -> None:
        self._formats = formats
        self._group_of = group_of
        self._topics = topics
        self._secret = secret
        self._topics_seen = topics()
        self._groups = groups
        self._machines = machines
        self.config = config
        self._notice = notice
        self._coordinators: dict[GroupId, tuple[GroupStore, Coordinator]] = {}
        self._tenures: dict[GroupId, _Tenure] = {}
        self._loading: dict[GroupId, _Loading] = {}
        self._coordinated: set[GroupId] = set()
        self.forwarding: RequestForwarding | None = None
        """None: no request is passed on to other nodes."""
        self._swept: dict[GroupId, int] = {}
        """When this node last looked for expired offsets; not per mastership, or masters that move
        often would never look."""
        self._latest_ms = 0
        self._unsettled = True
        """Some tenure is suspended, or is to be opened as soon as the Paxos group has caught up."""

    # -- mastership and time ------------------------------------------------------------------

    def _ms(self, now: Now) -> int:
        """The time for coordinators, which never goes back. Several callers read the clock in one
        round: a handover or a refusal may come after a tick began; then its later time holds."""
        self._latest_ms = max(self._latest_ms, now.boot_ns // MS)
        return self._latest_ms

    def masters_changed(self, now: Now) -> None:
        """Acting or the epoch of some Paxos group may have changed: open and close tenures
        accordingly."""
        self._unsettled = False
        for group in sorted(self._machines):
            self._look(group, now)
        if self.forwarding is not None:
            self.forwarding.look(now)

    def tick(self, now: Now) -> None:
        """Time passes; call it no later than `next_deadline`.

        Mastership is checked only where something waits for it: `masters_changed` reports changes.
        """
        if self._unsettled:
            self.masters_changed(now)
        wall_ms, has_swept = now.wall_ns // MS, False
        for tenure in list(self._tenures.values()):
            if tenure.suspended_boot_ns is not None:
                continue
            coordinator = tenure.coordinator
            due_ms = coordinator.next_deadline()
            if due_ms is not None and due_ms <= self._ms(now):
                self._carry_out(tenure, coordinator.tick(self._ms(now)))
            swept = self._swept.get(tenure.group)
            due = swept is None or now.boot_ns - swept >= SWEEP_EVERY_NS
            if due and not has_swept and self._is_open(tenure):  # one per tick: it takes a while
                has_swept = True
                self._swept[tenure.group] = now.boot_ns
                self._carry_out(tenure, coordinator.sweep(self._ms(now), wall_ms))
        self._look_for_deleted()
        if self.forwarding is not None:
            self.forwarding.tick(now)

    def _look_for_deleted(self) -> None:
        """When topics have been deleted, the coordinators forget their offsets; one that misses it
        catches up in its next sweep."""
        before, self._topics_seen = self._topics_seen, self._topics()
        if before.version == self._topics_seen.version:
            return
        ids = self._topics_seen.ids
        if any(
            name not in ids or ids[name][0] != topic_id
            for name, (topic_id, _) in before.ids.items()
        ):
            for tenure in self._tenures.values():
                tenure.coordinator.topics_gone()

    def _look(self, group: GroupId, now: Now) -> _Tenure | None:
        """The tenure of a Paxos group: opened if it is ours now, closed if it no longer is."""
        acting = self._groups.acting(group)
        epoch = self._groups.epoch(group)
        tenure = self._tenures.get(group)
        if tenure is not None and epoch != tenure.epoch:
            self._close(tenure)
        elif tenure is not None and not acting:
            self._suspend(tenure, now)
        elif tenure is not None and tenure.suspended_boot_ns is not None:
            self._resume(tenure)
        if group not in self._tenures:
            self._load(group, acting, epoch, now)
        return self._tenures.get(group)

    def _load(self, group: GroupId, acting: bool, epoch: int, now: Now) -> None:
        """Open a new master's tenure as soon as it may act; requests wait until then."""
        loading = self._loading.get(group)
        if not acting:
            if loading is not None:
                del self._loading[group]
                loading.refuse(ErrorCode.NOT_COORDINATOR)
            return
        self._unsettled = True
        if self._groups.caught_up(group):
            self._open(group, epoch, now)
            self._loading.pop(group, None)
            for asked in loading.waiting if loading is not None else ():
                self.ask_here(group, *asked)
        elif loading is None:
            self._loading[group] = _Loading(now.boot_ns)
        elif loading.overdue(now):
            loading.refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def _open(self, group: GroupId, epoch: int, now: Now) -> None:
        machine = self._machines.get(group)
        if machine is None:
            return
        store = machine.consumer_groups
        known = self._coordinators.get(group)
        if known is None or known[0] is not store:
            known = (
                store,
                Coordinator(store, self.config, self._topics, matching, self._no_mixing),
            )
            self._coordinators[group] = known
        self._coordinated.add(group)
        tenure = self._tenures[group] = _Tenure(group, epoch, known[1])
        tenure.coordinator.elected(self._ms(now), Slot(epoch), self._secret())

    def _no_mixing(self) -> str:
        if self._formats is None:
            return ""
        return self._formats.problem(Place.COORDINATOR, MIXED)

    def _suspend(self, tenure: _Tenure, now: Now) -> None:
        """This node may not act, and no other node does: wait for the outcome, but not for long."""
        self._unsettled = True
        if tenure.suspended_boot_ns is None:
            tenure.suspended_boot_ns = now.boot_ns
        elif now.boot_ns - tenure.suspended_boot_ns > SUSPENDED_NS_MAX:
            self._close(tenure)

    def _resume(self, tenure: _Tenure) -> None:
        """Continue the same tenure: no other node was master in between, so our state is valid."""
        tenure.suspended_boot_ns = None
        held, tenure.held = tenure.held, []
        waiting, tenure.waiting = tenure.waiting, []
        self._carry_out(tenure, Effects(replies=held))
        for asked in waiting:
            self.ask_here(tenure.group, *asked)

    def _close(self, tenure: _Tenure) -> None:
        """Redirect waiting requests, or keep them until their outcome is known."""
        del self._tenures[tenure.group]
        effects, tenure.left = tenure.coordinator.resigned()
        if self.forwarding is not None:
            for token in tenure.left.values():
                self.forwarding.left(tenure.group, _asked(token).number, tenure.epoch)
        self._answer_late(tenure.held)
        nobody_saw = [_asked(reply.token) for reply in effects.replies] + tenure.waiting
        for request, answered, _ in nobody_saw:
            answered(refusal(request, ErrorCode.NOT_COORDINATOR))

    def handing_over(self, group: GroupId) -> bool:
        """Call it before the Paxos group is handed to another node: the remaining time of members'
        sessions goes into the log first. Returns whether there is a command to wait for."""
        tenure = self._tenures.get(group)
        if tenure is None or tenure.suspended_boot_ns is not None:
            return False
        effects = tenure.coordinator.handing_over(self._ms(self._groups.now()))
        self._carry_out(tenure, effects)
        return bool(effects.proposals)

    def forget(self, group: GroupId) -> None:
        """This node no longer keeps the Paxos group."""
        tenure = self._tenures.get(group)
        if tenure is not None:
            self._close(tenure)
        loading = self._loading.pop(group, None)
        if loading is not None:
            loading.refuse(ErrorCode.NOT_COORDINATOR)
        self._coordinators.pop(group, None)
        self._swept.pop(group, None)

    def _is_open(self, tenure: _Tenure) -> bool:
        return self._tenures.get(tenure.group) is tenure

    # -- requests -----------------------------------------------------------------------------

    def ask(
        self,
        group: GroupId | None,
        request: Request,
        answered: Callable[[Response], None],
        hung_up: Callable[[], bool] = lambda: False,
    ) -> None:
        """Pass a request to the coordinator of a Paxos group; `answered` is called exactly once.

        `answered` must not raise. Where this node is not the coordinator, and has not been, the
        answer says so. `hung_up`: whether nobody waits for the answer any more.
        """
        if group is None:
            answered(refusal(request, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif self.forwarding is not None and type(request) in CARRIED:
            self.forwarding.take(group, request, answered, hung_up)
        else:
            self.ask_here(group, request, answered)

    def has_coordinated(self, group: GroupId) -> bool:
        return group in self._coordinated

    def keeps(self, group: GroupId, consumer_group: str) -> bool:
        return self._group_of(consumer_group) == group

    def ask_here(
        self,
        group: GroupId,
        request: Request,
        answered: Callable[[Response], None],
        number: int = 0,
    ) -> None:
        """As `ask`, of this node's coordinator only."""
        now = self._groups.now()
        tenure = self._look(group, now)
        asked = _Asked(request, answered, number)
        if tenure is not None and tenure.suspended_boot_ns is None:
            effects = tenure.coordinator.handle(self._ms(now), request, asked)
            self._carry_out(tenure, effects)
            return
        loading = self._loading.get(group)
        waits_at = tenure or loading
        if waits_at is None:
            answered(refusal(request, ErrorCode.NOT_COORDINATOR))
        elif len(waits_at.waiting) >= WAITING_MAX or (loading is not None and loading.overdue(now)):
            answered(refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            waits_at.waiting.append(asked)

    def stored(self, group: GroupId, consumer_group: ConsumerGroupId) -> StoredGroup | None:
        """A consumer group as the log has it, if this node coordinates it now."""
        tenure, machine = self._look(group, self._groups.now()), self._machines.get(group)
        if tenure is None or machine is None or tenure.suspended_boot_ns is not None:
            return None
        return machine.consumer_groups.get(consumer_group)

    def coordinated(self) -> list[GroupId]:
        """The Paxos groups whose consumer groups this node coordinates."""
        return [group for group in sorted(self._machines) if self._groups.acting(group)]

    def complete(self, me: NodeId) -> bool:
        """Whether every Paxos group with a replica on this node has a reachable coordinator, as far
        as this node can know: if not, a list of consumer groups would have gaps."""
        others = self._groups.alive() - {me}
        return all(
            self._groups.acting(group) or self._groups.master(group) in others
            for group in self._machines
        )

    # -- effects ------------------------------------------------------------------------------

    def _carry_out(self, tenure: _Tenure, effects: Effects) -> None:
        if effects.replies:
            self._answer(tenure, effects.replies)
        for proposal in effects.proposals:
            self._groups.submit(
                tenure.group,
                fenced(tenure.epoch, opaque(CommandKind.CONSUMER_GROUP, proposal.command)),
                partial(self._on_outcome, tenure, proposal.proposal_id),
            )
        for notice in effects.notices:
            self._notice(tenure.group, notice)

    def _answer(self, tenure: _Tenure, replies: list[Reply]) -> None:
        """Let answers leave if this tenure is valid at this very moment [R14]."""
        same = self._groups.epoch(tenure.group) == tenure.epoch and self._is_open(tenure)
        if same and not self._groups.acting(tenure.group):
            tenure.held += replies
            self._suspend(tenure, self._groups.now())
            return
        if not same:
            self._answer_late(replies)
            return
        for reply in replies:
            _asked(reply.token).answered(reply.response)

    @staticmethod
    def _answer_late(replies: list[Reply]) -> None:
        """The mastership is over: nobody can tell any more whether what was done still holds, but
        what was refused stays refused."""
        for reply in replies:
            request, answered, _ = _asked(reply.token)
            refused = sends_away(reply.response)
            answered(reply.response if refused else fate_unknown(request))

    def _on_outcome(self, tenure: _Tenure, proposal_id: ProposalId, outcome: Outcome) -> None:
        """A command was applied, or will not be as far as this tenure is concerned."""
        if not self._is_open(tenure):
            self._on_late_outcome(tenure, proposal_id, outcome)
            return
        verdict: bytes | ProposalFailure
        match outcome:
            case Done(result=result):
                verdict = result
            case NotDone(why=FailureReason.OVERLOADED):
                verdict = ProposalFailure.OVERLOADED
            case NotDone(why=FailureReason.NOT_MASTER):
                verdict = ProposalFailure.NOT_MASTER
            case NotDone():
                verdict = ProposalFailure.UNKNOWN
        now_ms = self._ms(self._groups.now())
        self._carry_out(tenure, tenure.coordinator.on_committed(now_ms, proposal_id, verdict))

    def _on_late_outcome(self, tenure: _Tenure, proposal_id: ProposalId, outcome: Outcome) -> None:
        """The tenure is over. What the log refused, or never got, is refused for good: its fence
        has been passed. The outcome of the rest is unknown here."""
        token = tenure.left.pop(proposal_id, None)
        if token is None:
            return
        request, answered, _ = _asked(token)
        if isinstance(outcome, Done):
            never = decode_result(outcome.result).error != ErrorCode.NONE
        else:
            never = outcome.why is not FailureReason.UNKNOWN
        error = refusal(request, ErrorCode.NOT_COORDINATOR)
        answered(error if never else fate_unknown(request))

    # -- statistics ---------------------------------------------------------------------------

    def statistics(self) -> Iterator[tuple[GroupId, CoordinatorStatistics]]:
        """Of all coordinators this process ever ran, by Paxos group."""
        for group, (_, coordinator) in sorted(self._coordinators.items()):
            yield group, coordinator.statistics()
