"""Consumers of the classic protocol as Java's and librdkafka's behave, one small step at a time.

They read and write the bytes of the "consumer" protocol, so that they can be members of a group
with broker-side assignment as well as lead a classic one.
"""

import struct
from collections.abc import Sequence

import attrs

from coordinator.model import (
    NO_MEMBER,
    Assignment,
    ErrorCode,
    Heartbeat,
    HeartbeatResponse,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeavingMember,
    MemberId,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.subscription import read_assignment, read_subscription, write_assignment
from tests.coordinator.test_assigned_groups import GROUP, Part
from tests.coordinator.world import World

PATIENCE_MS = 600_000
GIVEN_UP = frozenset(
    (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID)
)
NAMES = {"eager": "range", "cooperative": "cooperative-sticky"}


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def array(items: Sequence[bytes]) -> bytes:
    return struct.pack(">i", len(items)) + b"".join(items)


def subscription(
    topics: Sequence[str],
    owned: frozenset[tuple[str, int]] = frozenset(),
    generation: int = -1,
    version: int = 3,
    rack: str | None = None,
) -> bytes:
    """A ConsumerProtocolSubscription."""
    by_topic = {name: [n for t, n in sorted(owned) if t == name] for name, _ in sorted(owned)}
    parts = [
        text(name) + array([struct.pack(">i", n) for n in numbers])
        for name, numbers in by_topic.items()
    ]
    pieces = [struct.pack(">h", version), array([text(one) for one in topics])]
    pieces.append(struct.pack(">i", -1))
    if version >= 1:
        pieces.append(array(parts))
    if version >= 2:
        pieces.append(struct.pack(">i", generation))
    if version >= 3:
        pieces.append(struct.pack(">h", -1) if rack is None else text(rack))
    return b"".join(pieces)


@attrs.define(eq=False)
class Classic:
    """`step` does whatever is next: it never waits for an answer that is not there yet."""

    world: World
    name: str
    kind: str = "eager"
    topics: tuple[str, ...] = ("orders",)
    instance: str | None = None
    version: int = 3
    session_ms: int = PATIENCE_MS
    rebalance_ms: int = PATIENCE_MS
    member_id: MemberId = NO_MEMBER
    generation: int = -1
    held_names: frozenset[tuple[str, int]] = frozenset()
    joining: int | None = None
    syncing: int | None = None
    member: bool = False
    errors: list[ErrorCode] = attrs.Factory(list)
    joins: int = 0
    lost: int = 0

    @property
    def held(self) -> frozenset[Part]:
        ids = self.world.topics.ids
        return frozenset((ids[topic][0], number) for topic, number in self.held_names)

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.held_names)

    def step(self) -> None:
        if self.joining is not None:
            self._take_join(self.joining)
        elif self.syncing is not None:
            self._take_sync(self.syncing)
        elif not self.member:
            self.join()
        else:
            self._beat()

    def join(self) -> int:
        self.joins += 1
        if self.kind == "eager":
            self.held_names = frozenset()
        metadata = subscription(self.topics, self.held_names, self.generation, self.version)
        self.member, self.syncing = False, None
        self.joining = self.world.ask(
            JoinGroup(
                group=GROUP,
                member_id=self.member_id,
                instance_id=self.instance,
                client_id=self.name,
                session_timeout_ms=self.session_ms,
                rebalance_timeout_ms=self.rebalance_ms,
                protocol_type="consumer",
                protocols=(Protocol(NAMES[self.kind], metadata),),
                require_known_member_id=True,
                supports_skip_assignment=True,
            )
        )
        return self.joining

    def _take_join(self, token: int) -> None:
        answer = self.world.answers.get(token)
        if answer is None:
            return
        assert isinstance(answer, JoinGroupResponse)
        self.joining = None
        if answer.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self.join()
        elif self._succeeded(answer.error):
            self.member_id, self.generation = answer.member_id, answer.generation
            leads = answer.leader == self.member_id and not answer.skip_assignment
            plan = self._plan(answer.members) if leads else ()
            self.syncing = self.world.ask(
                SyncGroup(
                    group=GROUP,
                    generation=self.generation,
                    member_id=self.member_id,
                    instance_id=self.instance,
                    protocol_type=answer.protocol_type,
                    protocol_name=answer.protocol_name,
                    assignments=plan,
                )
            )

    def _take_sync(self, token: int) -> None:
        answer = self.world.answers.get(token)
        if answer is None:
            return
        assert isinstance(answer, SyncGroupResponse)
        self.syncing = None
        if not self._succeeded(answer.error):
            return
        told = read_assignment(answer.assignment)
        revoked = self.held_names - told
        self.held_names, self.member = told, True
        if revoked and self.kind == "cooperative":
            self.join()

    def _beat(self) -> None:
        token = self.world.ask(
            Heartbeat(
                group=GROUP,
                generation=self.generation,
                member_id=self.member_id,
                instance_id=self.instance,
            )
        )
        error = self.world.answer(token, HeartbeatResponse).error
        if not self._succeeded(error):
            self.member = False

    def _succeeded(self, error: ErrorCode) -> bool:
        if error == ErrorCode.NONE:
            return True
        self.errors.append(error)
        if error in GIVEN_UP:
            self.lost += bool(self.held_names)
            self.held_names, self.generation = frozenset(), -1
            if error != ErrorCode.ILLEGAL_GENERATION:
                self.member_id = NO_MEMBER
        return False

    def leave(self) -> int:
        leaving = LeavingMember(self.member_id, self.instance)
        token = self.world.ask(LeaveGroup(group=GROUP, members=(leaving,)))
        self.stop()
        return token

    def stop(self) -> None:
        """The process ends, or a new one begins."""
        self.member_id, self.generation, self.held_names = NO_MEMBER, -1, frozenset()
        self.joining = self.syncing = None
        self.member = False

    def _plan(self, members: Sequence[JoinedMember]) -> tuple[Assignment, ...]:
        """Sticky and even; a cooperative leader gives nobody what another member still holds."""
        said = {one.member_id: read_subscription(one.metadata) for one in members}
        newest = max(one.generation for one in said.values())
        owned = {
            name: one.owned if one.generation == newest else frozenset()
            for name, one in said.items()
        }
        parts = [
            (topic, number)
            for topic in sorted({t for one in said.values() for t in one.topics})
            for number in range(self.world.topics.ids[topic][1])
        ]
        share: dict[MemberId, set[tuple[str, int]]] = {name: set() for name in sorted(said)}
        most = -(-len(parts) // len(share))
        for name, one in owned.items():
            share[name] |= set(sorted(part for part in one if part in parts)[:most])
        free = [part for part in parts if not any(part in one for one in share.values())]
        for part in free:
            share[min(share, key=lambda name: len(share[name]))].add(part)
        if self.kind == "cooperative":
            for name in share:
                share[name] -= {
                    p for other, theirs in owned.items() if other != name for p in theirs
                }
        return tuple(Assignment(name, write_assignment(3, one)) for name, one in share.items())
