"""MirrorMaker 2 from the cluster under test to another: records, settings, offsets of groups."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from tests.compat.java.jvm import serving, until
from tests.compat.language_rows import MOVES, SECONDS, log_of, numbers, write
from tests.compat.languages import Ground, Program, Row

MAIN: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
ONE_SECOND: Final = 1


def settings(ground: Ground) -> dict[str, object]:
    often = (
        "refresh.topics",
        "refresh.groups",
        "sync.topic.configs",
        "emit.checkpoints",
        "sync.group.offsets",
        "emit.heartbeats",
    )
    return {
        "clusters": "here, there",
        "here.bootstrap.servers": ground.bootstrap,
        "there.bootstrap.servers": ground.elsewhere,
        "here->there.enabled": "true",
        "here->there.topics": ground.name,
        "here->there.groups": ground.name,
        "there->here.enabled": "false",
        "replication.factor": 1,
        **{f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")},
        **{
            f"{name}.topic.replication.factor": 1
            for name in ("checkpoints", "heartbeats", "offset-syncs")
        },
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": 0,
        "offset.flush.interval.ms": 1_000,
        "tasks.max": 1,
        **{f"{name}.interval.seconds": ONE_SECOND for name in often},
    }


def copied(program: Program, ground: Ground) -> None:
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    topic = NewTopic(ground.name, 2, config={"retention.ms": "123456789"})
    admin.create_topics([topic])[ground.name].result(SECONDS)
    write(ground, 200)
    _commit(ground, 120)
    with serving(program, ground, MAIN, settings(ground)) as output:
        until(lambda: len(_mirrored(ground)) >= 200, lambda: _end(output))
        until(lambda: _retention(ground) == "123456789", lambda: _end(output))
        write(ground, 10)
        until(lambda: len(_mirrored(ground)) >= 210, lambda: _end(output))
        until(lambda: 0 < _committed(ground) <= 120, lambda: _end(output))
    assert _mirrored(ground) == numbers(200) + numbers(10)


def moved(program: Program, ground: Ground) -> None:
    """While masters move in the cluster that it reads: each record once, in order."""
    admin = AdminClient({"bootstrap.servers": ground.bootstrap})
    admin.create_topics([NewTopic(ground.name, 1)])[ground.name].result(SECONDS)
    write(ground, 50)
    with serving(program, ground, MAIN, settings(ground)) as output:
        until(lambda: len(_mirrored(ground)) >= 50, lambda: _end(output))
        for _ in range(MOVES):
            write(ground, 50)
            ground.faults.move()
        until(lambda: len(_mirrored(ground)) >= 50 * (MOVES + 1), lambda: _end(output))
    assert _mirrored(ground) == numbers(50) * (MOVES + 1)


def _commit(ground: Ground, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": ground.bootstrap, "group.id": ground.name})
    consumer.commit(offsets=[TopicPartition(ground.name, 0, offset)], asynchronous=False)
    consumer.close()


def _there(ground: Ground) -> AdminClient:
    return AdminClient({"bootstrap.servers": ground.elsewhere})


def _name(ground: Ground) -> str:
    return f"here.{ground.name}"


def _mirrored(ground: Ground) -> list[str]:
    if _name(ground) not in _there(ground).list_topics(timeout=SECONDS).topics:
        return []
    return [value for _, value in log_of(ground.elsewhere, _name(ground))]


def _retention(ground: Ground) -> str:
    resource = ConfigResource(ResourceType.TOPIC, _name(ground))
    admin = _there(ground)  # whose answer comes only while it is there
    (asked,) = admin.describe_configs([resource]).values()
    return str(asked.result(SECONDS)["retention.ms"].value)


def _committed(ground: Ground) -> int:
    partition = TopicPartition(_name(ground), 0)
    asked = [ConsumerGroupTopicPartitions(ground.name, [partition])]
    admin = _there(ground)
    (answer,) = admin.list_consumer_group_offsets(asked).values()
    (found,) = answer.result(SECONDS).topic_partitions
    return int(found.offset)


def _end(output: Path) -> str:
    return output.read_text()[-1_500:]


ROWS: Final[Mapping[str, Row]] = {
    "mirror: records, settings, offsets of groups": copied,
    "mirror: moves": moved,
}
