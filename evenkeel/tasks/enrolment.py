"""Membership of the consumer group behind a task group: its members and its leader.

Kafka's group coordinator knows which members are alive, counts generations, and chooses a leader.
That leader asks the `Election` which member leads the tasks, and the answer goes to every member as
its "assignment": all members of a generation get the same one. Nothing here stops or starts a task;
a rebalance does not disturb members that keep what they have.
"""

import json
from collections.abc import Callable, Sequence
from typing import Final

import attrs
import trio

from evenkeel.client import Purpose
from evenkeel.coordinator import ANSWER_GRACE_S, NO_GENERATION, Coordinator
from evenkeel.errors import CommitError, ConfigurationError, EvenkeelError, refusal
from evenkeel.tasks.config import TaskGroupConfig
from evenkeel.tasks.member import CoordinatorView
from evenkeel.tasks.sharding import Candidate
from wire.error_codes import ErrorCode
from wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE: Final = "evenkeel-tasks"


class CoordinatorUnreachable(Exception):
    """The coordinator was unreachable for a whole session: the others continue without us."""


@attrs.frozen
class _MemberMetadata:
    """What a member says about itself when it joins. `joined` is its offset in the ledger."""

    session: str
    joined: int
    candidate: Candidate


@attrs.define(eq=False)
class Enrolment:
    """One session in the group. `tell` is called with every generation's view."""

    coordinator: Coordinator
    config: TaskGroupConfig
    session: str
    joined: int
    tell: Callable[[CoordinatorView], None]
    member_id: str = ""
    generation: int = NO_GENERATION
    _heard: float = attrs.Factory(trio.current_time)

    async def run(self) -> None:
        """Stay in the group until cancelled.

        Raises:
            CoordinatorUnreachable: after a session without an answer.
            EvenkeelError: if the group refuses us.
        """
        failures = 0
        while True:
            try:
                await self._round()
                failures = 0
            except CommitError:
                failures = 0  # the group is at another generation: join it
            except EvenkeelError as error:
                if not error.retriable:
                    raise
                self._check_touch(error)
                await self.coordinator.pause(failures)
                failures += 1

    def _check_touch(self, error: EvenkeelError) -> None:
        if trio.current_time() - self._heard > self.config.session_timeout_ms / 1000:
            raise CoordinatorUnreachable(str(error)) from error

    def _check(self, what: str, code: int) -> None:
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            raise ConfigurationError(
                f"task group '{self.coordinator.group}' does not accept this member",
                why=f"its other members do not use {self.config.protocol}",
                advice="give all members the same sharding and election",
            )
        self.coordinator.check(what, code)
        self._heard = trio.current_time()

    async def _round(self) -> None:
        joined = await self._join()
        view = await self._sync(joined)
        self.tell(view)
        while True:
            await trio.sleep(self.config.heartbeat_ms / 1000)
            request = HeartbeatRequest(self.coordinator.group, self.generation, self.member_id)
            try:
                answer = await self.coordinator.ask(
                    request, HeartbeatResponse, purpose=Purpose.GROUP
                )
                if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                    self._heard = trio.current_time()
                    return
                self._check("a heartbeat", answer.error_code)
            except EvenkeelError as error:
                if not error.retriable:
                    raise
                self._check_touch(error)  # the same generation, perhaps elsewhere
                await self.coordinator.pause(0)

    @property
    def _patience_s(self) -> float:
        return self.config.rebalance_timeout_ms / 1000 + ANSWER_GRACE_S

    async def _join(self) -> JoinGroupResponse:
        said = {
            "session": self.session,
            "joined": self.joined,
            "metadata": dict(self.config.metadata),
        }
        while True:
            request = JoinGroupRequest(
                group_id=self.coordinator.group,
                session_timeout_ms=self.config.session_timeout_ms,
                rebalance_timeout_ms=self.config.rebalance_timeout_ms,
                member_id=self.member_id,
                protocol_type=PROTOCOL_TYPE,
                protocols=[
                    JoinGroupRequestProtocol(self.config.protocol, json.dumps(said).encode())
                ],
            )
            answer = await self.coordinator.ask(
                request, JoinGroupResponse, purpose=Purpose.GROUP, timeout_s=self._patience_s
            )
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = answer.member_id  # KIP-394: ask again under this name
                continue
            self._check("joining", answer.error_code)
            self.member_id, self.generation = answer.member_id, answer.generation_id
            return answer

    async def _sync(self, joined: JoinGroupResponse) -> CoordinatorView:
        assignments = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignment = self._elect(joined.members, joined.leader)
            assignments = [
                SyncGroupRequestAssignment(member.member_id, assignment)
                for member in joined.members
            ]
        request = SyncGroupRequest(
            group_id=self.coordinator.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=joined.protocol_name,
            assignments=assignments,
        )
        answer = await self.coordinator.ask(
            request, SyncGroupResponse, purpose=Purpose.GROUP, timeout_s=self._patience_s
        )
        self._check("learning who leads", answer.error_code)
        return self._parse(answer.assignment)

    def _elect(self, members: Sequence[JoinGroupResponseMember], chosen: str) -> bytes:
        """As the member that Kafka chose: elect the leader; the result goes to all members."""
        said = {member.member_id: _read(member) for member in members}
        in_order = sorted(said.values(), key=lambda one: one.joined)
        leader = self.config.election([one.candidate for one in in_order], said[chosen].session)
        return json.dumps(
            {
                "leader": leader,
                "members": [one.session for one in in_order],
                "read_up_to": max(one.joined for one in in_order) + 1,
            }
        ).encode()

    def _parse(self, assignment: bytes) -> CoordinatorView:
        try:
            found = json.loads(assignment)
            members = tuple(map(str, found["members"]))
            return CoordinatorView(
                self.generation, str(found["leader"]), members, int(found["read_up_to"])
            )
        except (ValueError, KeyError, TypeError) as error:
            what = (
                f"the message of the leader of task group '{self.coordinator.group}' cannot be read"
            )
            raise refusal(what, ErrorCode.UNKNOWN_SERVER_ERROR) from error

    async def leave(self) -> None:
        """Tell the coordinator, so that the others need not wait for a session."""
        if not self.member_id:
            return
        await self.coordinator.leave(self.member_id, "the session is over")


def _read(member: JoinGroupResponseMember) -> _MemberMetadata:
    """Parse a member's metadata; a member that is not of a task group makes all of us fail."""
    try:
        found = json.loads(member.metadata)
        session, joined, metadata = found["session"], int(found["joined"]), found["metadata"]
        return _MemberMetadata(session, joined, Candidate(session, metadata))
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(
            "a member of the group is not a member of a task group",
            why=f"{member.metadata!r:.200}",
            advice="use another group name for one of them",
        ) from error
