"""Entries of the applied log for a member that is behind: what the log still has of them."""

from collections.abc import Callable
from typing import Final, Protocol

from paxos.entry import Entry
from paxos.ids import NodeId, Slot
from paxos.messages import Learned, Message, Trimmed
from paxos.step import ServeLog
from runtime.journal import Journal
from storage.errors import StorageFailed, WalDamaged
from storage.format import Place
from storage.wal import Wal

SERVE_BYTES_MAX: Final = 1024 * 1024
"""Per request of it."""


class Sending(Protocol):
    def send(self, to: NodeId, message: Message) -> None: ...


def serve_log(
    wal: Wal,
    links: Sending,
    serve: ServeLog,
    applied: Slot,
    suspect: Callable[[Place], None],
    journal: Journal,
) -> None:
    """Send as much as is bounded, or say that the log begins later: `suspect` is told of damage."""
    first = wal.slots(serve.group).start
    if serve.start < first:
        links.send(serve.to, Trimmed(serve.group, Slot(first), applied))
        return
    entries: list[Entry] = []
    size = 0
    end = wal.readable_to(serve.group, serve.start, serve.end)
    try:
        for _slot, entry, _position in wal.replay(serve.group, serve.start, end):
            entries.append(entry)
            size += entry.size
            if size >= SERVE_BYTES_MAX:
                break
    except WalDamaged as damage:
        suspect(damage.place)  # what was read before it is good
    except StorageFailed as failure:  # of a read: as good as lost on the way
        journal.error("log cannot be read", reason=str(failure))
    if entries:
        links.send(serve.to, Learned(serve.group, serve.start, tuple(entries)))
