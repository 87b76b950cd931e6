"""The state machine on each simulated group: the deduplication table of R16, and a log.

A command is (client, seq). It is executed iff `seq == last[client] + 1`. At or below `last` it is a
duplicate and gets the original's answer; above, it is a gap: rejected, never acknowledged.
"""

import struct
from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from balancer.registry.image import decode_pieces, encode_pieces
from balancer.registry.registry import Registry
from broker.proposals.commands import CommandKind, opaque, parse
from paxos.entry import Buffer, Entry
from paxos.ids import Slot

COMMAND: Final = struct.Struct(">IQ")
HEAD: Final = struct.Struct(">II")
RESULT: Final = struct.Struct(">Q")
GAP: Final = b""


def command(client: int, seq: int) -> bytes:
    return COMMAND.pack(client, seq)


def commands(chunks: tuple[Buffer, ...]) -> Iterator[tuple[int, int]]:
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    return COMMAND.iter_unpack(data)


@attrs.define(eq=False)
class Machine:
    """`where[client][seq - 1]` is the slot in which that command was executed."""

    registry: Registry | None = None
    """Set on group 0 of a world with the production balancer: commands are framed there."""
    applied: int = 0
    where: dict[int, list[int]] = attrs.Factory(dict)

    def last(self, client: int) -> int:
        return len(self.where.get(client, ()))

    def apply(self, slot: Slot, entry: Entry) -> list[bytes]:
        """The results of the entry's commands, in order; empty for a gap."""
        assert slot == self.applied + 1, f"applied {self.applied}, got {slot}"
        self.applied = slot
        payload = entry.payload()
        if not payload:
            return []
        if self.registry is None:
            return [self._execute(slot, client, seq) for client, seq in commands(payload)]
        results = []
        for one in parse(payload):
            if one.kind == CommandKind.REGISTRY:
                results.append(self.registry.apply(one.body, slot))
            else:
                results.append(self._execute(slot, *COMMAND.unpack(one.body)))
        return results

    def _execute(self, slot: Slot, client: int, seq: int) -> bytes:
        slots = self.where.get(client)
        if slots is None:
            slots = self.where[client] = []
        if seq == len(slots) + 1:
            slots.append(slot)
        return RESULT.pack(slots[seq - 1]) if seq <= len(slots) else GAP

    def chunks(self, client: int, seq: int) -> tuple[Buffer, ...]:
        """A client's command as it travels in an entry of this group."""
        if self.registry is None:
            return (command(client, seq),)
        return opaque(CommandKind.CONSUMER_GROUP, command(client, seq))

    def parts(self) -> list[bytes]:
        """The whole state, as of one moment."""
        rows = [
            HEAD.pack(client, len(slots)) + array("Q", slots).tobytes()
            for client, slots in self.where.items()
        ]
        registry = [] if self.registry is None else [*encode_pieces(self.registry.image())]
        return [b"".join(rows), *registry]

    def restore(self, base: Slot, parts: Sequence[bytes]) -> None:
        self.applied, self.where = base, {}
        rows, at = parts[0], 0
        while at < len(rows):
            client, count = HEAD.unpack_from(rows, at)
            at += HEAD.size
            self.where[client] = array("Q", rows[at : at + 8 * count]).tolist()
            at += 8 * count
        if self.registry is not None:
            self.registry.install(decode_pieces([memoryview(part) for part in parts[1:]]))

    def value(self) -> dict[int, int]:
        """What a read returns: how far each client has got."""
        return {client: len(slots) for client, slots in self.where.items()}
