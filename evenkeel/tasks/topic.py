"""The topic of a task group's ledger: its name, its creation, and writing to it from outside."""

import secrets
import socket
import time
from collections.abc import Callable, Iterable

from evenkeel.admin.admin import Admin
from evenkeel.config import ClientConfig
from evenkeel.errors import BrokerError, ConfigurationError
from evenkeel.producer.producer import Producer
from evenkeel.tasks.config import NAME_BYTES_MAX, TaskGroupConfig
from evenkeel.tasks.notes import Note, NoteError, Submit, encode
from wire.cluster_view import TopicPartition
from wire.error_codes import ErrorCode


def now_ns() -> int:
    """A time that never goes back, and continues while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def ledger_of(group: str, config: TaskGroupConfig) -> TopicPartition:
    return TopicPartition(config.ledger or f"evenkeel-tasks-{group}", 0)


def new_session(name: str) -> str:
    """A unique name: the member's name, a random number, and the time."""
    chosen = name or socket.gethostname().encode()[:NAME_BYTES_MAX].decode(errors="ignore")
    return f"{chosen}-{secrets.token_hex(4)}-{time.time_ns() // 1_000_000:x}"


def member_name(session: str) -> str:
    """The name that the member of a session was given."""
    return session.rsplit("-", 2)[0]


async def make_ledger(admin: Admin, place: TopicPartition, replication: int) -> None:
    """Create the topic if there is none. Its records must never be deleted by age or size."""
    forever = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
    try:
        await admin.create_topic(
            place.topic, partitions=1, replication=replication, settings=forever
        )
    except BrokerError as error:
        if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise


async def submit_tasks(
    bootstrap: str,
    group: str,
    tasks: Iterable[str],
    config: TaskGroupConfig | None = None,
    *,
    client: ClientConfig | None = None,
) -> None:
    """Add tasks to a task group without being a member; it need not have any members yet."""
    settings = TaskGroupConfig() if config is None else config
    place = ledger_of(group, settings)
    note = checked(lambda: Submit(by=new_session(settings.name), tasks=tuple(tasks)))
    async with Admin(bootstrap, client=client) as admin:
        await make_ledger(admin, place, settings.replication)
    async with Producer(bootstrap, client=client) as producer:
        await (await producer.send(place.topic, encode(note), partition=0))


def checked(make: Callable[[], Note]) -> Note:
    """A note made from the user's input.

    Raises:
        ConfigurationError: if it exceeds the limits.
    """
    try:
        return make()
    except NoteError as error:
        raise ConfigurationError("this cannot be written into the ledger", why=str(error)) from None
