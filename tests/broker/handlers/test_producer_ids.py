"""Producer ids are unique over all nodes, cheap to get, and never tied to a transaction."""

import pytest

from broker.producers.producer_ids import BLOCK_IDS, WAITING_MAX
from broker.proposals.intake import FailureReason
from tests.broker.data_world import DataWorld
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from wire.records.batch import Record
from wire.records.batch_writer import build_batch
from wire.records.write_tokens import FIRST_ID


def init(world: World, node: int, version: int = 4, **fields: object) -> InitProducerIdResponse:
    response: InitProducerIdResponse = world.ask(node, InitProducerIdRequest(**fields), version)
    return response


@pytest.mark.parametrize("version", range(5))
def test_every_version_gives_a_fresh_id(version: int) -> None:
    world = World()
    answers = [init(world, node, version) for node in (1, 2, 3, 1, 2, 3)]
    assert {one.error_code for one in answers} == {ErrorCode.NONE}
    assert len({one.producer_id for one in answers}) == 6
    assert {one.producer_epoch for one in answers} == {0}


def test_one_allocation_serves_everyone_who_waits() -> None:
    """Ids are allocated in blocks of thousands; adjacent blocks may go to different nodes."""
    world = World()
    asked: list[Asked] = [world.send(2, InitProducerIdRequest(), 4) for _ in range(BLOCK_IDS + 5)]
    assert sum(len(queue) for queue in world.cluster.queues.values()) == 1
    world.cluster.settle()
    ids = [one.response.producer_id for one in asked]
    assert len(set(ids)) == BLOCK_IDS + 5
    assert world.cluster.slots[0] < 10


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("epoch", [0, 1, 7, 2**15 - 2, 2**15 - 1, -2])
def test_an_id_that_is_named_is_nobodys_identity(version: int, epoch: int) -> None:
    """A client that names an id, another's or its own, gets a fresh one, as in Kafka (KIP-98)."""
    world = World()
    victim = init(world, 1)
    given = {victim.producer_id}
    for node, named in ((1, victim.producer_id), (2, victim.producer_id), (3, 5), (1, FIRST_ID)):
        told = init(world, node, version, producer_id=named, producer_epoch=epoch)
        assert (told.error_code, told.producer_epoch) == (ErrorCode.NONE, 0)
        assert told.producer_id not in given
        given.add(told.producer_id)


def test_an_id_without_an_epoch_means_nothing() -> None:
    world = World()
    for fields in ({"producer_id": 5}, {"producer_epoch": 5}):
        assert init(world, 1, **fields).error_code == ErrorCode.INVALID_REQUEST


def test_two_producers_that_name_one_id_lose_nothing() -> None:
    """The second one names the first one's id, like a client that takes 0 for "no id"."""
    world = DataWorld()
    first = init(world, 1)
    second = init(world, 1, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    third = init(world, 1, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    for base, one in enumerate((first, second, third)):
        batch = build_batch(
            [Record(b"of %d" % base)],
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            base_sequence=0,
        )
        answer = world.produce(1, 0, batch)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, base)


def test_transactions_are_refused_in_the_way_clients_give_up_at() -> None:
    world = World()
    refused = init(world, 1, transactional_id="tx")
    assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert init(world, 1, transactional_id="").error_code == ErrorCode.INVALID_REQUEST


def test_without_a_registry_master_the_client_is_asked_to_come_back() -> None:
    world = World()
    world.cluster.install(0, None)
    asked = world.send(2, InitProducerIdRequest(), 4)
    lucky = world.send(3, InitProducerIdRequest(), 4)
    world.advance(1_900)
    assert not asked.settled
    world[2].groups.refuse = FailureReason.OVERLOADED
    world.cluster.install(0, 1)
    world.advance(200)
    assert asked.response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert lucky.response.error_code == ErrorCode.NONE
    world[2].groups.refuse = None
    assert init(world, 2).error_code == ErrorCode.NONE


def test_the_queue_has_an_end() -> None:
    world = World()
    got: list[int | None] = []
    for _ in range(WAITING_MAX + 1):
        world[1].broker.producer_ids.take(got.append)
    assert got == [None]
    world.cluster.settle()
    assert len(set(got)) == WAITING_MAX + 1
