"""Producer ids are unique over all nodes, cheap, and never tied to a transaction."""

import pytest

from broker.intake import Why
from broker.producer_ids import BLOCK_IDS, WAITING_MAX
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from wire.write_tokens import FIRST_ID


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
    """Blocks go by thousands; the last id of one and the first of the next differ by nodes only."""
    world = World()
    asked: list[Asked] = [world.send(2, InitProducerIdRequest(), 4) for _ in range(BLOCK_IDS + 5)]
    assert sum(len(queue) for queue in world.cluster.queues.values()) == 1
    world.cluster.settle()
    ids = [one.response.producer_id for one in asked]
    assert len(set(ids)) == BLOCK_IDS + 5
    assert world.cluster.slots[0] < 10


def test_a_producer_that_lost_count_gets_the_next_epoch() -> None:
    world = World()
    first = init(world, 1)
    bumped = init(world, 2, producer_id=first.producer_id, producer_epoch=first.producer_epoch)
    assert (bumped.producer_id, bumped.producer_epoch) == (first.producer_id, 1)
    spent = init(world, 2, producer_id=first.producer_id, producer_epoch=2**15 - 2)
    assert spent.producer_id != first.producer_id
    assert spent.producer_epoch == 0
    half = init(world, 1, producer_id=first.producer_id)
    assert half.error_code == ErrorCode.INVALID_REQUEST
    writer = init(world, 1, producer_id=FIRST_ID, producer_epoch=0)
    assert writer.error_code == ErrorCode.INVALID_REQUEST


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
    world[2].groups.refuse = Why.OVERLOADED
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
