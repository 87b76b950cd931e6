"""`evenkeel topic produce` and `evenkeel topic consume`: records in and out. Any Kafka cluster."""

import argparse
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from io import BufferedReader
from typing import Any, Final, cast

import attrs
import trio

from cli.clusters.kafka_commands import (
    ClientError,
    config_of,
    existing_topic,
    json_of,
    open_admin,
    pairs,
    text_of,
)
from cli.clusters.reach import bootstrap_of
from cli.clusters.target import whole
from cli.where import WHERE, time_ms
from evenkeel import (
    Admin,
    Compression,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    Delivery,
    OffsetReset,
    Producer,
    ProducerConfig,
    TopicDescription,
    TopicPartition,
)
from evenkeel.lookups import BEGINNING, END

READ_BYTES: Final = 64 * 1024
UNACKNOWLEDGED_MAX: Final = 10_000
"""Records whose places have not been printed yet."""
LAST_MAX: Final = 100_000
"""Records that --last keeps in memory."""
POLL_S: Final = 0.1
ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
FORMAT: Final = (
    "%%t topic, %%p partition, %%o offset, %%T time in ms, %%k key, %%v value, %%h headers"
)
RESETS: Final = {"beginning": OffsetReset.EARLIEST, "end": OffsetReset.LATEST}


def add_produce_options(produce: argparse.ArgumentParser) -> None:
    produce.add_argument(
        "--key-separator", metavar="TEXT", help="separates key and value in a line"
    )
    produce.add_argument(
        "--partition", type=whole, metavar="P", help="write everything to this partition"
    )
    produce.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    names = [codec.name.lower() for codec in Compression]
    produce.add_argument("--compression", choices=names, default="none")


def add_consume_options(consume: argparse.ArgumentParser) -> None:
    consume.add_argument("--partition", type=whole, action="append", metavar="P", help="only these")
    consume.add_argument("--from", dest="begin", default=None, metavar="WHERE", help=WHERE)
    text = "begin with the last N records of each partition, the oldest first"
    consume.add_argument("--last", type=int, metavar="N", help=text)
    consume.add_argument("--count", type=int, metavar="N", help="no more than N records")
    consume.add_argument("--follow", action="store_true", help="wait for more, until Ctrl-C")
    consume.add_argument("--group", metavar="GROUP", help="as a member of this consumer group")
    shape = consume.add_mutually_exclusive_group()
    shape.add_argument("--raw", action="store_true", help="the values alone, byte for byte")
    text = f"{FORMAT}; \\n, \\t, \\0"
    shape.add_argument("--format", metavar="TEXT", help=text)


# --- in ------------------------------------------------------------------------------------------


async def _lines() -> AsyncGenerator[bytes, None]:
    """The lines of standard input, without their ends."""
    rest = b""
    stdin = cast("BufferedReader", sys.stdin.buffer)
    while True:
        data = await trio.to_thread.run_sync(stdin.read1, READ_BYTES, abandon_on_cancel=True)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def produce(options: Any) -> int:  # noqa: ANN401 (argparse's)
    headers = [(name, value.encode()) for name, value in pairs(options.header, "header").items()]
    separator = None if options.key_separator is None else options.key_separator.encode()
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)  # otherwise sending would wait for it
        _check_partitions(topic, [] if options.partition is None else [options.partition])
    client = config_of(options)
    config = ProducerConfig(
        compression=Compression[options.compression.upper()],
        send_timeout_ms=client.operation_timeout_ms,
        delivery_timeout_ms=client.operation_timeout_ms,
    )
    count = 0
    async with Producer(bootstrap_of(options), config, client=client) as producer:
        waiting: list[Delivery] = []
        async with aclosing(_lines()) as lines:
            async for line in lines:
                try:
                    key, value = _split(line, separator, count + 1)
                except ClientError as error:
                    await producer.flush()
                    await _acknowledged(options, waiting)
                    raise ClientError(
                        f"{error}; the {count} lines before it were written"
                    ) from None
                waiting.append(
                    await producer.send(
                        options.topic, value, key=key, partition=options.partition, headers=headers
                    )
                )
                count += 1
                if len(waiting) >= UNACKNOWLEDGED_MAX:
                    await _acknowledged(options, waiting)
        await producer.flush()
        await _acknowledged(options, waiting)
    if not options.json:
        print(f"{count} records written to {options.topic}")
    return 0


def _split(line: bytes, separator: bytes | None, number: int) -> tuple[bytes | None, bytes]:
    if separator is None:
        return None, line
    key, found, value = line.partition(separator)
    if not found:
        raise ClientError(f"line {number} has no key: '{separator.decode()}' is not in it")
    return key, value


async def _acknowledged(options: Any, waiting: list[Delivery]) -> None:  # noqa: ANN401 (argparse's)
    """Wait for all of them; the first failure is raised."""
    for delivery in waiting:
        place = await delivery
        if options.json:
            print(json.dumps({"partition": place.partition, "offset": place.offset}))
    waiting.clear()


# --- out -----------------------------------------------------------------------------------------


async def consume(options: Any) -> int:  # noqa: ANN401 (argparse's)
    options.changes = options.group is not None  # a member commits what it has read
    _refuse_nonsense(options)
    show = _shape(options)
    if options.count is not None and options.count < 1:
        return 0
    reset = RESETS.get(options.begin or "beginning", OffsetReset.EARLIEST)
    config = ConsumerConfig(group=options.group, offset_reset=reset)
    async with Consumer(bootstrap_of(options), config, client=config_of(options)) as consumer:
        reader = _Reader(consumer, await _start(consumer, options), options)
        if options.last is not None:
            newest = sorted(await reader.backlog(), key=_age)[-(options.count or LAST_MAX) :]
            for record in newest:
                show(record)
            sys.stdout.flush()
            if not options.follow or len(newest) == options.count:
                return 0
        await reader.print_all(show)
    return 0


def _age(record: ConsumerRecord) -> tuple[int, int, int]:
    return record.timestamp_ms, record.partition, record.offset


def _refuse_nonsense(options: Any) -> None:  # noqa: ANN401 (argparse's)
    if options.group is not None and options.partition:
        raise ClientError("a member of a consumer group cannot choose its partitions")
    if options.group is not None and options.last is not None:
        raise ClientError("a member of a consumer group continues where it was: omit --last")
    if options.group is not None and options.begin not in (None, *RESETS):
        raise ClientError(
            "a member of a consumer group continues where it was; move it with: evenkeel group "
            f"seek {options.group} --to {options.begin}"
        )
    if options.last is not None and options.begin is not None:
        raise ClientError("--last and --from both say where to begin: give one of them")
    if options.last is not None and not 0 < options.last <= LAST_MAX:
        raise ClientError(f"--last {options.last}: write 1 to {LAST_MAX}")
    if options.json and (options.raw or options.format is not None):
        raise ClientError("--json, --raw and --format are three shapes: give one of them")


async def _start(consumer: Consumer, options: Any) -> dict[TopicPartition, int]:  # noqa: ANN401
    """Assign or subscribe; where the partitions end now."""
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        places = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
        if options.partition:
            _check_partitions(topic, options.partition)
            places = [place for place in places if place.partition in options.partition]
        begins = await _begins(admin, options, places)
    ends = await consumer.end_offsets(places)
    if options.group is None:
        await consumer.assign(places if begins is None else begins)
    else:
        await consumer.subscribe([topic.name])
    return ends


async def _begins(
    admin: Admin,
    options: Any,  # noqa: ANN401 (argparse's)
    places: Sequence[TopicPartition],
) -> dict[TopicPartition, int] | None:
    """Where to begin, within the existing records; None for the usual."""
    where: str = f"-{options.last}" if options.last is not None else options.begin or "beginning"
    if where in RESETS:
        return None
    firsts = await admin.list_offsets(dict.fromkeys(places, BEGINNING))
    ends = await admin.list_offsets(dict.fromkeys(places, END))
    if where[:1] == "-" and where[1:].isdecimal():
        wanted = {place: ends[place].offset - int(where[1:]) for place in places}
    elif where.isdecimal():
        wanted = dict.fromkeys(places, int(where))
    else:
        found = await admin.list_offsets(dict.fromkeys(places, time_ms(where)))
        wanted = {
            place: one.offset if one.offset >= 0 else ends[place].offset
            for place, one in found.items()
        }
    return {
        place: min(max(offset, firsts[place].offset), ends[place].offset)
        for place, offset in wanted.items()
    }


def _check_partitions(topic: TopicDescription, wanted: Iterable[int]) -> None:
    unknown = set(wanted) - {one.partition for one in topic.partitions}
    if unknown:
        raise ClientError(f"topic {topic.name} has no partition {min(unknown)}")


@attrs.define
class _Reader:
    """Reads up to the ends, or on and on; gives up if nothing comes for `--timeout`."""

    consumer: Consumer
    ends: Mapping[TopicPartition, int]
    options: Any
    _since: float = attrs.field(factory=time.monotonic)

    async def print_all(self, show: Callable[[ConsumerRecord], None]) -> None:
        printed = 0
        while self.options.follow or not self._at_the_end():
            for record in await self._some():
                show(record)
                printed += 1
                if printed == self.options.count:
                    await self._commit_up_to(record)
                    return
            sys.stdout.flush()

    async def backlog(self) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = []
        while not self._at_the_end():
            records += await self._some()
            if len(records) > 2 * LAST_MAX:
                records = sorted(records, key=_age)[-LAST_MAX:]
        return records

    async def _some(self) -> Sequence[ConsumerRecord]:
        """What comes soon.

        Raises:
            ClientError: if there should be something, and nothing has come for too long.
        """
        records = await self.consumer.poll(POLL_S)
        if records is not None:
            self._since = time.monotonic()
            return list(records)
        if not self.options.follow or not self._at_the_end_or_standing_by():
            self._check_patience()
        else:
            self._since = time.monotonic()
        return ()

    def _check_patience(self) -> None:
        waited_s = time.monotonic() - self._since
        if self._at_the_end() or waited_s < self.options.timeout:
            return
        if not self.consumer.assignment:
            raise ClientError(
                f"consumer group '{self.options.group}' gave us no partition within "
                f"{self.options.timeout:g} s: its coordinator does not answer, or its other "
                "members have them all (evenkeel group describe shows them)"
            )
        late = sorted(str(place) for place in self.consumer.assignment if not self._is_read(place))
        raise ClientError(
            f"nothing came within {self.options.timeout:g} s from {', '.join(late[:5])}, though "
            "there are more records: is its leader there? (evenkeel topic describe)"
        )

    def _at_the_end_or_standing_by(self) -> bool:
        """With --follow a member may be without partitions for as long as it likes."""
        return not self.consumer.assignment or self._at_the_end()

    def _at_the_end(self) -> bool:
        """Of every partition we have; as a member we first have to be given some."""
        ours = self.consumer.assignment
        return bool(ours) and all(self._is_read(place) for place in ours)

    def _is_read(self, place: TopicPartition) -> bool:
        at = self.consumer.known_position(place)
        return at is not None and at >= self.ends.get(place, 0)

    async def _commit_up_to(self, last: ConsumerRecord) -> None:
        """The rest of the batch was not printed: it is another's, or ours next time."""
        place = TopicPartition(last.topic, last.partition)
        self.consumer.seek(place, last.offset + 1)
        if self.options.group is not None:
            await self.consumer.commit()


# --- how records look ----------------------------------------------------------------------------


def _shape(options: Any) -> Callable[[ConsumerRecord], None]:  # noqa: ANN401 (argparse's)
    if options.json:
        return _print_json
    if options.raw:
        return lambda record: _write((record.value or b"") + b"\n")
    if options.format is not None:
        pieces = _pieces(options.format)
        return lambda record: _write(b"".join(_filled(piece, record) for piece in pieces))
    return _print_text


def _write(data: bytes) -> None:
    """Bytes as they are, behind whatever has been printed."""
    sys.stdout.flush()
    sys.stdout.buffer.write(data)


def _print_text(record: ConsumerRecord) -> None:
    key = "" if record.key is None else f"{text_of(record.key)}\t"
    print(f"{record.partition}/{record.offset}\t{key}{text_of(record.value)}")


def _print_json(record: ConsumerRecord) -> None:
    document: dict[str, object] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        **json_of("key", record.key),
        **json_of("value", record.value),
    }
    if record.headers:
        document["headers"] = [
            {"name": name, **json_of("value", one)} for name, one in record.headers
        ]
    print(json.dumps(document))


FIELDS: Final[Mapping[str, Callable[[ConsumerRecord], bytes]]] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "h": lambda record: b",".join(
        name.encode() + b"=" + (value or b"") for name, value in record.headers
    ),
}
Piece = bytes | Callable[[ConsumerRecord], bytes]


def _pieces(text: str) -> list[Piece]:
    """A format, taken apart once.

    Raises:
        ClientError: if something in it means nothing.
    """
    pieces: list[Piece] = []
    letters = iter(text)
    for letter in letters:
        if letter not in "%\\":
            pieces.append(letter.encode())
            continue
        after = next(letters, "")
        known: Mapping[str, Piece] = {**FIELDS, "%": b"%"} if letter == "%" else ESCAPES
        if after not in known:
            names = ", ".join(f"{letter}{one}" for one in known)
            raise ClientError(f"--format: '{letter}{after}' means nothing; known are {names}")
        pieces.append(known[after])
    return pieces


def _filled(piece: Piece, record: ConsumerRecord) -> bytes:
    return piece if isinstance(piece, bytes) else piece(record)
