"""What a node has heard of the others' directories, kept on its own disk.

In memory it would be lost if all nodes stopped at once, and with it the only knowledge that a
directory is an old copy (runtime.membership.admission). Nothing depends on it being up to date, or
there at all: a node that knows less reports less. So a damaged file is as good as none.
"""

import struct
from collections.abc import Mapping
from typing import Final, TypeAlias

from crc32c import crc32c

from paxos.ids import Incarnation, NodeId
from storage.disk.files import Disk, read_around, write_all
from storage.format import Place

WITNESS_NAME: Final = "witness"
_TEMPORARY_NAME: Final = "witness.tmp"
_TITLE: Final = b"evenkeel witness 1\n"
_ONE: Final = struct.Struct(">QQQ")
_CHECKSUM: Final = struct.Struct(">I")
NODES_MAX: Final = 1_000

Witnessed: TypeAlias = Mapping[NodeId, tuple[Incarnation, Place]]
"""For each node: the last incarnation heard of, and how far its log went by then."""


def read_witness(disk: Disk) -> dict[NodeId, tuple[Incarnation, Place]]:
    if WITNESS_NAME not in disk.names():
        return {}
    most = len(_TITLE) + NODES_MAX * _ONE.size + _CHECKSUM.size
    file = disk.open(WITNESS_NAME)
    data = read_around(file, min(file.size(), most), 0)
    body = data[: -_CHECKSUM.size]
    if not body.startswith(_TITLE) or _CHECKSUM.pack(crc32c(body)) != data[-_CHECKSUM.size :]:
        return {}
    rows = body[len(_TITLE) :]
    if len(rows) % _ONE.size:
        return {}
    return {
        NodeId(node): (Incarnation(incarnation), place)
        for node, incarnation, place in _ONE.iter_unpack(rows)
    }


def write_witness(disk: Disk, seen: Witnessed) -> None:
    """Replace the file as a whole.

    Raises:
        StorageFailed: the disk fails. DiskFull is harmless: only this file is not replaced.
    """
    rows = b"".join(
        _ONE.pack(node, incarnation, place)
        for node, (incarnation, place) in sorted(seen.items())[:NODES_MAX]
    )
    body = _TITLE + rows
    if _TEMPORARY_NAME in disk.names():
        disk.remove(_TEMPORARY_NAME)
    file = disk.create(_TEMPORARY_NAME)
    write_all(file, [body, _CHECKSUM.pack(crc32c(body))], 0)
    file.fdatasync()
    disk.rename(_TEMPORARY_NAME, WITNESS_NAME)
    disk.sync_directory()
