"""How records look, and where reading begins; without a cluster."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from cli import main as cli
from cli import records
from cli.clusters.kafka_commands import ClientError
from cli.records import _filled, _pieces, _Reader, _refuse_nonsense
from cli.where import time_ms
from evenkeel import ConsumerRecord, TopicDescription, TopicPartition


def record() -> ConsumerRecord:
    return ConsumerRecord(
        topic="t",
        partition=2,
        offset=7,
        timestamp_ms=5,
        key=b"k\xff",
        value=None,
        headers=(("a", b"1"), ("b", None)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t/%p@%o %T\\n", b"t/2@7 5\n"),
        ("%k=%v|%h", b"k\xff=|a=1,b="),
        ("100%% \\\\ \\t\\0", b"100% \\ \t\0"),
        ("plain", b"plain"),
    ],
)
def test_a_format(text: str, expected: bytes) -> None:
    assert b"".join(_filled(piece, record()) for piece in _pieces(text)) == expected


@pytest.mark.parametrize("text", ["%", "%x", "\\", "\\q"])
def test_a_format_that_means_nothing_names_what_does(text: str) -> None:
    with pytest.raises(ClientError, match="means nothing; known are"):
        _pieces(text)


@attrs.define
class Asked:
    group: str | None = None
    partition: list[int] | None = None
    last: int | None = None
    begin: str | None = None
    json: bool = False
    raw: bool = False
    format: str | None = None
    follow: bool = False
    timeout: float = 0.05
    count: int | None = None


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (Asked(group="g", partition=[1]), "cannot choose its partitions"),
        (Asked(group="g", last=3), "continues where it was: omit --last"),
        (Asked(group="g", begin="7"), "evenkeel group seek g --to 7"),
        (Asked(last=3, begin="end"), "both say where to begin"),
        (Asked(last=0), "write 1 to"),
        (Asked(json=True, raw=True), "three shapes"),
    ],
)
def test_what_makes_no_sense(asked: Asked, complaint: str) -> None:
    with pytest.raises(ClientError, match=complaint):
        _refuse_nonsense(asked)


def test_times_are_utc_unless_they_say_otherwise() -> None:
    assert time_ms("1970-01-01T00:00:01") == time_ms("1970-01-01T01:00:01+01:00") == 1000
    assert time_ms("@7") == 7
    for early in ("1969-12-31T23:59:59.999", "1969-12-31T23:59:59.998", "0001-01-01"):
        assert time_ms(early) == 0, "not -1, which means the end: trim would delete everything"
    assert time_ms(f"@{10**30}") == 2**63 - 1
    with pytest.raises(ClientError, match="cannot go to 'soon'"):
        time_ms("soon")


class Silent:
    """A consumer that gets nothing."""

    def __init__(self, *ours: TopicPartition) -> None:
        self.assignment = frozenset(ours)

    async def poll(self, _timeout_s: float) -> None:
        return None

    def known_position(self, _place: TopicPartition) -> int:
        return 3


@pytest.mark.parametrize(
    ("ours", "complaint"),
    [
        ([], "consumer group 'g' gave us no partition within 0.05 s"),
        ([TopicPartition("t", 0)], "nothing came within 0.05 s from t/0, though there are more"),
    ],
)
async def test_reading_gives_up_in_time(ours: list[TopicPartition], complaint: str) -> None:
    """Its coordinator, or a leader, does not answer: --timeout holds."""
    silent: Any = Silent(*ours)
    reader = _Reader(silent, {place: 9 for place in ours}, Asked(group="g"))

    async def reads() -> None:
        while True:
            await reader._some()

    with pytest.raises(ClientError, match=complaint):
        await reads()


async def test_who_follows_waits_for_as_long_as_it_takes() -> None:
    place = TopicPartition("t", 0)
    silent: Any = Silent(place)
    reader = _Reader(silent, {place: 3}, Asked(follow=True))
    for _ in range(20):
        assert await reader._some() == ()
    assert records.LAST_MAX > 0


class Log:
    """A producer whose records are there once it has flushed."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.written: list[bytes] = []

    async def send(self, _topic: str, value: bytes, **_: object) -> Any:
        self.sent.append(value)
        return _there()

    async def flush(self) -> None:
        self.written = [*self.sent]


async def _there() -> None:
    """It was acknowledged."""


def test_a_line_without_a_key_ends_it_after_those_before_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who mends the line and begins anew would write them twice."""
    log = Log()

    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[Log]:
        yield log

    async def nothing(*_: object) -> TopicDescription:
        return TopicDescription(name="t", topic_id="", internal=False, partitions=())

    async def lines() -> AsyncGenerator[bytes, None]:
        for line in (b"a:1", b"b:2", b"c", b"d:4"):
            yield line

    for name, fake in (
        ("open_admin", opened),
        ("Producer", opened),
        ("existing_topic", nothing),
        ("_lines", lines),
    ):
        monkeypatch.setattr(records, name, fake)
    words = ["topic", "produce", "t", "--key-separator", ":", "--bootstrap", "127.0.0.1:1"]
    assert cli.run(words) == 1
    told = "line 3 has no key: ':' is not in it; the 2 lines before it were written"
    assert told in capsys.readouterr().err
    assert log.written == [b"1", b"2"]
