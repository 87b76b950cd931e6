"""What a framework is asked to do: to forward records, to keep a state, to carry tasks."""

from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.language_rows import MOVES, SECONDS, create, log_of, numbers, write
from tests.compat.languages import Event, Ground, Program, Row, Running, of, run, started, values
from tests.compat.nodes import wait_until_known

EACH: Final = 30
"""Records between two moves."""
UNDER_FAULT_S: Final = 60
WORDS: Final = 5
ALL: Final = 1_000_000


# -- records from one topic into another -----------------------------------------------------------


def out_topic(ground: Ground) -> str:
    topic = f"{ground.name}-out"
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    (made,) = admin.create_topics([NewTopic(topic, 1)]).values()
    made.result(SECONDS)
    wait_until_known(ground.bootstrap, topic)
    return topic


def _state(ground: Ground, name: str = "state") -> dict[str, object]:
    return {"group": ground.name, "state": ground.scratch / name}


def _forwarding(
    program: Program, ground: Ground, do: str, count: int, seconds: float
) -> AbstractContextManager[Running]:
    asked = {**_state(ground), "out": out_topic(ground), "count": count, "seconds": seconds}
    return started(program, ground, do, **asked)


def sent_on(ground: Ground) -> list[str]:
    return [value for _, value in log_of(ground.bootstrap, f"{ground.name}-out")]


def exactly(found: list[str], wanted: list[str], what: str) -> None:
    """All of them, once each, and in order."""
    missing, extra = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert not missing, f"{what}: {missing.total()} of {len(wanted)} are missing"
    assert not extra, f"{what}: {extra.total()} more than {len(wanted)}"
    assert found == wanted, f"{what}: all are there, but out of order"


def _forwarded(do: str) -> Row:
    def row(program: Program, ground: Ground) -> None:
        create(ground)
        write(ground, 200)
        with _forwarding(program, ground, do, 200, SECONDS) as running:
            told = running.wait(SECONDS)
        exactly(values(told, "read"), numbers(200), "read")
        exactly(sent_on(ground), numbers(200), "sent on")

    return row


def _forwarded_under_moves(do: str) -> Row:
    """Each record once, and in order."""

    def row(program: Program, ground: Ground) -> None:
        create(ground)
        count = EACH * MOVES
        with _forwarding(program, ground, do, count, UNDER_FAULT_S) as running:
            for _ in range(MOVES):
                write(ground, EACH)
                ground.faults.move()
            told = running.wait(UNDER_FAULT_S)
        assert not of(told, "error"), of(told, "error")[:5]
        exactly(values(told, "read"), numbers(EACH) * MOVES, "read")
        exactly(sent_on(ground), numbers(EACH) * MOVES, "sent on")

    return row


def _forwarded_under_a_kill(do: str) -> Row:
    """At least once, as each of them promises."""

    def row(program: Program, ground: Ground) -> None:
        create(ground)
        with _forwarding(program, ground, do, ALL, UNDER_FAULT_S) as running:
            write(ground, EACH)
            ground.faults.kill()
            write(ground, EACH)
            running.wait(UNDER_FAULT_S)
        found = Counter(sent_on(ground))
        short = {value for value in numbers(EACH) if found[value] < 2}
        assert not short, f"{len(short)} values were not sent on twice: {sorted(short)[:5]}"

    return row


def forwarding(do: str, called: str = "") -> dict[str, Row]:
    return {
        f"records sent on{called}": _forwarded(do),
        f"records sent on{called}: moves": _forwarded_under_moves(do),
        f"records sent on{called}: a kill": _forwarded_under_a_kill(do),
    }


# -- a state with a changelog ----------------------------------------------------------------------


def counts(told: list[Event]) -> dict[str, int]:
    """The newest of each word."""
    return {str(event["word"]): int(event["count"]) for event in of(told, "count")}


def expected(times: int) -> Counter[str]:
    return Counter(f"word-{int(value) % WORDS}" for value in numbers(50) * times)


def _restored(do: str) -> Row:
    """On a machine without its state, it goes on from the changelog topic."""

    def row(program: Program, ground: Ground) -> None:
        create(ground)
        asked = {"seconds": SECONDS / 2, "count": 0, "out": out_topic(ground)}
        write(ground, 50)
        told = run(program, ground, do, **asked, **_state(ground, "here"))
        assert counts(told) == expected(1), counts(told)
        write(ground, 50)
        told = run(program, ground, do, **asked, **_state(ground, "there"))
        assert counts(told) == expected(2), counts(told)
        admin = AdminClient({"bootstrap.servers": ground.bootstrap})
        topics = {name for name in admin.list_topics(timeout=SECONDS).topics if ground.name in name}
        assert any("changelog" in name for name in topics), topics

    return row


# -- tasks -----------------------------------------------------------------------------------------


def _send(program: Program, ground: Ground, count: int) -> None:
    sent = run(program, ground, "send", count=count, seconds=SECONDS)
    assert values(sent, "acked") == numbers(count)


def tasks(program: Program, ground: Ground) -> None:
    create(ground)
    _send(program, ground, 50)
    told = run(program, ground, "work", group=ground.name, count=50, seconds=SECONDS)
    assert sorted(values(told, "read")) == numbers(50)


def tasks_under_moves(program: Program, ground: Ground) -> None:
    create(ground)
    asked = {"group": ground.name, "count": EACH * MOVES, "seconds": UNDER_FAULT_S}
    with started(program, ground, "work", **asked) as worker:
        for _ in range(MOVES):
            _send(program, ground, EACH)
            ground.faults.move()
        told = worker.wait(UNDER_FAULT_S)
    exactly(sorted(values(told, "read")), sorted(numbers(EACH) * MOVES), "done")


def tasks_under_a_kill(program: Program, ground: Ground) -> None:
    create(ground)
    asked = {"group": ground.name, "count": ALL, "seconds": UNDER_FAULT_S}
    with started(program, ground, "work", **asked) as worker:
        _send(program, ground, EACH)
        ground.faults.kill()
        _send(program, ground, EACH)
        told = worker.wait(UNDER_FAULT_S)
    done = Counter(values(told, "read"))
    assert all(done[value] >= 2 for value in numbers(EACH)), done


QUIX: Final[Mapping[str, Row]] = {
    **forwarding("forward"),
    "state from its changelog topic": _restored("count"),
}
FAUST: Final[Mapping[str, Row]] = {
    **forwarding("forward"),
    "state from its changelog topic": _restored("forward"),
}
FASTSTREAM: Final[Mapping[str, Row]] = {
    **forwarding("forward", ", on aiokafka"),
    **forwarding("forward-confluent", ", on confluent-kafka"),
}
TASKS: Final[Mapping[str, Row]] = {
    "tasks": tasks,
    "tasks: moves": tasks_under_moves,
    "tasks: a kill": tasks_under_a_kill,
}
