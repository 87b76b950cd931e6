"""The group protocol does not depend on consumers: members' data is opaque to it (D1, D5, D6)."""

from coordinator.model import (
    NO_MEMBER,
    Assignment,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    JoinGroup,
    JoinGroupResponse,
    MemberId,
    OffsetDelete,
    OffsetDeleteResponse,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
    TopicPartitions,
)
from tests.coordinator.world import GROUP, SESSION_MS, Client, World, stable_group

WORKERS = "connect"
URL_AND_OFFSET = b"\x00\x01\x00\x0bhttp://a:83\x00\x00\x00\x00\x00\x00\x00\x2a"
"""What a Connect worker sends about itself: no topics, and no consumer could read it."""
PLAN = b"\xff\x00 start connector-1, task 3"


class Worker(Client):
    """A member that is no consumer."""

    def send_join(self) -> int:
        return self.world.ask(
            JoinGroup(
                group=self.group,
                member_id=self.member_id,
                client_id=self.name,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=SESSION_MS,
                protocol_type=WORKERS,
                protocols=(Protocol("compatible", URL_AND_OFFSET), Protocol("default", b"")),
                require_known_member_id=True,
            )
        )

    def sync(self, parts: dict[MemberId, bytes] | None = None) -> int:
        return self.world.ask(
            SyncGroup(
                group=self.group,
                generation=self.generation,
                member_id=self.member_id,
                protocol_type=WORKERS,
                assignments=tuple(Assignment(m, part) for m, part in (parts or {}).items()),
            )
        )


def test_D1_workers_share_by_the_protocol_that_consumers_share_by() -> None:
    """Registration, leader, plan, heartbeats, a member that leaves, a coordinator that moves: with
    metadata and a plan that the coordinator cannot read and need not."""
    world = World()
    workers = [Worker(world, "a"), Worker(world, "b")]
    tokens = [worker.join() for worker in workers]
    world.pass_time(500)
    joined = [worker.learn(token) for worker, token in zip(workers, tokens, strict=True)]
    assert [one.protocol_type for one in joined] == [WORKERS, WORKERS]
    assert [one.metadata for one in joined[0].members] == [URL_AND_OFFSET, URL_AND_OFFSET]
    syncs = [workers[1].sync(), workers[0].sync({workers[1].member_id: PLAN})]
    answers = [world.answer(token, SyncGroupResponse) for token in syncs]
    assert [one.assignment for one in answers] == [PLAN, b""]
    world.fail_over()
    assert [worker.heartbeat() for worker in workers] == [ErrorCode.NONE, ErrorCode.NONE]
    described = world.answer(world.ask(DescribeGroup(group=GROUP)), DescribeGroupResponse)
    assert (described.state, described.protocol_type) == ("Stable", WORKERS)
    assert workers[0].left(workers[0].leave()) == ErrorCode.NONE
    assert workers[1].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert workers[1].learn(workers[1].join()).leader == workers[1].member_id


def test_D1_a_group_is_of_one_kind() -> None:
    """A consumer is not accepted among workers, and their group's offsets are not deleted: nobody
    knows which ones they need."""
    world = World()
    worker = Worker(world, "a")
    token = worker.join()
    world.pass_time(500)
    worker.learn(token)
    stranger = Client(world, "consumer", protocols=(Protocol("compatible", b""),))
    refused = world.answer(stranger.send_join(), JoinGroupResponse)
    assert refused.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    asked = world.ask(OffsetDelete(group=GROUP, topics=(TopicPartitions("t", (0,)),)))
    assert world.answer(asked, OffsetDeleteResponse).error == ErrorCode.NON_EMPTY_GROUP
    assert worker.heartbeat() == ErrorCode.NONE
    assert worker.left(worker.leave()) == ErrorCode.NONE
    stable_group(world, Client(world, "consumer"))  # an empty group may become anything


def test_D6_what_a_member_says_of_itself_reaches_the_leader_as_it_is() -> None:
    """Per protocol, byte by byte, also when it changes and when another node coordinates: it
    carries racks, loads and a sticky assignor's memory."""
    world = World()
    every_byte = bytes(range(256))
    sticky = Protocol("sticky", b"owned: 1 2 3" + every_byte)
    anna = Client(world, "anna", protocols=(sticky, Protocol("range", b"rack a")))
    bert = Client(world, "bert", protocols=(Protocol("range", every_byte), sticky))
    stable_group(world, anna, bert)
    assert anna.joined is not None
    assert anna.joined.protocol_name == "sticky"  # a draw: the leader's preference decides
    assert [one.metadata for one in anna.joined.members] == [sticky.metadata, sticky.metadata]
    world.fail_over()
    bert.protocols = (Protocol("range", b"rack b"),)
    token = bert.join()
    told = anna.learn(anna.join())
    assert told.protocol_name == "range"
    assert [one.metadata for one in told.members] == [b"rack a", b"rack b"]
    assert bert.learn(token).members == ()
    assert anna.member_id != bert.member_id != NO_MEMBER
