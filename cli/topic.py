"""`evenkeel topic`: create, show and delete topics; cli.records and cli.topic_changes have the
other actions. Any Kafka cluster."""

import argparse
from typing import Any

from cli import records, topic_changes
from cli.backup import export_topic, import_topic
from cli.clusters.kafka_commands import (
    Action,
    add_action,
    existing_topic,
    open_admin,
    pairs,
    print_json,
    table,
)
from cli.clusters.target import whole
from evenkeel import (
    TopicDescription,
)


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(
        name: str, work: Action, text: str, *, one: bool = True, changes: bool = False
    ) -> argparse.ArgumentParser:
        sub = add_action(actions, name, work, text, changes=changes)
        if one:
            sub.add_argument("topic", metavar="TOPIC")
        return sub

    create = action("create", _create, "create a topic", changes=True)
    create.add_argument("--partitions", type=whole, default=-1, metavar="P")
    create.add_argument("--replication", type=whole, default=-1, metavar="R")
    create.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    create.add_argument("--dry-run", action="store_true", help="only let the brokers check it")
    list_ = action("list", _list, "list the topics", one=False)
    list_.add_argument("--internal", action="store_true", help="include the cluster's own topics")
    action("describe", _describe, "show a topic's partitions and settings")
    delete = action("delete", _delete, "delete a topic and all its records", changes=True)
    delete.add_argument("--dry-run", action="store_true", help="only show what would be deleted")

    text = "write each line of standard input as a record"
    produce = action("produce", records.produce, text, changes=True)
    records.add_produce_options(produce)
    consume = action("consume", records.consume, "print records up to the present end")
    records.add_consume_options(consume)
    topic_changes.add_commands(action)
    export_topic.add_options(action("export", export_topic.run, "write a topic to files"))
    text = "read a topic from the files of an export"
    import_topic.add_options(action("import", import_topic.run, text, one=False, changes=True))


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
