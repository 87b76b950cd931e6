"""The rows of the matrix by language: what each program is asked to do, and how it is judged.

The judge is not the client under test: confluent-kafka writes what a program is to read, and reads
what a program has written.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.counts import Counts
from tests.compat.languages import Event, Ground, Program, Row, of, run, started, values
from tests.compat.nodes import wait_until_known

SECONDS: Final = 30
"""In which a program that waits for something gives up."""
START_S_MAX: Final = 240
"""How long a program may take until it works: a JVM beside three nodes on two cores."""
FAULT_S: Final = {"move": 24, "kill": 30, "roll": 120}
RATE: Final = 50
MOVES: Final = 6
ALL: Final = 1_000_000
Told = Callable[[], list[Event]]


def numbers(count: int) -> list[str]:
    return [f"{number:06}" for number in range(count)]


def create(ground: Ground, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    (made,) = admin.create_topics([NewTopic(ground.name, partitions)]).values()
    made.result(SECONDS)
    wait_until_known(ground.bootstrap, ground.name)


def write(ground: Ground, count: int, partition: int = 0, start_ms: int | None = None) -> None:
    """Values in order; from `start_ms` on, a second apart."""
    producer = Producer({"bootstrap.servers": ground.bootstrap, "linger.ms": 0})
    for number, value in enumerate(numbers(count)):
        at = 0 if start_ms is None else start_ms + 1_000 * number  # 0: the producer's clock
        producer.produce(ground.name, value, partition=partition, timestamp=at)
        if start_ms is not None:
            producer.flush(SECONDS)
    assert producer.flush(SECONDS) == 0


def log_of(bootstrap: str, topic: str, partition: int = 0) -> list[tuple[int, str]]:
    """Everything that the partition holds now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge"})
    try:
        first, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)
        consumer.assign([TopicPartition(topic, partition, first)])
        found: list[tuple[int, str]] = []
        deadline = time.monotonic() + SECONDS
        while end > first and (not found or found[-1][0] < end - 1):
            assert time.monotonic() < deadline, f"the judge read {len(found)} of {end - first}"
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                found.append((message.offset(), message.value().decode()))
        return found
    finally:
        consumer.close()


# -- produce and consume ---------------------------------------------------------------------------


def _produced(**options: object) -> Row:
    def row(program: Program, ground: Ground) -> None:
        create(ground)
        told = run(program, ground, "produce", count=500, seconds=SECONDS, **options)
        found = log_of(ground.bootstrap, ground.name)
        assert [value for _, value in found] == numbers(500)
        if options.get("acks") != "0":
            assert sorted(values(told, "acked")) == numbers(500)
            offsets = {str(event["value"]): event["offset"] for event in of(told, "acked")}
            assert [offsets[value] for _, value in found] == [offset for offset, _ in found]

    return row


def consume(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 500)
    read = values(run(program, ground, "consume", count=500, seconds=SECONDS), "read")
    assert read == numbers(500), f"{len(read)} read, {read[:3]} to {read[-3:]}"


def times(program: Program, ground: Ground) -> None:
    create(ground)
    start = 1_700_000_000_000
    write(ground, 10, start_ms=start)
    for at, expected in ((start, 0), (start + 4_500, 5), (start + 60_000, None)):
        (answer,) = of(run(program, ground, "times", at=at), "offset")
        assert answer["offset"] == expected, (at, answer)


def transact(program: Program, ground: Ground) -> None:
    create(ground)
    (refused,) = of(run(program, ground, "transact"), "refused")
    assert refused["text"]


# -- groups ----------------------------------------------------------------------------------------


def resume(program: Program, ground: Ground) -> None:
    """What is committed is not read again."""
    create(ground)
    write(ground, 100)
    asked = {"group": ground.name, "seconds": SECONDS}
    first = values(run(program, ground, "group", count=60, **asked), "read")
    assert first == numbers(100)[: len(first)], f"{len(first)} read: {first[:3]} to {first[-3:]}"
    assert len(first) >= 60, f"only {len(first)} read"
    write(ground, 40)
    rest = values(run(program, ground, "group", count=140 - len(first), **asked), "read")
    assert rest == (numbers(100) + numbers(40))[len(first) :], (
        f"{len(first)}, then {len(rest)} read"
    )


def _shared(**options: object) -> Row:
    """Two members share six partitions; each record is read by one of them."""

    def row(program: Program, ground: Ground) -> None:
        create(ground, partitions=6)
        asked = {"group": ground.name, "count": ALL, "seconds": SECONDS, **options}
        with ExitStack() as stack:
            members = [
                stack.enter_context(started(program, ground, "group", **asked)) for _ in range(2)
            ]
            _until_shared([member.events for member in members], 6)
            for partition in range(6):
                write(ground, 50, partition)
            told = [member.wait(SECONDS) for member in members]
        assert not [event for one in told for event in of(one, "error")]
        read = [
            (event["partition"], str(event["value"])) for one in told for event in of(one, "read")
        ]
        found = Counter(read)
        wanted = Counter((p, value) for p in range(6) for value in numbers(50))
        missing, again = (wanted - found).total(), (found - wanted).total()
        assert not missing + again, f"{missing} not read, {again} read twice"

    return row


def _until_shared(asked: Sequence[Told], partitions: int) -> None:
    deadline = time.monotonic() + START_S_MAX
    shares: list[list[int]] = []
    while time.monotonic() < deadline:
        shares = [_owned(events()) for events in asked]
        if all(shares) and sorted(chain(*shares)) == list(range(partitions)):
            return
        time.sleep(0.1)
    raise AssertionError(f"the members do not share the partitions: {shares}")


def _owned(told: list[Event]) -> list[int]:
    """By the newest assignment, which names all that the member has."""
    rebalances = of(told, "rebalance")
    return list(rebalances[-1]["partitions"]) if rebalances else []


def static(program: Program, ground: Ground) -> None:
    """A static member returns within its session: it has its partitions again, and goes on."""
    create(ground, partitions=3)
    asked = {"group": ground.name, "seconds": SECONDS, "instance": "one"}
    for partition in range(3):
        write(ground, 20, partition)
    assert len(of(run(program, ground, "group", count=60, **asked), "read")) == 60
    write(ground, 10)
    assert len(of(run(program, ground, "group", count=10, **asked), "read")) == 10


def admin(program: Program, ground: Ground) -> None:
    steps = [event["what"] for event in of(run(program, ground, "admin"), "step")]
    wanted = ["created", "retention.ms=1000", "retention.ms=2000", "partitions=5", "listed"]
    assert steps == [*wanted, "deleted"], steps
    known = AdminClient({"bootstrap.servers": ground.bootstrap}).list_topics(timeout=SECONDS)
    assert ground.name not in known.topics


# -- faults ----------------------------------------------------------------------------------------


def _under(fault: str, *, idempotent: bool) -> Row:
    """A producer and a member of a group at work meanwhile: nothing acknowledged is lost.

    While masters are moved, nothing may be noticed: no error, nothing twice, no rebalance.
    """

    def row(program: Program, ground: Ground) -> None:
        create(ground)
        seconds = FAULT_S[fault]
        load = {
            "seconds": seconds,
            "rate": RATE,
            "acks": "all",
            "idempotent": str(idempotent).lower(),
        }
        # It begins to count before the producer's runtime is up, and has to be there at the end.
        group = {"group": ground.name, "count": ALL, "seconds": seconds + 35}
        with started(program, ground, "group", **group) as reader, ExitStack() as stack:
            _until_shared([reader.events], 1)
            writer = stack.enter_context(started(program, ground, "produce", **load))
            _until_read(reader.events)
            _inflict(fault, ground)
            wrote, read = writer.wait(seconds), reader.wait(seconds)
        acked = values(wrote, "acked")
        found = [value for _, value in log_of(ground.bootstrap, ground.name)]
        Counts.of(wrote, read, found).keep(ground.scratch)
        assert len(acked) > seconds * RATE / 4, f"only {len(acked)} were acknowledged"
        assert not set(acked) - set(found), f"{len(set(acked) - set(found))} lost"
        unread = set(found) - set(values(read, "read"))
        assert not unread, f"{len(unread)} in the log were not read"
        if idempotent or fault == "move":
            assert len(found) == len(set(found)), f"{len(found) - len(set(found))} stored twice"
        if idempotent:
            assert found == sorted(found), "out of order"
        if fault == "move":
            errors = of(wrote, "error") + of(read, "error")
            assert not errors, errors[:5]
            again = len(of(read, "read")) - len(set(values(read, "read")))
            assert not again, f"{again} read twice"
            assigned = [event for event in of(read, "rebalance") if event["partitions"]]
            assert len(assigned) == 1, f"rebalances: {assigned}"

    return row


def _until_read(events: Told) -> None:
    deadline = time.monotonic() + START_S_MAX
    while not of(events(), "read"):
        assert time.monotonic() < deadline, "the member reads nothing"
        time.sleep(0.1)


def _inflict(fault: str, ground: Ground) -> None:
    if fault == "move":
        for _ in range(MOVES):
            ground.faults.move()
    elif fault == "kill":
        ground.faults.kill()
    else:
        ground.faults.roll()


ROWS: Final[Mapping[str, Row]] = {
    "produce, acks=0": _produced(acks="0"),
    "produce, acks=1": _produced(acks="1"),
    "produce, acks=all": _produced(acks="all"),
    "produce, idempotent": _produced(acks="all", idempotent="true"),
    "gzip": _produced(codec="gzip"),
    "snappy": _produced(codec="snappy"),
    "lz4": _produced(codec="lz4"),
    "zstd": _produced(codec="zstd"),
    "consume": consume,
    "offsets by time": times,
    "transactions refused": transact,
    "group: commit, resume": resume,
    "group: range": _shared(assignor="range"),
    "group: roundrobin": _shared(assignor="roundrobin"),
    "group: sticky": _shared(assignor="sticky"),
    "group: cooperative-sticky": _shared(assignor="cooperative-sticky"),
    "group: shared out by the broker": _shared(protocol="consumer"),
    "group: static member": static,
    "admin": admin,
    "moves": _under("move", idempotent=False),
    "moves, idempotent": _under("move", idempotent=True),
    "a kill": _under("kill", idempotent=False),
    "a kill, idempotent": _under("kill", idempotent=True),
    "a rolling restart": _under("roll", idempotent=True),
}
