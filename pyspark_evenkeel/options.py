"""The options of source and sink, parsed into frozen values that cannot be wrong.

Names are those of Spark's own Kafka source, so that a job only changes its format. Options for a
Kafka client have the prefix `kafka.` there; here it may be left out.

An unknown option that looks like one of ours or of Kafka's is refused: a misspelt
`maxOffsetsPerTriger` must be reported before the job runs, and a client setting that has no effect
here must not seem to have one. Spark's own options are ignored.

The tables are the documentation's source: a test compares docs/spark.md with them.
"""

import difflib
import re
from collections.abc import Mapping
from enum import Enum, Flag, auto
from typing import Final

import attrs

from pyspark_evenkeel import option_values as values
from pyspark_evenkeel import patterns
from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Place
from pyspark_evenkeel.client.security import SECURITY_OPTIONS, security_settings
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.offsets import Cut
from pyspark_evenkeel.option_values import PREFIX, Given, refused
from wire.records.batch import Compression

LOOKS_LIKE: Final = 0.8
"""How similar (0 to 1) an unknown name must be to a known one to count as a typing error."""
TRIGGER_DELAY_S: Final = 15 * 60.0
CHUNK_BYTES: Final = 1_000_000
BUFFER_BYTES: Final = 64 * 1024 * 1024


class Scope(Flag):
    """The kinds of queries that an option is for."""

    BATCH_READ = auto()
    STREAM_READ = auto()
    BATCH_WRITE = auto()
    STREAM_WRITE = auto()
    READ = BATCH_READ | STREAM_READ
    WRITE = BATCH_WRITE | STREAM_WRITE
    ALL = READ | WRITE


_IN_WORDS: Final = {
    Scope.BATCH_READ: "spark.read",
    Scope.STREAM_READ: "spark.readStream",
    Scope.BATCH_WRITE: "df.write",
    Scope.STREAM_WRITE: "df.writeStream",
}

OPTIONS: Final[dict[str, Scope]] = {
    "subscribe": Scope.READ,
    "subscribePattern": Scope.READ,
    "assign": Scope.READ,
    "startingOffsets": Scope.READ,
    "startingTimestamp": Scope.READ,
    "startingOffsetsByTimestamp": Scope.READ,
    "startingOffsetsByTimestampStrategy": Scope.READ,
    "endingOffsets": Scope.BATCH_READ,
    "endingTimestamp": Scope.BATCH_READ,
    "endingOffsetsByTimestamp": Scope.BATCH_READ,
    "minPartitions": Scope.READ,
    "maxRecordsPerPartition": Scope.READ,
    "maxPartitions": Scope.READ,
    "maxOffsetsPerTrigger": Scope.STREAM_READ,
    "minOffsetsPerTrigger": Scope.STREAM_READ,
    "maxTriggerDelay": Scope.STREAM_READ,
    "failOnDataLoss": Scope.READ,
    "includeHeaders": Scope.READ,
    "pushdown": Scope.BATCH_READ,
    "topic": Scope.WRITE,
    "partitioner": Scope.WRITE,
    "delivery": Scope.WRITE,
    "compression": Scope.WRITE,
    "writer": Scope.WRITE,
    "writers": Scope.WRITE,
    "orderBy": Scope.WRITE,
    "writeId": Scope.WRITE,
    "writeBatch": Scope.BATCH_WRITE,
    "chunkBytes": Scope.WRITE,
    "bufferBytes": Scope.WRITE,
}
CLIENT_OPTIONS: Final[dict[str, Scope]] = {
    "bootstrap.servers": Scope.ALL,
    "client.id": Scope.ALL,
    "request.timeout.ms": Scope.ALL,
    "default.api.timeout.ms": Scope.ALL,
    "isolation.level": Scope.READ,
    "compression.type": Scope.WRITE,
    **dict.fromkeys(sorted(SECURITY_OPTIONS), Scope.ALL),
}
"""With or without the prefix `kafka.`."""
NOT_NEEDED: Final[Mapping[str, str]] = {
    "group.id": "positions are in the checkpoint, and no consumer group is used",
    "groupidprefix": "positions are in the checkpoint, and no consumer group is used",
    "auto.offset.reset": "use startingOffsets, and failOnDataLoss for what is lost later",
    "enable.auto.commit": "positions are in the checkpoint",
    "key.deserializer": "key and value are binary: cast them, as in CAST(value AS STRING)",
    "value.deserializer": "key and value are binary: cast them, as in CAST(value AS STRING)",
    "key.serializer": "key and value are binary or string columns: cast them",
    "value.serializer": "key and value are binary or string columns: cast them",
    "acks": "a record is written when a majority has it",
    "transactional.id": "use delivery=exactly-once",
    "enable.idempotence": "use delivery",
    "kafkaconsumer.polltimeoutms": "use kafka.request.timeout.ms",
    "fetchoffset.numretries": "use kafka.default.api.timeout.ms",
    "fetchoffset.retryintervalms": "use kafka.default.api.timeout.ms",
}
"""Options (in lower case) of Kafka's source, consumer or producer, and what to do instead."""


# -- what is read ---------------------------------------------------------------------------------


@attrs.frozen
class Subscribe:
    topics: tuple[str, ...]


@attrs.frozen
class SubscribePattern:
    """Topics whose whole name matches, whenever they are created; never internal ones."""

    pattern: "re.Pattern[str]"


@attrs.frozen
class Assign:
    places: frozenset[Place]


Subscription = Subscribe | SubscribePattern | Assign


@attrs.frozen
class AtOffset:
    """EARLIEST or LATEST everywhere, or an offset (or one of these) for each partition."""

    everywhere: int | None = None
    each: Mapping[Place, int] = attrs.field(factory=dict)


@attrs.frozen
class AtTime:
    """The first record that is not older, everywhere or per partition; in milliseconds."""

    everywhere: int | None = None
    each: Mapping[Place, int] = attrs.field(factory=dict)


Bound = AtOffset | AtTime


@attrs.frozen(kw_only=True)
class SourceOptions:
    cluster: ClusterSettings
    subscription: Subscription
    starting: Bound
    ending: Bound = attrs.field(factory=lambda: AtOffset(LATEST))
    nothing_so_late_is_latest: bool = False
    """Start at the end if no record is as new as the starting time, instead of refusing."""
    cut: Cut = attrs.Factory(Cut)
    offsets_per_trigger_max: int | None = None
    offsets_per_trigger_min: int | None = None
    trigger_delay_s_max: float = 15 * 60
    """How long a micro-batch waits for offsets_per_trigger_min, in seconds."""
    fail_on_data_loss: bool = True
    pushdown: bool = False
    committed_only: bool = False
    """Do not read records of open or aborted transactions (isolation.level)."""


# -- what is written ------------------------------------------------------------------------------


class Delivery(Enum):
    AUTO = "auto"
    """EXACTLY_ONCE if all brokers support it."""
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class Writer(Enum):
    """What a write token identifies a row's writer by."""

    TASK = "task"
    DESTINATION = "destination"


@attrs.frozen(kw_only=True)
class SinkOptions:
    """`writers`, with Writer.DESTINATION: over how many tasks partitions are spread; None: as many
    as the topic has. `write_batch`: the micro-batch number of a batch write, beside `write_id`."""

    cluster: ClusterSettings
    topic: str | None = None
    """For all rows, even those that name a topic; None: each row names one."""
    partitioner: str = "murmur2"
    delivery: Delivery = Delivery.AUTO
    compression: Compression = Compression.NONE
    writer: Writer = Writer.TASK
    writers: int | None = None
    order_by: tuple[str, ...] = ()
    """Columns by which each task sorts its rows before it writes them."""
    write_id: str | None = None
    write_batch: int = 0
    chunk_bytes: int = 1_000_000
    buffer_bytes: int = 64 * 1024 * 1024


# -- parsing --------------------------------------------------------------------------------------


def parse_source(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """The options of a read.

    Raises:
        ConfigurationError: if an option is unknown, malformed or out of place.
    """
    given = Given(options)
    _refuse_the_unknown(given, Scope.STREAM_READ if streaming else Scope.BATCH_READ)
    starting = _bound(given, "starting", AtOffset(LATEST if streaming else EARLIEST))
    ending = _bound(given, "ending", AtOffset(LATEST))
    if not streaming and _has(starting, LATEST):
        raise refused("startingOffsets", "is latest: nothing would be read", "use earliest")
    if _has(ending, EARLIEST):
        raise refused("endingOffsets", "is earliest: nothing would be read", "use latest")
    least = given.parsed("minOffsetsPerTrigger", values.positive, 0)
    most = given.parsed("maxOffsetsPerTrigger", values.positive, 0)
    if least > most > 0:
        raise refused("minOffsetsPerTrigger", "is above maxOffsetsPerTrigger", "lower it")
    return SourceOptions(
        cluster=_cluster(given),
        subscription=_subscription(given),
        starting=starting,
        ending=ending,
        nothing_so_late_is_latest=given.parsed(
            "startingOffsetsByTimestampStrategy", values.boolean("latest", "error"), False
        ),
        cut=Cut(
            given.parsed("minPartitions", values.positive, 0) or None,
            given.parsed("maxRecordsPerPartition", values.positive, 0) or None,
            given.parsed("maxPartitions", values.positive, 0) or None,
        ),
        offsets_per_trigger_max=most or None,
        offsets_per_trigger_min=least or None,
        trigger_delay_s_max=given.parsed("maxTriggerDelay", values.seconds, TRIGGER_DELAY_S),
        fail_on_data_loss=given.parsed("failOnDataLoss", values.flag, True),
        pushdown=given.parsed("pushdown", values.flag, False),
        committed_only=given.client_parsed(
            "isolation.level", values.boolean("read_committed", "read_uncommitted"), False
        ),
    )


def includes_headers(options: Mapping[str, str]) -> bool:
    """Whether the source has the column `headers`: its schema depends on nothing else.

    Raises:
        ConfigurationError: if the value is neither true nor false.
    """
    return Given(options).parsed("includeHeaders", values.flag, False)


def parse_sink(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """The options of a write.

    Raises:
        ConfigurationError: if an option is unknown, malformed or out of place.
    """
    given = Given(options)
    _refuse_the_unknown(given, Scope.STREAM_WRITE if streaming else Scope.BATCH_WRITE)
    codec = given.client_parsed("compression.type", values.compression, Compression.NONE)
    writer = given.parsed("writer", values.one_of(Writer), Writer.TASK)
    writers = given.parsed("writers", values.positive, 0) or None
    if writers is not None and writer is not Writer.DESTINATION:
        raise refused("writers", "needs writer=destination", "set it, or leave writers out")
    write_id = given.text("writeId")
    if write_id is None and given.text("writeBatch") is not None:
        raise refused("writeBatch", "needs writeId", "name what is written")
    return SinkOptions(
        cluster=_cluster(given),
        topic=given.text("topic"),
        partitioner=given.parsed("partitioner", values.partitioner, "murmur2"),
        delivery=given.parsed("delivery", values.one_of(Delivery), Delivery.AUTO),
        compression=given.parsed("compression", values.compression, codec),
        writer=writer,
        writers=writers,
        order_by=given.parsed("orderBy", values.names, ()),
        write_id=write_id,
        write_batch=given.parsed("writeBatch", values.count, 0),
        chunk_bytes=given.parsed("chunkBytes", values.chunk_bytes, CHUNK_BYTES),
        buffer_bytes=given.parsed("bufferBytes", values.positive, BUFFER_BYTES),
    )


def _refuse_the_unknown(given: Given, query: Scope) -> None:
    proper = {name.lower(): name for name in (*OPTIONS, *CLIENT_OPTIONS)}
    users = {name.lower(): who for name, who in (OPTIONS | CLIENT_OPTIONS).items()}
    for key in given.names:
        name = key.removeprefix(PREFIX)
        if name in (CLIENT_OPTIONS if name != key else users):
            if not users[name] & query:
                where = " and ".join(_IN_WORDS[one] for one in users[name])
                advice = f"it is for {where}: leave it out"
                raise refused(proper[name], "has no effect here", advice)
        elif name in NOT_NEEDED:
            raise refused(key, "has no effect here", NOT_NEEDED[name])
        elif similar := difflib.get_close_matches(name, users, 1, LOOKS_LIKE):
            raise refused(key, "is not known", f"did you mean {proper[similar[0]]}?")
        elif name != key:
            advice = f"of a client's options these are known: {', '.join(CLIENT_OPTIONS)}"
            raise refused(key, "has no effect here", advice)


def _cluster(given: Given) -> ClusterSettings:
    bootstrap = given.client_text("bootstrap.servers")
    if not bootstrap:
        raise refused("bootstrap.servers", "is missing", "write host:port,host:port")
    named = {name: given.client_text(name) for name in sorted(SECURITY_OPTIONS)}
    security = {name: text for name, text in named.items() if text is not None}
    settings = ClusterSettings(bootstrap=bootstrap, security=security_settings(security))
    return attrs.evolve(
        settings,
        client_id=given.client_text("client.id") or settings.client_id,
        request_ms=given.client_parsed("request.timeout.ms", values.positive, settings.request_ms),
        retry_ms=given.client_parsed("default.api.timeout.ms", values.positive, settings.retry_ms),
    )


def _subscription(given: Given) -> Subscription:
    name = given.only_one_of("subscribe", "subscribePattern", "assign")
    if name == "subscribe":
        return Subscribe(given.parsed(name, values.topics, ()))
    if name == "subscribePattern":
        return SubscribePattern(given.parsed(name, patterns.read, re.compile("")))
    if name == "assign":
        return Assign(given.parsed(name, values.places, frozenset()))
    raise refused("subscribe", "is missing", "or subscribePattern, or assign")


def _bound(given: Given, side: str, default: Bound) -> Bound:
    """`side` is "starting" or "ending"."""
    offsets, time, by_time = f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"
    name = given.only_one_of(offsets, time, by_time)
    if name is None:
        return default
    if name == time:
        return AtTime(given.parsed(name, values.count, 0))
    if name == by_time:
        return AtTime(each=given.parsed(name, values.positions(0), {}))
    words = {"earliest": EARLIEST, "latest": LATEST}
    word = (given.text(name) or "").lower()
    if word in words:
        return AtOffset(words[word])
    return AtOffset(each=given.parsed(name, values.positions(EARLIEST), {}))


def _has(bound: Bound, offset: int) -> bool:
    return isinstance(bound, AtOffset) and offset in (bound.everywhere, *bound.each.values())
