"""The checker is checked: a good history is clean, and it objects to every change of one record.

A record may be dropped, duplicated, swapped with another, or given another number. Some changes of
some records say the same or less, and no checker could object to them: dropping a send of unknown
fate, for example, or an assignment, a reported end, or a hash that nobody else reported. Those are
not drawn: each mutation lists the records whose change contradicts the rest of the history.
"""

import random
from collections.abc import Callable

import attrs
import pytest

from history.checker import check
from history.record import UNKNOWN, Key, Op, Outcome, Record

SEEDS = range(100)
KEYS = (Key("t", 0), Key("t", 1))
GROUP_KEY = Key("paxos-group", 1)

Mutation = Callable[[list[Record], random.Random], None]


class World:
    """Real logs, and a clock: what clients record of them is a good history."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now = 0
        self.logs: dict[Key, list[str]] = {key: [] for key in KEYS}
        self.history: list[Record] = []

    def tick(self) -> int:
        self.now += 10
        return self.now

    def note(self, op: Op, process: str, key: Key, value: str | None, offset: int) -> None:
        begin = self.tick()
        self.history.append(Record(op, process, key, value, offset, Outcome.OK, begin, self.tick()))

    def send(self, number: int) -> None:
        key, value = self.dice.choice(KEYS), f"v{number}"
        producer = f"producer-{self.dice.randrange(3)}"
        sent = Record(Op.SEND, producer, key, value, began_ns=self.tick())
        sent.outcome = self.dice.choices([Outcome.OK, Outcome.FAIL, Outcome.INFO], [8, 1, 1])[0]
        if sent.outcome == Outcome.OK or (
            sent.outcome == Outcome.INFO and self.dice.random() < 0.5
        ):
            self.logs[key].append(value)
        if sent.outcome == Outcome.OK:
            sent.offset = len(self.logs[key]) - 1
        sent.ended_ns = self.tick()
        self.history.append(sent)

    def drain(self, reader: str, node: str | None) -> None:
        """Read every log from its beginning, a few messages a poll."""
        for key, values in self.logs.items():
            self.note(Op.LATEST, reader, key, None, len(values))
            self.note(Op.ASSIGN, reader, key, None, 0)
            offset = 0
            while offset < len(values):
                begin, end = self.tick(), self.tick()
                for _ in range(self.dice.randint(1, 4)):
                    if offset < len(values):
                        record = Record(Op.POLL, reader, key, values[offset], offset)
                        record.began_ns, record.ended_ns = begin, end
                        self.history.append(record)
                        offset += 1
            self.note(Op.DRAINED, reader, key, node, len(values))

    def run(self) -> list[Record]:
        for number in range(60):
            self.send(number)
            key = self.dice.choice(KEYS)
            if number % 15 == 7:
                self.note(Op.LATEST, "watcher", key, None, len(self.logs[key]))
            if number % 12 == 5:
                self.note(Op.COMMIT, "member", key, "g", len(self.logs[key]))
                self.note(Op.COMMITTED, "watcher", key, "g", len(self.logs[key]))
        self.drain("reader", None)
        for node in ("node-1", "node-2"):
            self.drain(node, node)
            self.note(Op.CHAIN, node, GROUP_KEY, "c0ffee", 70)
        self.note(Op.MASTER, "node-1", GROUP_KEY, None, 3)
        self.note(Op.MASTER, "node-2", GROUP_KEY, None, 9)
        return self.history


def good_history(dice: random.Random) -> list[Record]:
    return World(dice).run()


def in_the_log(history: list[Record], *ops: Op) -> list[Record]:
    """Records about a message which is in the log, and was read."""
    polled = {one.value for one in history if one.op == Op.POLL}
    return [one for one in history if one.op in ops and one.value in polled]


def place_of(history: list[Record], wanted: Record) -> int:
    """The position of this very record; others may be equal to it."""
    return next(place for place, one in enumerate(history) if one is wanted)


# -- of a message ---------------------------------------------------------------------------------


def drop(history: list[Record], dice: random.Random) -> None:
    victim = dice.choice(in_the_log(history, Op.SEND, Op.POLL))
    del history[place_of(history, victim)]


def duplicate(history: list[Record], dice: random.Random) -> None:
    victim = dice.choice(in_the_log(history, Op.SEND, Op.POLL))
    history.insert(place_of(history, victim), attrs.evolve(victim))


def two_alike(history: list[Record], dice: random.Random, *ops: Op) -> tuple[Record, Record]:
    """Two messages that one process sent to one key, or read from it, both with offsets."""
    candidates = [one for one in in_the_log(history, *ops) if one.offset != UNKNOWN]
    alike: dict[tuple[Op, str, Key], list[Record]] = {}
    for one in candidates:
        alike.setdefault((one.op, one.process, one.key), []).append(one)
    chosen = dice.choice([several for several in alike.values() if len(several) > 1])
    first, second = dice.sample(chosen, 2)
    return first, second


def swap_values(history: list[Record], dice: random.Random) -> None:
    one, two = two_alike(history, dice, Op.SEND, Op.POLL)
    one.value, two.value = two.value, one.value


def swap_offsets(history: list[Record], dice: random.Random) -> None:
    one, two = two_alike(history, dice, Op.SEND, Op.POLL)
    one.offset, two.offset = two.offset, one.offset


def swap_places(history: list[Record], dice: random.Random) -> None:
    """Only of polls: the times of a send give its place, wherever its line is."""
    one, two = two_alike(history, dice, Op.POLL)
    first, second = place_of(history, one), place_of(history, two)
    history[first], history[second] = history[second], history[first]


def swap_times(history: list[Record], dice: random.Random) -> None:
    """Only of sends: for polls the position in the file gives the order."""
    one, two = two_alike(history, dice, Op.SEND)
    one.began_ns, two.began_ns = two.began_ns, one.began_ns
    one.ended_ns, two.ended_ns = two.ended_ns, one.ended_ns


def renumber(history: list[Record], dice: random.Random) -> None:
    victims = in_the_log(history, Op.SEND, Op.POLL)
    victim = dice.choice([one for one in victims if one.offset != UNKNOWN])
    victim.offset += dice.choice((-1, 1, 2, 7) if victim.offset else (1, 2, 7))


def rename(history: list[Record], dice: random.Random) -> None:
    dice.choice(in_the_log(history, Op.SEND, Op.POLL)).value = "what nobody sent"


def fail(history: list[Record], dice: random.Random) -> None:
    """A send that was acknowledged or unknown, and is in the log, is now recorded as failed."""
    victim = dice.choice(in_the_log(history, Op.SEND))
    victim.outcome, victim.offset = Outcome.FAIL, UNKNOWN


def forge(history: list[Record], dice: random.Random) -> None:
    """A send that failed, or is unknown and did not happen, is now recorded as acknowledged."""
    polled = {one.value for one in history if one.op == Op.POLL}
    lost = [one for one in history if one.op == Op.SEND and one.value not in polled]
    victim = dice.choice(lost)
    victim.outcome, victim.offset = Outcome.OK, dice.randrange(100)


# -- answers about a log --------------------------------------------------------------------------


def told(history: list[Record], op: Op) -> list[Record]:
    return [one for one in history if one.op == op]


def lower_end(history: list[Record], dice: random.Random) -> None:
    """Only answers to the watcher or a reader, where something higher had been acknowledged."""
    ends = [one for one in told(history, Op.LATEST) if known_before(history, one) >= 0]
    victim = dice.choice(ends)
    victim.offset = dice.randrange(known_before(history, victim) + 1)


def known_before(history: list[Record], end: Record) -> int:
    """The highest offset of the key that was acknowledged before the end was asked for."""
    return max(
        (
            one.offset
            for one in history
            if (one.op, one.key, one.outcome) == (Op.SEND, end.key, Outcome.OK)
            and one.ended_ns < end.began_ns
        ),
        default=-1,
    )


def raise_first_end(history: list[Record], dice: random.Random) -> None:
    """The first answer of a key: later ones, and every later send, contradict it."""
    key = dice.choice([one.key for one in told(history, Op.LATEST)])
    next(one for one in told(history, Op.LATEST) if one.key == key).offset += 1000


def renumber_committed(history: list[Record], dice: random.Random) -> None:
    dice.choice(told(history, Op.COMMITTED)).offset += dice.choice((1, 1000))


def forget_commit(history: list[Record], dice: random.Random) -> None:
    dice.choice(told(history, Op.COMMITTED)).offset = UNKNOWN


def other_hash(history: list[Record], dice: random.Random) -> None:
    dice.choice(told(history, Op.CHAIN)).value = "decaf"


def other_master(history: list[Record], dice: random.Random) -> None:
    one, two = told(history, Op.MASTER)
    one.offset = two.offset = dice.choice((one.offset, two.offset))


def short_of_the_end(history: list[Record], dice: random.Random) -> None:
    """The last polls of a reader are missing: it should have the messages acknowledged in them."""
    process = dice.choice(["reader", "node-1", "node-2"])
    acked = {one.value for one in history if one.op == Op.SEND and one.outcome == Outcome.OK}
    polls = [one for one in told(history, Op.POLL) if one.process == process]
    key = dice.choice([one.key for one in polls if one.value in acked])
    last = max(place_of(history, one) for one in polls if one.key == key and one.value in acked)
    of_key = [place_of(history, one) for one in polls if one.key == key]
    cut = [place for place in of_key if place >= last]
    for place in reversed(cut):
        del history[place]
    end = next(one for one in told(history, Op.DRAINED) if (one.process, one.key) == (process, key))
    end.offset -= len(cut)


MUTATIONS: tuple[Mutation, ...] = (
    drop,
    duplicate,
    swap_values,
    swap_offsets,
    swap_places,
    swap_times,
    renumber,
    rename,
    fail,
    forge,
    lower_end,
    raise_first_end,
    renumber_committed,
    forget_commit,
    other_hash,
    other_master,
    short_of_the_end,
)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_good_history_is_clean(seed: int) -> None:
    history = good_history(random.Random(seed))
    report = check(history)
    assert report.clean, report.summary()
    assert report.records == len(history)
    assert report.sent[Outcome.OK] == sum(
        one.op == Op.SEND and one.outcome == Outcome.OK for one in history
    )
    assert report.polled == len(told(history, Op.POLL))


@pytest.mark.parametrize("mutate", MUTATIONS, ids=lambda one: one.__name__)
def test_every_change_of_one_record_is_caught(mutate: Mutation) -> None:
    """100 of 100."""
    missed = []
    for seed in SEEDS:
        dice = random.Random(seed)
        history = good_history(dice)
        mutate(history, dice)
        if check(history).clean:
            missed.append(seed)
    assert not missed


@pytest.mark.parametrize("seed", range(10))
def test_the_order_of_lines_of_different_processes_says_nothing(seed: int) -> None:
    """Files of several recorders may be given in any order."""
    dice = random.Random(seed)
    history = good_history(dice)
    by_process: dict[str, list[Record]] = {}
    for one in history:
        by_process.setdefault(one.process, []).append(one)
    parts = list(by_process.values())
    dice.shuffle(parts)
    report = check([one for part in parts for one in part])
    assert report.clean, report.summary()
