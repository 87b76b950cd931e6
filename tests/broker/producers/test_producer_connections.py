"""Which producers are connected here: only they get a soft redirect."""

from functools import partial

from broker.producers.producer_connections import NO_PRODUCER, ProducerConnections
from broker.proposals.commands import CommandKind, opaque, records
from broker.proposals.intake import Done, Outcome
from tests.broker.batches import batch
from tests.broker.data_world import DataWorld
from wire.error_codes import ErrorCode


def command(pid: int) -> memoryview:
    return memoryview(b"".join(records(5, memoryview(batch("a", pid=pid)))))


def test_a_producer_is_here_as_long_as_one_of_its_connections() -> None:
    producer_connections = ProducerConnections()
    producer_connections.changed(NO_PRODUCER, 7)
    producer_connections.changed(NO_PRODUCER, 7)
    assert producer_connections.has(command(7))
    assert not producer_connections.has(command(8))
    producer_connections.changed(7, 8)
    assert producer_connections.has(command(7))
    assert producer_connections.has(command(8))
    producer_connections.changed(7, NO_PRODUCER)
    producer_connections.changed(8, NO_PRODUCER)
    assert not producer_connections.has(command(7))
    assert len(producer_connections) == 0


def test_a_producer_without_an_id_and_other_commands_are_nobodys() -> None:
    producer_connections = ProducerConnections()
    producer_connections.changed(NO_PRODUCER, 7)
    assert not producer_connections.has(command(-1))
    assert not producer_connections.has(
        memoryview(b"".join(opaque(CommandKind.CONSUMER_GROUP, b"x")))
    )
    assert not producer_connections.has(memoryview(b"nonsense"))


def test_an_idempotent_producer_is_noted_with_its_connection() -> None:
    world = DataWorld()
    plain = world.begin_produce(1, {0: batch("a")})
    idempotent = world.begin_produce(1, {0: batch("b", pid=9)})
    assert (plain.reply.producer_id, idempotent.reply.producer_id) == (NO_PRODUCER, 9)


def produced_elsewhere(*, at_home: bool) -> tuple[int, object]:
    """Node 1 forwards while node 2 is master; returns the answer to its client."""
    world = DataWorld()
    world.cluster.install(world.group(0), 2)
    done: list[partial[None]] = []
    world[1].groups.submit = lambda _group, _chunks, answered, **_: done.append(answered)
    asked = world.begin_produce(1, {0: batch("a", pid=9)})
    outcome: Outcome = Done(bytes(18), at_home=at_home)
    done[0](outcome)
    answer = asked.response.responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.NONE
    return len(asked.response.node_endpoints), answer.current_leader


def test_the_new_leader_is_named_beside_a_success_where_the_client_is_at_home() -> None:
    """librdkafka then moves without the back-off that an error would cost it."""
    endpoints, leader = produced_elsewhere(at_home=True)
    assert endpoints == 1
    assert getattr(leader, "leader_id", None) == 2


def test_elsewhere_it_is_not_named() -> None:
    """It would have to connect first, which takes librdkafka a second."""
    assert produced_elsewhere(at_home=False) == (0, None)
