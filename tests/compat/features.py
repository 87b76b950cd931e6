"""The stories for every client library; a failed assertion is a cell of the matrix."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

import attrs
import pytest

from tests.compat.model import Client, Consumer, Got, Message, RefusedError
from tests.compat.nodes import wait_until_known

PATIENCE_S: Final = 30.0
NODES: Final = 3
CLUSTER_ID_CHARS_MIN: Final = 1


@attrs.frozen
class Story:
    """A client in a cluster; `name` is unique to this story, for topics and groups."""

    client: Client
    name: str
    bootstrap: str

    def topic(self, partitions: int = 1, **configs: str) -> str:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        self.client.create_topic(self.name, partitions, named)
        return self.name


def numbered(count: int, start: int = 0, **fields: object) -> list[Message]:
    return [Message(f"{number:06}".encode(), **fields) for number in range(start, start + count)]


def values(got: Sequence[Got]) -> list[bytes]:
    return [one.message.value for one in got]


def take(consumer: Consumer, count: int) -> list[Got]:
    """The next `count` messages, and none after them for a moment."""
    got: list[Got] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(got) < count and time.monotonic() < deadline:
        got += consumer.poll(0.2)
    got += consumer.poll(0.2)
    assert len(got) == count, f"{len(got)} messages instead of {count}"
    return got


def read(story: Story, topic: str, count: int, **options: str) -> list[Got]:
    consumer = story.client.consumer(topic, [0], **options)
    try:
        return take(consumer, count)
    finally:
        consumer.close()


def round_trip(story: Story, messages: Sequence[Message], **options: object) -> list[Got]:
    """Sent messages come back, in order, with offsets from 0 on."""
    topic = story.topic()
    if options.get("acks") == "0":
        wait_until_known(story.bootstrap, topic)  # nobody would tell the producer to come again
    story.client.produce(topic, messages, **options)  # type: ignore[arg-type]
    got = read(story, topic, len(messages))
    assert values(got) == [one.value for one in messages]
    assert [one.offset for one in got] == list(range(len(messages)))
    return got


# -- produce ---------------------------------------------------------------------------------------


def acks_0(story: Story) -> None:
    round_trip(story, numbered(100), acks="0")


def acks_1(story: Story) -> None:
    round_trip(story, numbered(100), acks="1")


def acks_all(story: Story) -> None:
    round_trip(story, numbered(100), acks="all")


def idempotent(story: Story) -> None:
    round_trip(story, numbered(1_000), idempotent=True)


def _compressed(compression: str) -> Callable[[Story], None]:
    def story_of(story: Story) -> None:
        messages = [Message(b"x" * 500 + one.value) for one in numbered(500)]
        round_trip(story, messages, compression=compression)

    return story_of


def headers(story: Story) -> None:
    sent = (("a", b"1"), ("a", b"2"), ("empty", b""))
    (got,) = round_trip(story, [Message(b"v", b"k", sent)])
    assert got.message.headers == sent
    assert got.message.key == b"k"


def null_key(story: Story) -> None:
    (got,) = round_trip(story, [Message(b"v", None)])
    assert got.message.key is None


def create_time(story: Story) -> None:
    when = 1_700_000_000_123
    (got,) = round_trip(story, [Message(b"v", timestamp_ms=when)])
    assert (got.message.timestamp_ms, got.log_time) == (when, False)


def log_append_time(story: Story) -> None:
    topic = story.topic(message_timestamp_type="LogAppendTime")
    before = time.time() * 1000 - 1_000
    story.client.produce(topic, [Message(b"v", timestamp_ms=1_700_000_000_123)])
    (got,) = read(story, topic, 1)
    assert got.log_time
    assert before < got.message.timestamp_ms < time.time() * 1000 + 1_000


def transactions_refused(story: Story) -> None:
    """At once and with a reason: a client must not wait for its timeout."""
    topic = story.topic()
    begun = time.monotonic()
    with pytest.raises(RefusedError, match=r"."):
        story.client.transact(topic)
    assert time.monotonic() - begun < 10, "refused too late"


# -- consume ---------------------------------------------------------------------------------------


def assign_and_seek(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(100))
    consumer = story.client.consumer(topic, [0])
    try:
        assert values(take(consumer, 100)) == [one.value for one in numbered(100)]
        consumer.seek(0, 40)
        assert values(take(consumer, 60)) == [one.value for one in numbered(60, 40)]
        assert consumer.watermarks(0) == (0, 100)
    finally:
        consumer.close()


def offsets_for_times(story: Story) -> None:
    start = 1_700_000_000_000
    topic = story.topic()
    for number, message in enumerate(numbered(10)):
        story.client.produce(topic, [attrs.evolve(message, timestamp_ms=start + 1_000 * number)])
    consumer = story.client.consumer(topic, [0])
    try:
        assert consumer.offset_for_time(0, start) == 0
        assert consumer.offset_for_time(0, start + 4_500) == 5
        assert consumer.offset_for_time(0, start + 60_000) is None
    finally:
        consumer.close()


def pause_and_resume(story: Story) -> None:
    topic = story.topic(partitions=2)
    story.client.produce(topic, numbered(50))
    consumer = story.client.consumer(topic, [0, 1])
    try:
        take(consumer, 50)
        consumer.pause(0)
        story.client.produce(topic, numbered(10, 50))
        story.client.produce(topic, numbered(10, 900, partition=1))
        assert {one.message.partition for one in take(consumer, 10)} == {1}
        consumer.resume(0)
        assert values(take(consumer, 10)) == [one.value for one in numbered(10, 50)]
    finally:
        consumer.close()


def read_committed(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(100))
    assert len(read(story, topic, 100, isolation="read_committed")) == 100


# -- groups ----------------------------------------------------------------------------------------


def _drain(story: Story, group: str, topic: str, count: int, **options: object) -> list[Got]:
    member = story.client.member(group, topic, **options)  # type: ignore[arg-type]
    got: list[Got] = []
    deadline = time.monotonic() + PATIENCE_S
    try:
        while len(got) < count and time.monotonic() < deadline:
            got += member.poll(0.2)
    finally:
        member.close()
    return got + member.left()


def commit_and_resume(story: Story) -> None:
    topic = story.topic(partitions=3)
    for partition in range(3):
        story.client.produce(topic, numbered(20, partition=partition))
    assert len(_drain(story, story.name, topic, 60)) == 60
    story.client.produce(topic, numbered(5, 20, partition=1))
    again = _drain(story, story.name, topic, 5)
    assert values(again) == [one.value for one in numbered(5, 20)]


def pattern(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(10))
    expression = f"^{topic[:-1]}[{topic[-1]}]$"
    assert len(_drain(story, story.name, expression, 10, pattern=True)) == 10


def static_member(story: Story) -> None:
    """It leaves and returns under its name within its session timeout: it gets the same partitions
    at once."""
    topic = story.topic(partitions=3)
    for partition in range(3):
        story.client.produce(topic, numbered(10, partition=partition))
    assert len(_drain(story, story.name, topic, 30, instance="one")) == 30
    story.client.produce(topic, numbered(5, 10))
    assert len(_drain(story, story.name, topic, 5, instance="one")) == 5


class _Worker:
    """A member of a group in a thread of its own."""

    def __init__(self, story: Story, group: str, topic: str) -> None:
        self.got: list[Got] = []
        self.owned: frozenset[int] = frozenset()
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(story, group, topic), daemon=True)
        self._thread.start()

    def _run(self, story: Story, group: str, topic: str) -> None:
        try:
            member = story.client.member(group, topic)
            try:
                while not self._stop.is_set():
                    self.got += member.poll(0.1)
                    self.owned = member.partitions()
            finally:
                member.close()
            self.got += member.left()
        except BaseException as error:  # noqa: BLE001  told to whoever waits for this worker
            self.failure = error

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a member did not close"
        self.owned = frozenset()
        if self.failure is not None:
            raise AssertionError(f"a member failed: {self.failure!r}")


def _settled(workers: Sequence[_Worker], partitions: int) -> None:
    """Every partition has exactly one owner, and every member a share."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        for worker in workers:
            if worker.failure is not None:
                raise AssertionError("a member failed") from worker.failure
        shares = [worker.owned for worker in workers]
        if sorted(one for share in shares for one in share) == list(range(partitions)) and all(
            shares
        ):
            return
        time.sleep(0.05)
    raise AssertionError(f"shares did not settle: {[sorted(one.owned) for one in workers]}")


def one_to_five_members(story: Story) -> None:
    """Members come one by one and go one by one, under load: every message is consumed."""
    partitions = 6
    topic = story.topic(partitions=partitions)
    sent = 0

    def load() -> None:
        nonlocal sent
        for partition in range(partitions):
            story.client.produce(topic, numbered(10, sent, partition=partition))
        sent += 10

    working: list[_Worker] = []
    done: list[_Worker] = []
    for _ in range(5):
        working.append(_Worker(story, story.name, topic))
        load()
        _settled(working, partitions)
    while len(working) > 1:
        done.append(working.pop(0))
        done[-1].stop()
        load()
        _settled(working, partitions)
    wanted = {(p, n) for p in range(partitions) for n in range(sent)}
    deadline = time.monotonic() + PATIENCE_S
    seen: set[tuple[int, int]] = set()
    while not wanted <= seen and time.monotonic() < deadline:
        time.sleep(0.1)
        everybody = [one for worker in done + working for one in worker.got]
        seen = {(one.message.partition, int(one.message.value)) for one in everybody}
    working[0].stop()
    assert wanted <= seen, f"{len(wanted - seen)} of {len(wanted)} messages were not consumed"


# -- administration --------------------------------------------------------------------------------


def until(condition: Callable[[], bool], what: str) -> None:
    """A client asks any node, and that node may be behind the one that made the change."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        with suppress(LookupError):
            if condition():
                return
        assert time.monotonic() < deadline, f"it did not come true: {what}"
        time.sleep(0.05)


def topics(story: Story) -> None:
    topic = story.topic(partitions=2)
    until(lambda: story.client.topics().get(topic) == 2, "two partitions")
    story.client.add_partitions(topic, 5)
    until(lambda: story.client.topics().get(topic) == 5, "five partitions")
    story.client.delete_topic(topic)
    until(lambda: topic not in story.client.topics(), "no topic any more")


def configs(story: Story) -> None:
    topic = story.topic(retention_ms="1000")
    for value in ("1000", "2000"):
        if value != "1000":
            story.client.alter_topic_config(topic, "retention.ms", value)
        until(lambda value=value: story.client.topic_config(topic, "retention.ms") == value, value)


def delete_records(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(10))
    assert story.client.delete_records(topic, 0, 4) == 4
    assert [one.offset for one in read(story, topic, 6)] == list(range(4, 10))


def groups(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(10))
    worker = _Worker(story, story.name, topic)
    _settled([worker], 1)
    assert story.name in story.client.groups(), story.client.groups()
    assert story.client.group_members(story.name) == 1
    worker.stop()
    story.client.delete_group(story.name)
    assert story.name not in story.client.groups()


def alter_offsets(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(10))
    _drain(story, story.name, topic, 10)
    assert story.client.committed(story.name, topic, 0) == 10
    story.client.alter_offset(story.name, topic, 0, 7)
    assert story.client.committed(story.name, topic, 0) == 7
    assert len(_drain(story, story.name, topic, 3)) == 3


def delete_offsets(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(10))
    _drain(story, story.name, topic, 10)
    story.client.delete_offset(story.name, topic, 0)
    assert story.client.committed(story.name, topic, 0) is None


def log_dirs(story: Story) -> None:
    assert story.client.log_dirs() == NODES


def cluster(story: Story) -> None:
    cluster_id, nodes = story.client.cluster()
    assert len(cluster_id) >= CLUSTER_ID_CHARS_MIN
    assert nodes == NODES


def elect_leaders(story: Story) -> None:
    topic = story.topic()
    story.client.produce(topic, numbered(1))
    story.client.elect_leaders(topic, 0)
    story.client.produce(topic, numbered(1, 1))
    assert len(read(story, topic, 2)) == 2


FEATURES: Final[Mapping[str, Callable[[Story], None]]] = {
    "produce, acks=0": acks_0,
    "produce, acks=1": acks_1,
    "produce, acks=all": acks_all,
    "produce, idempotent": idempotent,
    "gzip": _compressed("gzip"),
    "snappy": _compressed("snappy"),
    "lz4": _compressed("lz4"),
    "zstd": _compressed("zstd"),
    "headers": headers,
    "null keys": null_key,
    "CreateTime": create_time,
    "LogAppendTime": log_append_time,
    "transactions refused at once": transactions_refused,
    "assign, seek, watermarks": assign_and_seek,
    "offsets for times": offsets_for_times,
    "pause, resume": pause_and_resume,
    "read_committed": read_committed,
    "group: commit, resume": commit_and_resume,
    "group: subscribe by pattern": pattern,
    "group: static member": static_member,
    "group: 1 to 5 to 1 members under load": one_to_five_members,
    "admin: topics, partitions": topics,
    "admin: settings": configs,
    "admin: delete records": delete_records,
    "admin: groups": groups,
    "admin: alter offsets": alter_offsets,
    "admin: delete offsets": delete_offsets,
    "admin: log dirs": log_dirs,
    "admin: cluster": cluster,
    "admin: elect leaders": elect_leaders,
}
