"""A node that is too far behind for its members' logs gets data and state from one of them."""

import random

import attrs
import pytest

from broker.lifecycle.token_bucket import NS_PER_S, TokenBucket
from broker.transfer.batches import BadData, batches_of
from broker.transfer.messages import AskData, AskState, Data, Message, RefusalReason, State
from broker.transfer.sink import ANSWER_NS, PULL_BYTES
from paxos.ids import NodeId, Slot
from tests.broker.transfer.harness import GROUP, STEP_NS, Store, World, log_of, same

TWO, THREE = NodeId(2), NodeId(3)


def full(applied: int = 900, records: int = 300) -> Store:
    return Store(Slot(applied), {uid: log_of(uid, records) for uid in (1, 2, 3)})


def empty() -> Store:
    return Store(Slot(0))


def test_an_empty_node_gets_everything() -> None:
    world = World(empty(), {TWO: full()})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert same(world.mine, world.others[TWO])
    assert world.mine.applied_to == 900
    assert world.sink.idle


def test_what_is_here_is_not_sent() -> None:
    mine = Store(Slot(400), {1: log_of(1, 300), 2: log_of(2, 300)[:20], 3: []})
    world = World(mine, {TWO: full()})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert same(world.mine, world.others[TWO])
    asked = [one for one in world.told if isinstance(one, AskData)]
    assert not [one for one in asked if one.uid == 1]
    assert min(one.offset for one in asked if one.uid == 2) == log_of(2, 300)[19][1]


@pytest.mark.parametrize("lost", [1, 2, 5, 9])
def test_a_compacted_partition_comes_whole_from_one_source(lost: int) -> None:
    """Nodes differ in which of its records are left: one may still have a value while another has
    already removed the tombstone. So no node continues from the data that is here."""
    here = {TWO: full(), THREE: full()}
    for node, parity in ((TWO, 0), (THREE, 1)):
        here[node].logs[2] = log_of(2, 300)[parity::2] + log_of(2, 310)[-1:]
    world = World(Store(Slot(5), {2: log_of(2, 300)[:20]}), here, {THREE: 9})
    world.compacted_uids = frozenset({2})
    answers = []

    def lose(node: NodeId, message: Message) -> bool:
        if isinstance(message, Data) and message.uid == 2 and node == TWO:
            answers.append(message)
        return node == TWO and len(answers) >= lost

    world.lose = lose
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert world.mine.logs[2] in (here[TWO].logs[2], here[THREE].logs[2])
    assert world.mine.logs[1] == here[TWO].logs[1]


def test_what_comes_while_the_state_is_made_is_fetched_before_it_is_saved() -> None:
    source = full()

    def grow() -> None:
        source.logs[3] = log_of(3, source.logs[3][-1][1] + 40)
        source.applied_to = Slot(source.applied_to + 1)

    source.on_chunk = grow
    world = World(empty(), {TWO: source})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))  # `check_data` looks at each part when it is saved
    assert world.mine.logs[3][-1][1] > 300


def test_one_that_is_no_master_is_asked_first() -> None:
    world = World(empty(), {TWO: full(), THREE: full()}, {TWO: 4, THREE: 1})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert not world.sources[TWO].statistics.answers


def test_whoever_is_not_ahead_is_no_source() -> None:
    mine = Store(Slot(900), {uid: log_of(uid, 300) for uid in (1, 2, 3)})
    world = World(mine, {TWO: full(900)})
    world.sink.want(GROUP)
    for _ in range(200):
        world.step()
    assert not world.told
    world.others[TWO].applied_to = Slot(901)
    world.run(lambda: bool(world.installed))


@pytest.mark.parametrize("seed", range(30))
def test_lost_frames_restarts_and_other_sources_cost_time_only(seed: int) -> None:
    dice = random.Random(seed)
    mine = Store(Slot(5), {1: log_of(1, 300)[: dice.randrange(40)]})
    world = World(mine, {TWO: full(), THREE: full(950, 320)})
    world.lose = lambda _node, _message: dice.random() < 0.05
    world.sink.want(GROUP)
    for _ in range(20_000):
        world.step()
        if dice.random() < 0.01:
            world.restart(dice.choice([TWO, THREE]))
        if dice.random() < 0.01:
            world.sink.peer_down(world.now_ns, dice.choice([TWO, THREE]))
        if world.installed:
            break
    assert len(world.installed) == 1
    assert world.mine.logs[2][-1][1] >= 300


def test_a_source_that_restarts_in_the_middle_of_its_state_is_asked_for_all_of_it() -> None:
    world = World(empty(), {TWO: attrs.evolve(full(), state_pad=600_000)})
    world.sink.want(GROUP)
    pieces = lambda: [one for one in world.told if isinstance(one, State)]  # noqa: E731
    restarted: list[bool] = []

    def lose(_node: NodeId, message: Message) -> bool:
        if isinstance(message, AskState) and message.chunk == 2 and not restarted:
            restarted.append(True)
            world.restart(TWO)
        return False

    world.lose = lose
    world.run(lambda: bool(world.installed))
    assert world.sink.statistics.refusals == 1
    assert len(world.installed[0]) == 4
    assert len([one for one in pieces() if one.chunk == 0]) == 2


def test_wrong_bytes_are_not_written() -> None:
    """A source sends what its disk has made of the data: another one is asked."""
    bad, good = full(), full()
    base, end, data = bad.logs[2][3]
    bad.logs[2][3] = (base, end, data[:-5] + b"x" + data[-4:])
    world = World(empty(), {TWO: bad, THREE: good}, {THREE: 9})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert world.sink.statistics.bad_answers == 1
    assert same(world.mine, good)


def test_data_that_a_source_cannot_read_comes_from_another() -> None:
    world = World(empty(), {TWO: full(), THREE: full()}, {THREE: 9})
    world.others[TWO].damaged.add(2)
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert same(world.mine, world.others[THREE])


def test_records_that_were_deleted_meanwhile_are_done_without() -> None:
    """Our data ends below the source's first offset: what is in between is deleted."""
    source = full()
    source.starts[2] = 203
    world = World(Store(Slot(9), {2: log_of(2, 300)[:10]}), {TWO: source})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    first = world.mine.logs[2][0]
    assert first[0] <= 203 < first[1]
    assert world.mine.logs[2][-1][1] == 300


def test_a_log_start_that_moves_while_data_is_pulled() -> None:
    source = full()

    def lose(_node: NodeId, message: Message) -> bool:
        if isinstance(message, Data) and message.uid == 1:
            source.starts[2] = 250
        return False

    world = World(Store(Slot(9), {2: log_of(2, 300)[:10]}), {TWO: source})
    world.lose = lose
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert world.mine.logs[2][0][0] > 100


def test_getting_on_by_other_means_ends_a_transfer() -> None:
    world = World(empty(), {TWO: full()})
    world.lose = lambda _node, message: isinstance(message, Data)
    world.sink.want(GROUP)
    for _ in range(10):
        world.step()
    world.mine.applied_to = Slot(40)
    world.run(lambda: world.sink.idle, 3)
    assert not world.installed


def test_the_rate_is_kept() -> None:
    world = World(empty(), {TWO: full(records=2000)}, bytes_per_s=4_000_000)
    world.sink.want(GROUP)
    began = world.now_ns
    world.run(lambda: bool(world.installed))
    size = world.sink.statistics.bytes_received
    seconds = (world.now_ns - began) / NS_PER_S
    assert 0.8 < seconds / (size / 4_000_000) < 1.3


def test_damaged_data_is_mended_from_a_peer() -> None:
    log = log_of(2, 300)
    world = World(Store(Slot(900), {2: list(log)}), {TWO: full()})
    start, end = log[7][0], log[11][1]
    world.sink.request_data(GROUP, 2, start, end, repairs=True)
    world.run(lambda: bool(world.repaired))
    mend = world.repaired[0]
    got = [(one.base, one.end, bytes(one.data)) for one in mend.batches]
    assert (mend.uid, mend.start, mend.end) == (2, start, end)
    assert got[: 12 - 7] == log[7:12]


def test_what_the_own_log_cannot_give_back_is_appended_from_a_peer() -> None:
    log = log_of(2, 300)
    world = World(Store(Slot(900), {2: log[:7]}), {TWO: full()})
    world.sink.request_data(GROUP, 2, log[7][0], log[9][1], repairs=False)
    world.run(lambda: bool(world.fetched))
    assert world.fetched[0].end == log[9][1]
    assert world.mine.logs[2][:10] == log[:10]


@pytest.mark.parametrize("here", [8, 10, 12])
def test_what_has_come_meanwhile_is_not_appended_again(here: int) -> None:
    log = log_of(2, 300)
    world = World(Store(Slot(900), {2: log[:here]}), {TWO: full()})
    world.sink.request_data(GROUP, 2, log[7][0], log[9][1], repairs=False)
    world.run(lambda: bool(world.fetched))
    got = world.mine.logs[2]
    assert len(got) >= max(10, here)
    assert got == log[: len(got)]


def test_what_was_deleted_meanwhile_is_not_waited_for() -> None:
    """Whoever asked for it looks again, and finds that it is below the log start."""
    log = log_of(2, 300)
    world = World(Store(Slot(900), {2: log[:7]}), {TWO: full()})
    world.others[TWO].starts[2] = 250
    world.sink.request_data(GROUP, 2, log[7][0], log[9][1], repairs=False)
    world.run(lambda: bool(world.not_fetched))
    assert not world.fetched
    assert world.sink.idle


def test_a_group_nobody_can_help_with_lets_the_next_one_go_first() -> None:
    world = World(empty(), {TWO: full()})
    world.others[TWO].applied_to = Slot(0)
    world.sink.want(GROUP)
    world.step()
    world.sink.request_data(GROUP, 2, 0, 8, repairs=True)
    world.run(lambda: bool(world.repaired), 1000)


def test_a_silent_source_is_asked_again() -> None:
    world = World(empty(), {TWO: full()})
    world.lose = lambda _node, message: isinstance(message, AskData)
    world.sink.want(GROUP)
    for _ in range(ANSWER_NS // STEP_NS + 10):
        world.step()
    assert world.sink.statistics.timeouts == 1
    world.lose = lambda _node, _message: False
    world.run(lambda: bool(world.installed))


def test_batches_have_to_follow() -> None:
    log = log_of(1, 40)
    data = [one[2] for one in log]

    def ends(batches: list[bytes], at: int, end: int = 40, **how: bool) -> list[int]:
        answer = Data(1, GROUP, 1, end, how.get("gaps", False), tuple(batches))
        return [one.end for one in batches_of(answer, at, fresh=how.get("fresh", False))]

    wide = next(number for number, one in enumerate(log) if one[1] - one[0] > 1)
    middle = log[wide][0] + 1
    assert ends(data, 0) == [one[1] for one in log]
    assert ends(data[wide:], middle, fresh=True)[0] == log[wide][1]
    assert ends([data[0], *data[2:]], 0, gaps=True)[1] == log[2][1]
    for wrong in (
        lambda: ends(data[wide:], middle),
        lambda: ends(data, 0, 39),
        lambda: ends(data[:-1], 0),
        lambda: ends([data[1], data[0], *data[2:]], 0, gaps=True),
        lambda: ends([data[0], *data[2:]], 0),
        lambda: ends([data[0][:-1]], 0, log[0][1]),
        lambda: ends([data[0][:-1] + b"?"], 0, log[0][1]),
    ):
        with pytest.raises(BadData):
            wrong()


def test_a_bucket_may_be_overdrawn_once() -> None:
    bucket = TokenBucket(1000, 100)
    assert bucket.open(NS_PER_S)
    bucket.take(PULL_BYTES)
    assert not bucket.open(2 * NS_PER_S)
    assert bucket.open((PULL_BYTES // 1000 + 2) * NS_PER_S)


def test_a_bucket_may_be_filled_more_slowly_for_a_while() -> None:
    bucket = TokenBucket(1000, 100)
    assert bucket.open(NS_PER_S)
    bucket.take(1100)
    assert not bucket.open(2 * NS_PER_S, 0.1)
    assert not bucket.open(10 * NS_PER_S, 0.1)
    assert bucket.open(12 * NS_PER_S, 0.1)


def test_a_log_start_that_moves_often_does_not_send_compacted_data_again_and_again() -> None:
    """Copying the compacted partition takes longer than the other one keeps its records: what has
    come whole from this source is not asked for again."""
    whole, kept = log_of(1, 600), log_of(5, 4000)
    source = Store(Slot(100), {1: list(whole), 5: kept[:60]})
    world = World(Store(Slot(0)), {TWO: source}, bytes_per_s=1_000_000)
    world.compacted_uids = frozenset({1})
    deleted_ns, count = 2 * 10**9, 60

    def delete() -> bool:
        nonlocal deleted_ns, count
        if world.now_ns >= deleted_ns:
            deleted_ns, count = deleted_ns + 2 * 10**9, count + 20
            source.logs[5], source.starts[5] = kept[:count], kept[count - 2][0]
            source.applied_to = Slot(source.applied_to + 1)
        return bool(world.installed)

    world.sink.want(GROUP)
    world.run(delete)
    size = sum(len(data) for _, _, data in whole)
    assert world.sink.statistics.bytes_received < 1.5 * size


def test_who_never_has_what_it_tells_is_left_for_another() -> None:
    class Forgetful(Store):
        def read(self, ask: AskData) -> RefusalReason:
            return RefusalReason.GONE

    good = full()
    liar = Forgetful(good.applied_to, good.logs)
    world = World(Store(Slot(0)), {TWO: liar, THREE: good}, {THREE: 9})
    world.sink.want(GROUP)
    world.run(lambda: bool(world.installed))
    assert same(world.mine, world.others[THREE])
