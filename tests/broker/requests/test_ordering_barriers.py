"""After a refusal on a connection, nothing that was sent behind it overtakes (F4)."""

from broker.ordering_barriers import BARRIERS_MAX, CLIENT_REACTION_NS, OrderingBarriers
from broker.ports import Connection
from broker.proposals.intake import FailureReason
from tests.broker.batches import batch
from tests.broker.data_world import DataWorld
from tests.broker.fakes import know_refusals
from tests.broker.handlers.test_produce import read_all
from tests.broker.world import Asked
from wire.error_codes import ErrorCode


def code(asked: Asked) -> int:
    error: int = asked.response.responses[0].partition_responses[0].error_code
    return error


def test_what_was_sent_behind_a_refusal_is_refused_until_the_client_can_know() -> None:
    """On the general path and on the fast path; other partitions and other connections go on."""
    world = DataWorld()
    world.produce(1, 0, batch("warm"))
    groups = world[1].groups
    groups.refuse = FailureReason.OVERLOADED
    first = world.begin_produce(1, {0: batch("a")})
    groups.refuse = None
    second = world.begin_produce(1, {0: batch("b")})
    other = world.begin_produce(1, {1: batch("x")})
    world.settle()
    assert code(first) == code(second) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert code(other) == ErrorCode.NONE
    assert world[1].statistics.produce_behind_refusal == 1
    know_refusals(first.reply.connection)
    for text in ("a", "b"):
        again = world.begin_produce(1, {0: batch(text)})
        world.settle()
        assert code(again) == ErrorCode.NONE
    assert [text for _, text in read_all(world, 1, 0)] == ["warm", "a", "b"]


def test_a_group_that_comes_back_lets_nothing_overtake() -> None:
    """The batch was refused because another node was master; the rest comes when it is this node
    again."""
    world = DataWorld()
    world.cluster.install(world.group(0), 2)
    first = world.begin_produce(1, {0: batch("a")})
    world.cluster.install(world.group(0), 1)
    second = world.begin_produce(1, {0: batch("b")})
    world.settle()
    assert code(first) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code(second) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert not read_all(world, 1, 0)


def test_a_time_out_and_a_topic_that_is_not_known_yet_shut_the_lane_as_well() -> None:
    world = DataWorld()
    late = world.begin_produce(1, {0: batch("a")}, timeout_ms=100)
    queues, world.cluster.queues = world.cluster.queues, {}
    world.advance(1_000)
    world.cluster.queues = queues
    assert code(late) == ErrorCode.REQUEST_TIMED_OUT
    behind = world.begin_produce(1, {0: batch("b")})
    early = world.begin_produce(1, {99: batch("x")})
    assert code(early) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert early.reply.connection.is_blocked("orders", 99)
    world.settle()
    assert code(behind) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert [text for _, text in read_all(world, 1, 0)] == ["a"], "the late one, and no other"


def test_a_batch_that_is_wrong_itself_shuts_nothing() -> None:
    """Nobody sends it again, so nothing can overtake it: as in Kafka."""
    world = DataWorld()
    damaged = bytearray(batch("a"))
    damaged[-1] ^= 1
    assert world.produce(1, 0, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert world.produce(1, 0, batch("b")).error_code == ErrorCode.NONE


def test_without_an_answer_a_refusal_closes_the_connection_and_nothing_goes_round_it() -> None:
    """Two partitions: one is refused, the other waits; what arrives meanwhile is not accepted."""
    world = DataWorld()
    world.cluster.install(world.group(0), None)
    first = world.begin_produce(1, {0: batch("a"), 1: batch("x")}, acks=0)
    assert not first.settled
    world.cluster.install(world.group(0), 1)
    second = world.begin_produce(1, {0: batch("b")}, acks=0)
    assert "NOT_ENOUGH_REPLICAS" in str(second.reply.closed)
    world.settle()
    assert "NOT_LEADER_OR_FOLLOWER" in str(first.reply.closed)
    assert not read_all(world, 1, 0)


def test_without_an_answer_a_former_master_forwards_for_ever() -> None:
    """Such a producer never learns of another leader, and what it is refused is lost."""
    world = DataWorld()
    world.cluster.install(world.group(0), 2)
    world[1].groups.former.add(world.group(0))
    for text in ("a", "b"):
        asked = world.begin_produce(1, {0: batch(text)}, acks=0)
        world.settle()
        assert asked.reply.silent
    assert [text for _, text in read_all(world, 2, 0)] == ["a", "b"]


def test_a_lane_opens_when_the_first_refusal_has_settled_and_the_last_is_known() -> None:
    barriers = OrderingBarriers()
    barriers.refused("t", 0, 1)
    barriers.seen(1, 1_000)
    barriers.refused("t", 0, 2)  # sent before, or by a client that does not wait
    barriers.seen(1, 1_000 + CLIENT_REACTION_NS)
    assert barriers.is_blocked("t", 0), "the last is not known"
    barriers.seen(2, 999 + CLIENT_REACTION_NS)
    assert barriers.is_blocked("t", 0), "known, but perhaps not looked at"
    barriers.seen(2, 1_000 + CLIENT_REACTION_NS)
    assert not barriers.is_blocked("t", 0)
    assert not len(barriers)


def test_what_waits_is_measured_by_the_refusals_before_it() -> None:
    connection = Connection()
    for _ in range(5):
        connection.refused("t", 0)
    assert connection.would_overtake("t", 0, 4)
    assert not connection.would_overtake("t", 0, 5)
    assert not connection.would_overtake("t", 1, 4)


def test_what_came_before_a_refusal_overtakes_it_when_the_lane_is_open_again_too() -> None:
    """It was at another node while the barrier was up (seed 774)."""
    connection = Connection()
    connection.refused("t", 0)
    for boot_ns in (1, 1 + CLIENT_REACTION_NS):
        connection.seen(1, boot_ns)
    assert not connection.is_blocked("t", 0)
    assert connection.barriers is None
    assert connection.would_overtake("t", 0, 0)
    assert not connection.would_overtake("t", 0, 1), "sent when its client knew"
    assert not connection.would_overtake("t", 1, 0)


def test_of_too_many_partitions_nobody_remembers_which_were_refused() -> None:
    connection = Connection()
    for index in range(BARRIERS_MAX + 1):
        connection.refused("t", index)
    assert connection.would_overtake("t", BARRIERS_MAX, BARRIERS_MAX)
    assert not connection.would_overtake("t", BARRIERS_MAX, BARRIERS_MAX + 1)
    assert connection.would_overtake("t", 7, BARRIERS_MAX - 1), "which is too careful"
    assert not connection.would_overtake("t", 7, BARRIERS_MAX)


def test_too_many_barriers_block_the_connection() -> None:
    barriers = OrderingBarriers()
    for number in range(BARRIERS_MAX + 2):
        barriers.refused("t", number, number + 1)
    assert len(barriers) == BARRIERS_MAX + 1
    assert barriers.is_blocked("another", 7)
    for boot_ns in (1, 1 + CLIENT_REACTION_NS):
        barriers.seen(BARRIERS_MAX + 2, boot_ns)
    assert not barriers.is_blocked("another", 7)
    assert not len(barriers)
