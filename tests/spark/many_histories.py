"""Many histories as one, so that one run of Spark judges them all.

Each gets topics and processes of its own: the findings on these are its findings. Only faults and
heals concern all, so histories that are joined have the same ones.
"""

import random
from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from history.anomaly import Anomaly, Report, Verdict
from history.record import NO_KEY, UNKNOWN, Key, Op, Outcome, Record, problem

Counts = Counter[tuple[Anomaly, Verdict]]

SEPARATOR = "/"
OFTEN = (Op.SEND, Op.SEND, Op.SEND, Op.POLL, Op.POLL, Op.POLL, Op.POLL)
SELDOM = tuple(op for op in Op if op not in (Op.FAULT, Op.HEAL))
MARKS = (Op.FAULT, Op.HEAL)


def counts_of(report: Report) -> Counts:
    return Counter({kind: tally.count for kind, tally in report.tallies.items()})


def together(histories: Sequence[Sequence[Record]]) -> list[Record]:
    """Topics and processes of history 7 begin with 7/."""
    return [
        attrs.evolve(
            one,
            process=f"{number}{SEPARATOR}{one.process}",
            key=Key(f"{number}{SEPARATOR}{one.key.topic}", one.key.partition),
        )
        for number, history in enumerate(histories)
        for one in history
    ]


def whose(topic: str, process: str | None) -> int:
    """The history of a finding; the process shows it where there is no key."""
    return int((topic or process or "").partition(SEPARATOR)[0])


def scattered(dice: random.Random, records: Iterable[Record]) -> list[Record]:
    """As several recorders would have written them: each process keeps its order."""
    waiting: dict[str, list[Record]] = {}
    for one in records:
        waiting.setdefault(one.process, []).append(one)
    found = []
    while waiting:
        process = dice.choice(list(waiting))
        count = dice.randint(1, 8)
        found += waiting[process][:count]
        waiting[process] = waiting[process][count:]
        if not waiting[process]:
            del waiting[process]
    return found


def marks(dice: random.Random, until_ns: int) -> list[Record]:
    """Faults and heals in any order, many at the same time, some begun and never ended."""
    found = []
    for _ in range(dice.choice((0, 1, 2, 3, 5, 8))):
        begin = dice.randrange(1, until_ns)
        one = Record(dice.choice(MARKS), f"o{dice.randrange(2)}", NO_KEY, dice.choice("xy"))
        one.outcome, one.began_ns = dice.choice((Outcome.OK, Outcome.OK, Outcome.INVOKE)), begin
        found.append(one)
    return found


def nonsense(dice: random.Random, records: int, until_ns: int) -> list[Record]:
    """Absurd records of few processes, values, offsets and times: everything collides.

    Each record is valid by itself.
    """
    values = [f"v{number}" for number in range(dice.choice((2, 6, 12)))]
    offsets = range(UNKNOWN, dice.choice((3, 8, 14)))
    processes = ["p", "q", "r"][: dice.choice((1, 2, 3))]
    of_messages = dice.choice((0.2, 0.75, 0.75))
    found: list[Record] = []
    while len(found) < records:
        one = Record(dice.choice(OFTEN if dice.random() < of_messages else SELDOM), "", NO_KEY)
        one.process = dice.choice(processes)
        one.key = Key("t", 0 if dice.random() < 0.8 else 1)
        one.value = None if dice.random() < 0.15 else dice.choice(values)
        if one.op in (Op.COMMIT, Op.COMMITTED, Op.CHAIN):
            one.value = dice.choice("gh")
        one.offset = dice.choice(offsets)
        one.outcome = dice.choices(tuple(Outcome), (2, 12, 1, 1))[0]
        one.began_ns = dice.choice((0, dice.randrange(until_ns), dice.randrange(until_ns)))
        one.ended_ns = dice.choice((0, one.began_ns, one.began_ns + dice.randrange(9)))
        if not problem(one):
            found.append(one)
    return found


def plausible(dice: random.Random) -> list[Record]:
    """Realistic logs, producers and readers, and some of the possible errors."""
    return _Bus(dice).history()


class _Bus:
    """A log with a clock, its clients, and now and then a lie."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.now = 0
        self.key = Key("t", dice.randrange(2))
        self.log: list[str] = []
        self.start = 0
        self.records: list[Record] = []
        self.error = dice.choice((0.0, 0.0, 0.02, 0.1))

    def wrong(self) -> bool:
        return self.dice.random() < self.error

    def tick(self) -> int:
        self.now += self.dice.choice((0, 1, 1, 2))
        return self.now

    def note(self, op: Op, process: str, value: str | None, offset: int) -> Record:
        if self.wrong():
            offset = max(offset + self.dice.choice((-2, -1, 1)), 0)
        begin = self.tick()
        one = Record(op, process, self.key, value, offset, Outcome.OK, begin, self.tick())
        if self.dice.random() < 0.1:
            one.ended_ns = 0
        self.records.append(one)
        return one

    def history(self) -> list[Record]:
        readers = [f"r{number}" for number in range(self.dice.choice((1, 2, 3)))]
        at = dict.fromkeys(readers, 0)
        for reader in readers:
            self.begin(reader, at)
        for number in range(self.dice.randrange(5, 40)):
            act = self.dice.random()
            if act < 0.5:
                self.send(number)
            elif act < 0.85:
                self.poll(self.dice.choice(readers), at)
            else:
                self.tell(self.dice.choice(readers), at)
        for reader in readers:
            if self.dice.random() < 0.7:
                self.drain(reader, at)
        return self.records

    def begin(self, reader: str, at: dict[str, int]) -> None:
        at[reader] = self.dice.choice((self.start, self.start, len(self.log)))
        if self.dice.random() < 0.3:
            self.records.append(Record(Op.SUBSCRIBE, reader, self.key, began_ns=self.tick()))
        else:
            self.note(Op.ASSIGN, reader, None, at[reader])

    def send(self, number: int) -> None:
        value = f"v{number if not self.wrong() else number // 2}"
        one = Record(Op.SEND, f"p{self.dice.randrange(3)}", self.key, value)
        one.began_ns = self.tick()
        if self.dice.random() < 0.5:
            self.records.append(attrs.evolve(one, outcome=Outcome.INVOKE))
        fate = self.dice.choices(("ok", "fail", "info", "dies"), (8, 1, 1, 1))[0]
        if (fate == "ok" and not self.wrong()) or (fate != "fail" and self.dice.random() < 0.5):
            self.log.append(value)
            if self.wrong():
                self.log.append(value)
        if fate == "dies":
            return
        one.outcome = Outcome(fate)
        one.ended_ns = self.tick() + self.dice.randrange(5)
        if fate == "ok":
            one.offset = len(self.log) - 1 if self.log and self.dice.random() < 0.9 else UNKNOWN
        if self.wrong():
            one.outcome = self.dice.choice((Outcome.FAIL, Outcome.INFO))
        self.records.append(one)

    def poll(self, reader: str, at: dict[str, int]) -> None:
        begin, end = self.tick(), self.tick()
        if at[reader] >= len(self.log):
            empty = Record(Op.POLL, reader, self.key, None, at[reader])
            empty.began_ns, empty.ended_ns = begin, end
            self.records.append(empty)
        for _ in range(self.dice.randrange(1, 6)):
            if self.wrong():
                at[reader] = max(at[reader] + self.dice.choice((-1, 1, 2)), 0)
            if at[reader] >= len(self.log):
                return
            value = self.log[at[reader]] if not self.wrong() else "what nobody sent"
            got = Record(Op.POLL, reader, self.key, value, at[reader], Outcome.OK, begin, end)
            self.records.append(got)
            at[reader] += 1

    def tell(self, reader: str, at: dict[str, int]) -> None:
        act = self.dice.choice(("rebalance", "end", "start", "commit", "committed", "chain"))
        if act == "rebalance":
            self.begin(reader, at)
        elif act == "end":
            self.note(Op.LATEST, reader, None, len(self.log))
        elif act == "start":
            self.start = min(self.start + self.dice.choice((0, 0, 2)), len(self.log))
            self.note(Op.EARLIEST, reader, None, self.start)
        elif act == "chain":
            self.note(Op.CHAIN, reader, f"{len(self.log)}", len(self.log))
            self.note(Op.MASTER, reader, None, len(self.log))
        else:
            self.note(Op(act), reader, "g", at[reader])

    def drain(self, reader: str, at: dict[str, int]) -> None:
        self.begin(reader, at)
        looked = self.tick()
        while at[reader] < len(self.log):
            self.poll(reader, at)
        node = self.dice.choice((None, reader))
        self.note(Op.DRAINED, reader, node, at[reader]).began_ns = looked
