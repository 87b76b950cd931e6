"""An idempotent producer continues where it is unknown, for example in a new topic of the same
name."""

import pytest

from balancer.registry.commands import CreateTopic, DeleteTopic
from broker.producers.sequence_gaps import PATIENCE_NS
from broker.proposals import commands
from broker.state_machine.checkpoint_chunks import ImageError
from broker.state_machine.partition import PartitionState
from broker.state_machine.partition_image import encode_partition, load_partition
from broker.state_machine.producer_state import ProducerImage, Producers
from paxos import entry as entries
from paxos.ids import MS
from tests.broker.batches import batch
from tests.broker.data_world import TOPIC, DataWorld
from tests.broker.handlers.test_produce import read_all
from tests.broker.state_machine.test_image import all_of, apply, machine
from wire.error_codes import ErrorCode

ANEW = bytes(15) + b"\x2b"
OLD_ENOUGH_MS = PATIENCE_NS // MS + 10


def settled_world() -> DataWorld:
    """A world whose masters have been in place for a while."""
    world = DataWorld()
    world.advance(OLD_ENOUGH_MS, step_ms=1_000)
    return world


def test_a_producer_goes_on_in_the_next_topic_of_the_name() -> None:
    """It does not know that its topic was deleted, and goes on counting its batches."""
    world = settled_world()
    for number in range(3):
        world.produce(1, 0, batch("old", pid=7, seq=number))
    world.run(DeleteTopic(TOPIC))
    world.run(CreateTopic(TOPIC, ANEW, 4))
    first = world.produce(1, 0, batch("d", pid=7, seq=3))
    assert (first.error_code, first.base_offset) == (ErrorCode.NONE, 0)
    assert world.produce(1, 0, batch("e", pid=7, seq=4)).base_offset == 1
    again = world.produce(1, 0, batch("d", pid=7, seq=3))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    gap = world.produce(1, 0, batch("g", pid=7, seq=6))
    assert gap.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    before = world.produce(1, 0, batch("c", pid=7, seq=2))
    assert before.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    old = world.produce(1, 1, batch("x", pid=8, epoch=3, seq=9))
    assert (old.error_code, old.base_offset) == (ErrorCode.NONE, 0)
    fenced = world.produce(1, 1, batch("y", pid=8, epoch=2, seq=10))
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert world.produce(1, 1, batch("z", pid=8, epoch=4, seq=0)).base_offset == 1


def test_the_batches_under_way_begin_in_their_order() -> None:
    """Five at once: the first one begins, and nothing overtakes it."""
    world = settled_world()
    asked = [world.begin_produce(1, {0: batch(f"{n}", pid=7, seq=n)}) for n in range(5, 10)]
    world.settle()
    answers = [one.response.responses[0].partition_responses[0] for one in asked]
    assert [one.error_code for one in answers] == [0] * 5
    assert [one.base_offset for one in answers] == [0, 1, 2, 3, 4]


def test_a_new_master_waits_for_what_may_be_on_its_way() -> None:
    """The last master refused the batch before this one, and the producer sends it again."""
    world = settled_world()
    world.cluster.install(world.group(0), 2)
    early = world.produce(2, 0, batch("b", pid=7, seq=1))
    assert early.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.produce(2, 0, batch("a", pid=7, seq=0)).base_offset == 0
    assert world.produce(2, 0, batch("b", pid=7, seq=1)).base_offset == 1
    assert read_all(world, 2, 0) == [(0, "a"), (1, "b")]
    assert world.produce(2, 0, batch("x", pid=9, seq=4)).error_code != ErrorCode.NONE
    world.advance(OLD_ENOUGH_MS, step_ms=1_000)
    assert world.produce(2, 0, batch("x", pid=9, seq=4)).base_offset == 2


def test_who_goes_on_is_let_in_though_masters_come_and_go() -> None:
    """Each is master for half as long as a new one waits; nobody gets a final refusal meanwhile."""
    world = settled_world()
    errors = []
    for turn in range(12):
        node = turn % 3 + 1
        world.cluster.install(world.group(0), node)
        errors.append(world.produce(node, 0, batch("x", pid=7, seq=5)).error_code)
        world.advance(PATIENCE_NS // MS // 2, step_ms=500)
    assert errors.index(ErrorCode.NONE) <= 3
    assert set(errors) == {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE}
    assert read_all(world, 3, 0) == [(0, "x")]


def test_a_beginning_that_an_earlier_master_saw_is_none() -> None:
    """Its command reaches the log late: the batch before it may have come meanwhile."""
    one = machine()
    (late,) = commands.fenced(one._lease.epoch + 1, commands.admit(3, 7, 0, 5))
    assert apply(one, 1, entries.batch((late,))) == [
        commands.ADMIT_RESULT.pack(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ]
    assert not one.partitions


def test_a_producer_that_was_let_in_is_known_after_a_restart_before_its_first_batch() -> None:
    one, again = machine(), machine()
    (admitted,) = commands.fenced(one._lease.epoch, commands.admit(3, 7, 2, 5))
    results = apply(one, 1, entries.batch((admitted,)))
    assert results == [commands.ADMIT_RESULT.pack(ErrorCode.NONE)]
    again.restore(one.applied, list(one.chunks(local=True)))
    assert all_of(again) == all_of(one)
    for node in (one, again):
        data = memoryview(batch("x", pid=7, epoch=2, seq=5))
        (result,) = apply(node, 2, entries.batch(commands.records(3, data)))
        assert commands.RECORDS_RESULT.unpack(result)[:2] == (ErrorCode.NONE, 0)


def test_who_is_let_in_is_one_of_the_remembered() -> None:
    """The limit of remembered producers holds, and known ones keep their state."""
    producers = Producers(limit=2)
    producers.appended(1, 0, 0, 0, 0)
    producers.admit(1, 0, 9)
    assert producers.judge(1, 0, 1, 1) is None
    producers.admit(2, 0, 1)
    producers.admit(3, 0, 1)
    assert 1 not in producers
    assert len(producers) == 2


def test_a_producer_without_batches_has_none_in_a_row() -> None:
    state = PartitionState(3)
    state.producers.load([ProducerImage(7, 0, 4, 2, [])], forgot=False)
    with pytest.raises(ImageError, match="0 batches, 2 in a row"):
        load_partition(PartitionState(3), encode_partition(state))


@pytest.mark.parametrize("fields", [(3, -1, 0, 5), (3, 7, -1, 5), (3, 7, 0, 0)])
def test_what_begins_nowhere_is_refused(fields: tuple[int, int, int, int]) -> None:
    (chunk,) = commands.admit(*fields)
    with pytest.raises(commands.CommandError, match="begins at"):
        commands.parse_admit(commands.parse((chunk,))[0].body)
