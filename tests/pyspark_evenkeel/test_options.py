"""The options of source and sink, and what is refused with a reason."""

import re
from pathlib import Path

import pytest

from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Place
from pyspark_evenkeel.client.security import Protocol
from pyspark_evenkeel.errors import ConfigurationError
from pyspark_evenkeel.offsets import Cut
from pyspark_evenkeel.options import (
    CLIENT_OPTIONS,
    OPTIONS,
    Assign,
    AtOffset,
    AtTime,
    Delivery,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Writer,
    includes_headers,
    parse_sink,
    parse_source,
)
from wire.records.batch import Compression

LEAST = {"kafka.bootstrap.servers": "a:1,b:2", "subscribe": "orders"}
SERVERS = {"bootstrap.servers": "a:1"}


def source(*, streaming: bool = False, **options: str) -> SourceOptions:
    return parse_source(LEAST | options, streaming=streaming)


def why_refused(options: dict[str, str], *, streaming: bool = False) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse_source(options, streaming=streaming)
    return str(caught.value)


def test_the_defaults_are_those_of_spark_s_kafka_source() -> None:
    batch, stream = source(), source(streaming=True)
    assert batch.subscription == stream.subscription == Subscribe(("orders",))
    assert (batch.starting, batch.ending) == (AtOffset(EARLIEST), AtOffset(LATEST))
    assert stream.starting == AtOffset(LATEST)
    assert batch.fail_on_data_loss
    assert not batch.committed_only
    assert not batch.pushdown
    assert batch.cut == Cut()
    assert batch.cluster.bootstrap == "a:1,b:2"
    assert not includes_headers(LEAST)


def test_pitfall_3_case_does_not_matter_in_names_even_of_a_plain_dict() -> None:
    """`dict(options)` is case-sensitive: maxOffsetsPerTrigger was silently ignored."""
    options = source(streaming=True, maxoffsetspertrigger="7", MAXPARTITIONS="2")
    assert options.offsets_per_trigger_max == 7
    assert options.cut.tasks_max == 2
    assert includes_headers({"INCLUDEHEADERS": "true"})


def test_client_options_with_and_without_their_prefix() -> None:
    words = {"security.protocol": "SSL", "Client.ID": "me", "isolation.level": "read_committed"}
    plain = parse_source(LEAST | words, streaming=False)
    prefixed = parse_source(LEAST | {f"kafka.{k}": v for k, v in words.items()}, streaming=False)
    assert plain == prefixed
    assert plain.cluster.security.protocol is Protocol.SSL
    assert plain.cluster.client_id == "me"
    assert plain.committed_only
    twice = why_refused(LEAST | {"bootstrap.servers": "c:3"})
    assert "bootstrap.servers is given twice" in twice


def test_subscriptions() -> None:
    assert source(subscribe=" a, b,a").subscription == Subscribe(("a", "b"))
    one = {"bootstrap.servers": "a:1"}
    pattern = parse_source(one | {"subscribePattern": "a.*"}, streaming=False).subscription
    assert isinstance(pattern, SubscribePattern)
    assert pattern.pattern.fullmatch("abc")
    assigned = parse_source(one | {"assign": '{"a":[0,2],"b":[1]}'}, streaming=False)
    assert assigned.subscription == Assign(frozenset({Place("a", 0), Place("a", 2), Place("b", 1)}))
    assert "subscribe is missing" in why_refused(one)
    assert "given together" in why_refused(LEAST | {"assign": '{"a":[0]}'})


def test_where_to_start_and_to_end() -> None:
    assert source(streaming=True, startingOffsets="EARLIEST").starting == AtOffset(EARLIEST)
    exact = source(
        startingOffsets='{"orders":{"0":23,"1":-2}}', endingOffsets='{"orders":{"0":-1}}'
    )
    assert exact.starting == AtOffset(each={Place("orders", 0): 23, Place("orders", 1): EARLIEST})
    assert exact.ending == AtOffset(each={Place("orders", 0): LATEST})
    assert source(startingTimestamp="1700").starting == AtTime(1700)
    by_time = source(
        startingOffsetsByTimestamp='{"orders":{"0":5}}',
        startingOffsetsByTimestampStrategy="latest",
    )
    assert by_time.starting == AtTime(each={Place("orders", 0): 5})
    assert by_time.nothing_so_late_is_latest


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets is latest: nothing would be read"),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, "startingOffsets is latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets is earliest"),
        ({"startingOffsets": "first"}, "startingOffsets is 'first' (JSON like"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "-3 for orders/0 means nothing"),
        ({"startingOffsets": '{"orders":{"a":3}}'}, "is not of the form"),
        ({"startingOffsets": "earliest", "startingTimestamp": "3"}, "are given together"),
        ({"startingTimestamp": "yesterday"}, "a whole number from 0 on is expected"),
        ({"maxPartitions": "0"}, "a whole number from 1 on is expected"),
        ({"failOnDataLoss": "maybe"}, "true or false is expected"),
        ({"isolation.level": "serial"}, "read_committed or read_uncommitted is expected"),
        ({"subscribePattern": "("}, "are given together"),
        ({"kafka.bootstrap.servers": "a:b"}, "write host:port"),
    ],
)
def test_what_means_nothing_is_refused(options: dict[str, str], said: str) -> None:
    assert said in why_refused(LEAST | options)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("maxOffsetsPerTriger", "did you mean maxOffsetsPerTrigger?"),
        ("subscribePatern", "did you mean subscribePattern?"),
        ("kafka.bootstrap.server", "did you mean bootstrap.servers?"),
        ("kafka.fetch.min.bytes", "these are known: bootstrap.servers"),
        ("kafka.group.id", "no consumer group is used"),
        ("fetchOffset.numRetries", "use kafka.default.api.timeout.ms"),
        ("kafka.subscribe", "did you mean subscribe?"),
        ("topic", "it is for df.write and df.writeStream"),
        ("endingOffsets", "it is for spark.read: leave it out"),
    ],
)
def test_an_option_without_effect_is_refused(name: str, said: str) -> None:
    assert said in why_refused(LEAST | {name: "1"}, streaming=True)


def test_spark_s_own_options_pass_by() -> None:
    passing = {"checkpointLocation": "/x", "queryName": "q", "path": "/y", "mergeSchema": "true"}
    assert parse_source(LEAST | passing, streaming=True) == source(streaming=True)
    parse_sink(SERVERS | passing, streaming=True)


def test_limits_of_a_trigger() -> None:
    options = source(
        streaming=True, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="9", maxTriggerDelay="2m"
    )
    assert (options.offsets_per_trigger_min, options.offsets_per_trigger_max) == (5, 9)
    assert options.trigger_delay_s_max == 120
    assert source(streaming=True, maxTriggerDelay="1500").trigger_delay_s_max == 1.5
    reversed_ = {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}
    assert "is above maxOffsetsPerTrigger" in why_refused(LEAST | reversed_, streaming=True)
    assert "a time like 15m" in why_refused(LEAST | {"maxTriggerDelay": "soon"}, streaming=True)


def test_the_sink_s_options() -> None:
    least = parse_sink(SERVERS, streaming=True)
    assert (least.topic, least.delivery, least.writer) == (None, Delivery.AUTO, Writer.TASK)
    words = {
        "topic": "out",
        "delivery": "exactly-once",
        "kafka.compression.type": "lz4",
        "writer": "destination",
        "writers": "4",
        "writeId": "nightly",
        "writeBatch": "17",
        "chunkBytes": "4096",
        "bufferBytes": "1000000",
        "orderBy": "source, offset",
    }
    full = parse_sink(SERVERS | words, streaming=False)
    assert (full.topic, full.delivery) == ("out", Delivery.EXACTLY_ONCE)
    assert full.compression is Compression.LZ4
    assert (full.writer, full.writers) == (Writer.DESTINATION, 4)
    assert (full.write_id, full.write_batch) == ("nightly", 17)
    assert (full.chunk_bytes, full.buffer_bytes) == (4096, 1_000_000)
    assert full.order_by == ("source", "offset")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "a"}, "it is for spark.read and spark.readStream"),
        ({"writeBatch": "3", "writeId": "a"}, "it is for df.write: leave it out"),
        ({"writers": "3"}, "needs writer=destination"),
        ({"chunkBytes": "1"}, "1024 to"),
        ({"orderBy": "a,,b"}, "column,column"),
        ({"compression": "brotli"}, "none, gzip, snappy, lz4 or zstd"),
        ({"delivery": "at-most-once"}, "auto or exactly-once or at-least-once"),
        ({"partitioner": "random"}, "murmur2 is expected"),
        ({"kafka.acks": "1"}, "a majority"),
    ],
)
def test_what_a_sink_refuses(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        parse_sink(SERVERS | options, streaming=True)


def test_write_batch_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="writeBatch needs writeId"):
        parse_sink(SERVERS | {"writeBatch": "3"}, streaming=False)


def test_passwords_are_not_shown() -> None:
    words = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "cordelia",
    }
    assert "cordelia" not in repr(source(**words))


def test_names_differ_in_more_than_case() -> None:
    names = [name.lower() for name in (*OPTIONS, *CLIENT_OPTIONS)]
    assert len(set(names)) == len(names)


def test_every_option_is_documented_and_nothing_else_is() -> None:
    """docs/spark.md: the tables of source and sink, and of security."""
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    titles = ("Source\n", "Sink\n", "Connections and security\n")
    ours = "".join(one for one in page.split("\n## ") if one.startswith(titles))
    tables = re.findall(r"^\| option \|.*\n\|[-| ]+\n((?:\|.*\n)+)", ours, re.MULTILINE)
    rows = "".join(tables).splitlines()
    told = {name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])}
    assert told == {*OPTIONS, *CLIENT_OPTIONS} - {"compression.type"}  # the sink's `compression`
