"""Kafka Streams: counts by word, in all and by windows, behind a repartition topic."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.compat.language_rows import MOVES, SECONDS, create, numbers, write
from tests.compat.languages import Event, Ground, Program, Row, of, run, started

RUN_S: Final = 20
SESSION_S: Final = 12
"""How long a former member is waited for."""
UNDER_FAULT_S: Final = 45
START_MS: Final = 1_700_000_000_000
"""A multiple of the window of ten seconds."""
WORDS: Final = 5


def word_of(value: str) -> str:
    return f"word-{int(value) % WORDS}"


def counts(told: list[Event]) -> dict[str, int]:
    """The newest of each word."""
    return {str(event["word"]): int(event["count"]) for event in of(told, "count")}


def windowed(program: Program, ground: Ground) -> None:
    """A value a second, so two of each word in each window of ten seconds."""
    create(ground)
    write(ground, 50, start_ms=START_MS)
    asked = {"group": ground.name, "state": ground.scratch / "state"}
    told = run(program, ground, "streams", seconds=RUN_S, **asked)
    assert counts(told) == Counter(map(word_of, numbers(50))), counts(told)
    windows = {(event["word"], event["start"]): event["count"] for event in of(told, "window")}
    starts = [START_MS + 10_000 * number for number in range(5)]
    assert windows == {(f"word-{word}", start): 2 for word in range(WORDS) for start in starts}


def restored(program: Program, ground: Ground) -> None:
    """On a machine without its state, it goes on from the changelog topics."""
    create(ground)
    asked = {"group": ground.name}
    write(ground, 50)
    run(program, ground, "streams", state=ground.scratch / "here", seconds=RUN_S, **asked)
    write(ground, 50)
    longer = RUN_S + SESSION_S
    told = run(program, ground, "streams", state=ground.scratch / "there", seconds=longer, **asked)
    assert counts(told) == Counter(map(word_of, numbers(50) * 2)), counts(told)
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    topics = {name for name in admin.list_topics(timeout=SECONDS).topics if ground.name in name}
    changelogs = {name for name in topics if name.endswith("-changelog")}
    assert len(changelogs) == 2, topics


def moved(program: Program, ground: Ground) -> None:
    """Counts stay exact while masters move: nothing is processed twice or left out."""
    create(ground)
    asked = {"group": ground.name, "state": ground.scratch / "state", "seconds": UNDER_FAULT_S}
    with started(program, ground, "streams", **asked) as running:
        for _ in range(MOVES):
            write(ground, 50)
            ground.faults.move()
        told = running.wait(UNDER_FAULT_S)
    assert not of(told, "error"), of(told, "error")
    assert counts(told) == Counter(map(word_of, numbers(50) * MOVES)), counts(told)


def killed(program: Program, ground: Ground) -> None:
    """At least once, as Streams promises by default: nothing is left out."""
    create(ground)
    asked = {"group": ground.name, "state": ground.scratch / "state", "seconds": UNDER_FAULT_S}
    with started(program, ground, "streams", **asked) as running:
        write(ground, 50)
        ground.faults.kill()
        write(ground, 50)
        told = running.wait(UNDER_FAULT_S)
    assert not of(told, "error"), of(told, "error")
    least = Counter(map(word_of, numbers(50) * 2))
    assert all(counts(told)[word] >= count for word, count in least.items()), counts(told)


ROWS: Final[Mapping[str, Row]] = {
    "streams: counts, in all and by windows": windowed,
    "streams: state from its changelog topics": restored,
    "streams: moves": moved,
    "streams: a kill": killed,
}
