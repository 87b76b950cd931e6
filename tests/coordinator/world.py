"""A coordinator on a log with replicas, and clients that behave like Kafka's consumers.

The log is a list; proposals wait in `in_flight` until the test lets them be chosen. So "before" and
"after" the log are two moments that a story can look at.
"""

from collections import deque
from typing import TypeVar

from broker.groups.topic_patterns import matching
from coordinator.coordinator import Coordinator
from coordinator.limits import CoordinatorConfig
from coordinator.model import (
    NO_MEMBER,
    Assignment,
    ConsumerGroupId,
    Effects,
    ErrorCode,
    GroupNotice,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    MemberId,
    NameGroups,
    NameGroupsResponse,
    OffsetCommit,
    OffsetCommitResponse,
    OffsetFetch,
    OffsetFetchResponse,
    PartitionOffset,
    Proposal,
    ProposalFailure,
    ProposalId,
    Protocol,
    Request,
    Response,
    SyncGroup,
    SyncGroupResponse,
    Token,
    TopicOffsets,
    fate_unknown,
    refusal,
)
from coordinator.replicated.store import GroupStore
from coordinator.topics import Topics
from paxos.ids import Slot

GROUP = ConsumerGroupId("orders")
SESSION_MS = 10_000
REBALANCE_MS = 60_000
WALL_MS = 1_700_000_000_000
R = TypeVar("R", bound=Response)


class World:
    """Node 0 is master at first; `fail_over` makes the next one master of the same log."""

    def __init__(
        self,
        config: CoordinatorConfig | None = None,
        replicas: int = 2,
        secret: bytes = b"chance",
    ) -> None:
        self.secret = secret
        self.config = config or CoordinatorConfig()
        self.stores = [GroupStore() for _ in range(replicas)]
        self.topics = Topics(0, {})
        """What the registry has, as every node knows it."""
        self.match = matching
        self.no_mixing = ""
        """Why groups may not get members of both protocols; "" if they may."""
        self.nodes = [self.node_of(store) for store in self.stores]
        self.master = 0
        self.now_ms = 1_000
        self.term = 1
        self.log: list[bytes] = []
        self.in_flight: deque[Proposal] = deque()
        self.answers: dict[int, Response] = {}
        self.left: dict[ProposalId, Token] = {}
        """Requests that still wait after the last resignation, and for what."""
        self.asked: dict[int, Request] = {}
        self.notices: list[GroupNotice] = []
        self.auto_commit = True
        self.nodes[0].elected(self.now_ms, Slot(self.term), self.secret)

    def node_of(self, store: GroupStore) -> Coordinator:
        return Coordinator(
            store,
            self.config,
            lambda: self.topics,
            lambda *args: self.match(*args),
            lambda: self.no_mixing,
        )

    @property
    def coordinator(self) -> Coordinator:
        return self.nodes[self.master]

    def ask(self, request: Request) -> int:
        """Send a request; the answer appears in `answers` under the returned token."""
        token = len(self.asked)
        self.asked[token] = request
        self._take(self.coordinator.handle(self.now_ms, request, token))
        return token

    def answer(self, token: int, kind: type[R]) -> R:
        response = self.answers[token]
        assert isinstance(response, kind)
        return response

    def listed(self, states: frozenset[str] = frozenset()) -> tuple[ListedGroup, ...]:
        names = self.answer(self.ask(NameGroups()), NameGroupsResponse).names
        asked = self.ask(ListGroups(names=names, states=states))
        return self.answer(asked, ListGroupsResponse).groups

    def commit(self, count: int | None = None) -> None:
        """The log chooses what is in flight (or only the first `count`), on all replicas."""
        done = 0
        while self.in_flight and (count is None or done < count):
            proposal = self.in_flight.popleft()
            results = {store.apply(proposal.command) for store in self.stores}
            assert len(results) == 1, "replicas disagree on a result"
            self.log.append(proposal.command)
            done += 1
            self._take(
                self.coordinator.on_committed(self.now_ms, proposal.proposal_id, results.pop())
            )
        assert self.stores[0].snapshot() == self.stores[-1].snapshot()

    def fail(self, failure: ProposalFailure) -> None:
        """The oldest proposal never makes it into the log."""
        proposal = self.in_flight.popleft()
        self._take(self.coordinator.on_committed(self.now_ms, proposal.proposal_id, failure))

    def resign(self) -> None:
        effects, self.left = self.coordinator.resigned()
        self._take(effects)

    def fail_over(self, *, lose: bool = True) -> None:
        """Mastership moves; what is in flight is lost, or chosen before the next one starts. The
        broker answers waiting requests: definitely, or with an unknown fate."""
        self.resign()
        left, self.left = self.left, {}
        for token in left.values():
            assert isinstance(token, int)
            request = self.asked[token]
            gone = refusal(request, ErrorCode.NOT_COORDINATOR)
            self.answers[token] = gone if lose else fate_unknown(request)
        if lose:
            self.in_flight.clear()
        self.master = (self.master + 1) % len(self.nodes)
        while self.in_flight:
            command = self.in_flight.popleft().command
            assert len({store.apply(command) for store in self.stores}) == 1
            self.log.append(command)
        self.elect()

    def elect(self) -> None:
        self.term += 1
        self.coordinator.elected(self.now_ms, Slot(self.term), self.secret)

    def hand_over(self) -> None:
        """Mastership moves by a steal: the master first writes what the next one should know."""
        self._take(self.coordinator.handing_over(self.now_ms))
        self.commit()
        self.fail_over()

    def pass_time(self, duration_ms: int) -> None:
        """Time passes and the coordinator is ticked when it wants to be."""
        end_ms = self.now_ms + duration_ms
        while True:
            next_ms = self.coordinator.next_deadline()
            if next_ms is None or next_ms > end_ms:
                break
            self.now_ms = max(self.now_ms, next_ms)
            self._take(self.coordinator.tick(self.now_ms))
        self.now_ms = end_ms

    def pause(self, duration_ms: int) -> None:
        """The process is stopped and not ticked; then it goes on."""
        self.now_ms += duration_ms
        self._take(self.coordinator.tick(self.now_ms))

    def sweep(self, wall_ms: int) -> None:
        self._take(self.coordinator.sweep(self.now_ms, wall_ms))

    def forget_topics(self) -> None:
        self.coordinator.topics_gone()
        self.pass_time(0)

    def _take(self, effects: Effects) -> None:
        for reply in effects.replies:
            assert isinstance(reply.token, int)
            assert reply.token in self.asked
            assert reply.token not in self.answers, "answered twice"
            self.answers[reply.token] = reply.response
        self.in_flight.extend(effects.proposals)
        self.notices.extend(effects.notices)
        if self.auto_commit and self.in_flight:
            self.commit()


class Client:
    """One member, step by step; remembers the answers it got."""

    def __init__(
        self,
        world: World,
        name: str,
        *,
        group: ConsumerGroupId = GROUP,
        instance_id: str | None = None,
        protocols: tuple[Protocol, ...] = (Protocol("range", b"topics"),),
        skips: bool = True,
        session_ms: int = SESSION_MS,
    ) -> None:
        self.world = world
        self.session_ms = session_ms
        self.name = name
        self.group = group
        self.instance_id = instance_id
        self.protocols = protocols
        self.skips = skips
        self.member_id = NO_MEMBER
        self.generation = -1
        self.joined: JoinGroupResponse | None = None

    def join(self) -> int:
        """JoinGroup as v4+ does it, with a second try under the id it was given."""
        token = self.send_join()
        answer = self.world.answers.get(token)
        if isinstance(answer, JoinGroupResponse) and answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            token = self.send_join()
        return token

    def send_join(self) -> int:
        return self.world.ask(
            JoinGroup(
                group=self.group,
                member_id=self.member_id,
                instance_id=self.instance_id,
                client_id=self.name,
                client_host="10.0.0.1",
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=self.protocols,
                require_known_member_id=True,
                supports_skip_assignment=self.skips,
            )
        )

    def learn(self, token: int) -> JoinGroupResponse:
        """Take in the answer to a JoinGroup that must have succeeded."""
        joined = self.world.answer(token, JoinGroupResponse)
        assert joined.error == ErrorCode.NONE
        self.joined, self.member_id = joined, joined.member_id
        self.generation = joined.generation
        return joined

    def sync(self, parts: dict[MemberId, bytes] | None = None) -> int:
        return self.world.ask(
            SyncGroup(
                group=self.group,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
                protocol_type="consumer",
                assignments=tuple(Assignment(m, part) for m, part in (parts or {}).items()),
            )
        )

    def synced(self, token: int) -> bytes:
        answer = self.world.answer(token, SyncGroupResponse)
        assert answer.error == ErrorCode.NONE
        return answer.assignment

    def heartbeat(self) -> ErrorCode:
        token = self.world.ask(
            Heartbeat(
                group=self.group,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
            )
        )
        return self.world.answer(token, HeartbeatResponse).error

    def leave(self) -> int:
        leaving = LeavingMember(self.member_id, self.instance_id, "closing")
        return self.world.ask(LeaveGroup(group=self.group, members=(leaving,)))

    def left(self, token: int) -> ErrorCode:
        answer = self.world.answer(token, LeaveGroupResponse)
        return answer.error or answer.members[0].error

    def send_commit(self, offset: int, *, partition: int = 0, metadata: str = "") -> int:
        one = PartitionOffset(partition, offset, 1, metadata)
        return self.world.ask(
            OffsetCommit(
                group=self.group,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance_id,
                commit_wall_ms=WALL_MS,
                topics=(TopicOffsets("t", (one,)),),
            )
        )

    def commit(self, offset: int, *, partition: int = 0, metadata: str = "") -> ErrorCode:
        token = self.send_commit(offset, partition=partition, metadata=metadata)
        return self.committed(token)

    def committed(self, token: int) -> ErrorCode:
        return self.world.answer(token, OffsetCommitResponse).topics[0].partitions[0].error


def committed_offset(world: World, partition: int = 0, group: ConsumerGroupId = GROUP) -> int:
    token = world.ask(OffsetFetch(group=group, topics=None))
    for topic, partitions in world.answer(token, OffsetFetchResponse).topics:
        for one in partitions:
            if topic == "t" and one.partition == partition:
                return one.offset
    return -1


def stable_group(world: World, *clients: Client) -> None:
    """All clients join an empty group, and the leader gives each its own name as assignment."""
    tokens = [client.join() for client in clients]
    world.pass_time(2 * world.config.initial_rebalance_delay_ms)
    for client, token in zip(clients, tokens, strict=True):
        client.learn(token)
    share(world, *clients)


def share(world: World, *clients: Client) -> None:
    """The leader assigns, and every member gets its part."""
    names = {client.member_id: client.name.encode() for client in clients}
    syncs = []
    for client in clients:
        assert client.joined is not None
        leads = client.joined.leader == client.member_id
        syncs.append(client.sync(names if leads else None))
    for client, token in zip(clients, syncs, strict=True):
        assert client.synced(token) == client.name.encode()
