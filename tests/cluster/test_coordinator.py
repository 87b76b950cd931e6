"""A group coordinator that was stopped and continues: no member loses its place."""

import time
from functools import partial
from pathlib import Path

import pytest
import trio

from cluster.launcher import launch
from cluster.spec import plan
from runtime.config.config import Address
from tests.cluster.conversation import Conversation
from tests.cluster.scenery import GROUPS, STEP_S, everything_has_a_master, in_thread, until
from wire.error_codes import ErrorCode
from wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

pytestmark = pytest.mark.cluster

SESSION_MS = 2_000
STOPPED_S = 1.5 * SESSION_MS / 1000
JOIN, SYNC, BEAT = 5, 3, 3
NOT_NOW = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class PatientMember:
    """Unlike client libraries, it does not give up when its coordinator is silent. So every answer
    it gets afterwards is the coordinator's own judgement."""

    def __init__(self, address: Address) -> None:
        self._conversation = Conversation(address)
        self.member_id = ""
        self.generation = -1

    def join(self) -> JoinGroupResponse:
        while True:
            protocols = [JoinGroupRequestProtocol("range", b"")]
            request = JoinGroupRequest(
                "g", SESSION_MS, 60_000, self.member_id, None, "consumer", protocols
            )
            answer: JoinGroupResponse = self._conversation.ask(request, JOIN)
            self.member_id = answer.member_id or self.member_id
            if answer.error_code not in (*NOT_NOW, ErrorCode.MEMBER_ID_REQUIRED):
                assert answer.error_code == ErrorCode.NONE
                self.generation = answer.generation_id
                return answer

    def sync(self, parts: dict[str, bytes]) -> bytes:
        assignments = [SyncGroupRequestAssignment(*part) for part in parts.items()]
        request = SyncGroupRequest(
            "g", self.generation, self.member_id, None, assignments=assignments
        )
        answer: SyncGroupResponse = self._conversation.ask(request, SYNC)
        assert answer.error_code == ErrorCode.NONE
        return bytes(answer.assignment)

    def beat(self) -> ErrorCode:
        """The coordinator's answer when it is one again."""
        deadline = time.monotonic() + STEP_S
        while time.monotonic() < deadline:
            request = HeartbeatRequest("g", self.generation, self.member_id)
            answer: HeartbeatResponse = self._conversation.ask(request, BEAT)
            if answer.error_code not in NOT_NOW:
                return ErrorCode(answer.error_code)
            time.sleep(0.01)
        raise AssertionError(f"nobody coordinates the group after {STEP_S} s")

    def close(self) -> None:
        self._conversation.close()


def shared(members: list[PatientMember], joined: list[JoinGroupResponse]) -> list[bytes]:
    """The leader assigns each member its own id; returns what each member gets."""
    parts = {one.member_id: one.member_id.encode() for one in members}
    leader = joined[0].leader
    first_the_leader = sorted(members, key=lambda member: member.member_id != leader)
    given = {one: one.sync(parts if one.member_id == leader else {}) for one in first_the_leader}
    return [given[member] for member in members]


@pytest.mark.parametrize("lease_ms", [2_000, 30_000], ids=["lease-lapsed", "lease-held"])
async def test_D4_a_coordinator_that_was_stopped_evicts_nobody(
    tmp_path: Path, lease_ms: int
) -> None:
    """SIGSTOP for longer than a session timeout. Whether or not its lease has expired, it wakes up
    with members it has not heard from all that time, and must not count its own silence against
    them."""
    settings = (
        f"lease.duration_ms={lease_ms}",
        f"lease.renew_every_ms={lease_ms // 3}",
        "broker.group_initial_rebalance_delay_ms=1000",  # so that all are in one generation
    )
    spec, _ = plan(tmp_path / "data", node_count=1, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=settings) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "the groups have a master")
        members = [PatientMember(spec.node(1).kafka) for _ in range(3)]
        joined: list[JoinGroupResponse] = []

        async def join(member: PatientMember) -> None:
            joined.append(await in_thread(member.join))

        async with trio.open_nursery() as nursery:
            for member in members:
                nursery.start_soon(join, member)
        assert {member.generation for member in members} == {1}
        shares = await in_thread(partial(shared, members, joined))
        assert shares == [member.member_id.encode() for member in members]
        await cluster.pause(1)
        await trio.sleep(STOPPED_S)
        await cluster.resume(1)
        assert [await in_thread(member.beat) for member in members] == [ErrorCode.NONE] * 3
        assert [await in_thread(partial(member.sync, {})) for member in members] == shares
        for member in members:
            member.close()
