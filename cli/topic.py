"""`evenkeel topic`: create, show, write and read topics. Any Kafka cluster."""

import argparse
import json
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from io import BufferedReader
from typing import Any, Final, cast

import trio

from cli.clusters.kafka_commands import (
    ClientError,
    add_cluster_options,
    config_of,
    existing_topic,
    json_of,
    open_admin,
    pairs,
    print_json,
    run_until_signal,
    table,
    text_of,
)
from cli.clusters.reach import bootstrap_of
from evenkeel import (
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

READ_BYTES: Final = 64 * 1024
UNACKNOWLEDGED_MAX: Final = 10_000
"""Records whose places have not been printed yet."""

Action = Callable[[Any], Awaitable[int]]


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(
        name: str, work: Action, text: str, *, one: bool = True, changes: bool = False
    ) -> argparse.ArgumentParser:
        sub = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        sub.set_defaults(do=_run, work=work)
        if one:
            sub.add_argument("topic", metavar="TOPIC")
        add_cluster_options(sub, changes=changes)
        return sub

    create = action("create", _create, "create a topic", changes=True)
    create.add_argument("--partitions", type=int, default=-1, metavar="P")
    create.add_argument("--replication", type=int, default=-1, metavar="R")
    create.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    create.add_argument("--dry-run", action="store_true", help="only let the brokers check it")
    list_ = action("list", _list, "list the topics", one=False)
    list_.add_argument("--internal", action="store_true", help="include the cluster's own topics")
    action("describe", _describe, "show a topic's partitions and settings")
    delete = action("delete", _delete, "delete a topic and all its records", changes=True)
    delete.add_argument("--dry-run", action="store_true", help="only show what would be deleted")

    text = "write each line of standard input as a record"
    produce = action("produce", _produce, text, changes=True)
    produce.add_argument(
        "--key-separator", metavar="TEXT", help="separates key and value in a line"
    )
    produce.add_argument(
        "--partition", type=int, metavar="P", help="write everything to this partition"
    )
    produce.add_argument("--header", action="append", default=[], metavar="NAME=VALUE")
    names = [codec.name.lower() for codec in Compression]
    produce.add_argument("--compression", choices=names, default="none")

    consume = action("consume", _consume, "print records up to the present end")
    consume.add_argument("--partition", type=int, action="append", metavar="P", help="only these")
    consume.add_argument("--from", dest="begin", choices=["beginning", "end"], default="beginning")
    consume.add_argument("--count", type=int, metavar="N", help="no more than N records")
    consume.add_argument("--follow", action="store_true", help="wait for more, until Ctrl-C")
    consume.add_argument("--group", metavar="GROUP", help="as a member of this consumer group")


def _run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    return run_until_signal(partial(options.work, options))


# --- topics --------------------------------------------------------------------------------------


async def _create(options: Any) -> int:  # noqa: ANN401 (argparse's)
    settings = pairs(options.set, "setting")
    async with open_admin(options) as admin:
        await admin.create_topic(
            options.topic,
            partitions=options.partitions,
            replication=options.replication,
            settings=settings,
            dry_run=options.dry_run,
        )
        if options.dry_run:
            _tell(options, f"topic {options.topic} could be created", {"created": False})
        else:
            described = await admin.describe_topic(options.topic)
            count = len(described.partitions)
            text = f"topic {options.topic} was created with {count} partitions"
            _tell(options, text, {"created": True, **_topic_json(described)})
    return 0


async def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        topics = await admin.list_topics(internal=options.internal)
    if options.json:
        print_json([_topic_json(topics[name]) for name in sorted(topics)])
        return 0
    rows = [
        (name, len(one.partitions), len(_leaderless(one)) or None)
        for name, one in sorted(topics.items())
    ]
    print(table(("topic", "partitions", "without leader"), rows) if rows else "no topics")
    return 0


def _leaderless(topic: TopicDescription) -> list[int]:
    return [one.partition for one in topic.partitions if one.leader < 0]


async def _describe(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        settings = await admin.topic_settings(options.topic)
    changed = {name: one.value for name, one in sorted(settings.items()) if not one.is_default}
    if options.json:
        values = {name: one.value for name, one in sorted(settings.items())}
        print_json({**_topic_json(topic), "settings": values, "changed": changed})
        return 0
    rows = [
        (
            one.partition,
            one.leader if one.leader >= 0 else None,
            one.leader_epoch,
            ",".join(map(str, one.replicas)),
            ",".join(map(str, one.in_sync)),
        )
        for one in topic.partitions
    ]
    print(f"{topic.name}  id {topic.topic_id}")
    print(table(("partition", "leader", "epoch", "replicas", "in sync"), rows))
    for name, value in changed.items():
        print(f"{name} = {value}")
    return 0


def _topic_json(topic: TopicDescription) -> dict[str, object]:
    return {
        "topic": topic.name,
        "id": topic.topic_id,
        "internal": topic.internal,
        "partitions": [
            {
                "partition": one.partition,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "in_sync": list(one.in_sync),
            }
            for one in topic.partitions
        ],
    }


async def _delete(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        if not options.dry_run:
            await admin.delete_topic(options.topic)
    said = "would be deleted" if options.dry_run else "was deleted"
    text = f"topic {topic.name} with {len(topic.partitions)} partitions {said}"
    _tell(options, text, {"deleted": not options.dry_run, **_topic_json(topic)})
    return 0


def _tell(options: Any, text: str, value: object) -> None:  # noqa: ANN401 (argparse's)
    if options.json:
        print_json(value)
    else:
        print(text)


# --- records -------------------------------------------------------------------------------------


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


async def _produce(options: Any) -> int:  # noqa: ANN401 (argparse's)
    headers = [(name, value.encode()) for name, value in pairs(options.header, "header").items()]
    separator = None if options.key_separator is None else options.key_separator.encode()
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)  # otherwise sending would wait for it
        _check_partitions(topic, [] if options.partition is None else [options.partition])
    config = ProducerConfig(compression=Compression[options.compression.upper()])
    count = 0
    bootstrap, client = bootstrap_of(options), config_of(options)
    async with Producer(bootstrap, config, client=client) as producer:
        waiting: list[Delivery] = []
        async with aclosing(_lines()) as lines:
            async for line in lines:
                key, value = _split(line, separator, count + 1)
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


async def _consume(options: Any) -> int:  # noqa: ANN401 (argparse's)
    begin = OffsetReset.EARLIEST if options.begin == "beginning" else OffsetReset.LATEST
    config = ConsumerConfig(group=options.group, offset_reset=begin)
    options.changes = options.group is not None  # a member commits what it has read
    if options.group is not None and options.partition:
        raise ClientError("a member of a consumer group cannot choose its partitions")
    if options.count is not None and options.count < 1:
        return 0
    async with Consumer(bootstrap_of(options), config, client=config_of(options)) as consumer:
        ends = await _start(consumer, options)
        printed = 0
        while options.follow or not _at_the_end(consumer, ends):
            records = await consumer.poll(0.1)
            for record in records or ():
                _print_record(record, options.json)
                printed += 1
                if printed == options.count:
                    await _commit_up_to(consumer, options, record)
                    return 0
            sys.stdout.flush()
    return 0


async def _start(consumer: Consumer, options: Any) -> dict[TopicPartition, int]:  # noqa: ANN401
    """Assign or subscribe; where the partitions end now."""
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
    places = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
    if options.partition:
        _check_partitions(topic, options.partition)
        places = [place for place in places if place.partition in options.partition]
    ends = await consumer.end_offsets(places)
    if options.group is None:
        await consumer.assign(places)
    else:
        await consumer.subscribe([topic.name])
    return ends


def _check_partitions(topic: TopicDescription, wanted: Iterable[int]) -> None:
    unknown = set(wanted) - {one.partition for one in topic.partitions}
    if unknown:
        raise ClientError(f"topic {topic.name} has no partition {min(unknown)}")


def _at_the_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Of every partition we have; as a member we first have to be given some."""
    ours = consumer.assignment
    if not ours:
        return False
    return all(
        (at := consumer.known_position(place)) is not None and at >= ends.get(place, 0)
        for place in ours
    )


async def _commit_up_to(consumer: Consumer, options: Any, last: ConsumerRecord) -> None:  # noqa: ANN401
    """The rest of the batch was not printed: it is another's, or ours next time."""
    place = TopicPartition(last.topic, last.partition)
    consumer.seek(place, last.offset + 1)
    if options.group is not None:
        await consumer.commit()


def _print_record(record: ConsumerRecord, as_json: bool) -> None:
    if not as_json:
        key = "" if record.key is None else f"{text_of(record.key)}\t"
        print(f"{record.partition}/{record.offset}\t{key}{text_of(record.value)}")
        return
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
