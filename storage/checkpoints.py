"""A group's state at a slot, in a file of its own: what a restart begins with instead of the log.

A checkpoint is replaced, never changed: it is written under a temporary name, made durable, and
only then gets its name, which is made durable before an older one goes. The last two generations of
a group are kept, and the log is kept back to what the OLDER one needs: so a checkpoint that turns
out damaged costs time at a restart and nothing else (docs/adr/0021-checkpoints.md).

The state machines decide what is in the chunks. `needs` is the number of the segment from which a
restart has to read the log to go on from here. The generation, a number that goes up with every
file, tells which file is newer. The slot does not: the checkpoint of an idle group has the same
slot each time, and still lets more of the log be retired.

The bytes, all numbers big-endian::

    magic 8s | version u32 | header bytes u32 | group u32 | node i32 | slot u64 | needs u64
    | generation u64 | incarnation i64 | chunks u32 | cluster 64s | crc32c u32
    chunks times: bytes u32 | crc32c u32 | the chunk
    crc32c u32 of all chunks with their heads | magic 8s

A chunk's checksum continues that of the header over the chunk's number, length and bytes: no chunk
of another file, or from another place in this one, is taken for it.
"""

import struct
from collections.abc import Sequence
from typing import Final

import attrs
from crc32c import crc32c

from paxos.ids import GroupId, Incarnation, NodeId, Slot
from storage.disk.files import Disk, File, read_around, write_all
from storage.errors import DirectoryRefused, StorageError, StorageFailed
from storage.format import CLUSTER_BYTES_MAX
from storage.identity import Identity

FORMAT_VERSION: Final = 1
GENERATIONS: Final = 2
CHUNK_BYTES_MAX: Final = 1 << 30
CHUNKS_MAX: Final = 1 << 24
SYNC_EVERY_BYTES: Final = 1 << 20
"""Written and made durable in pieces of this size, so that the log's own fdatasync never queues
behind a whole checkpoint."""

SUFFIX: Final = ".ckpt"
TEMPORARY_SUFFIX: Final = ".ckpt.tmp"
_MAGIC: Final = b"EVENCKPT"
_END_MAGIC: Final = b"CKPT-END"
_HEADER: Final = struct.Struct(f">8sIIIiQQQqI{CLUSTER_BYTES_MAX}s")
_CHECKSUM: Final = struct.Struct(">I")
_CHUNK: Final = struct.Struct(">II")
_CHUNK_SEED: Final = struct.Struct(">II")
_END: Final = struct.Struct(">I8s")
HEADER_BYTES: Final = _HEADER.size + _CHECKSUM.size
HEADER_BYTES_MAX: Final = 4096
"""The longest header of any format version."""


class CheckpointDamaged(StorageError):
    """The file does not hold what was written to it."""


@attrs.frozen(order=True)
class CheckpointName:
    """Sorts by age within a group."""

    group: GroupId
    generation: int
    slot: Slot

    def __str__(self) -> str:
        return f"checkpoint-{self.group:010d}-{self.slot:020d}-{self.generation:010d}{SUFFIX}"


def checkpoint_name(name: str) -> CheckpointName | None:
    """Parse a file's name; None if it is not a checkpoint's."""
    parts = name.removeprefix("checkpoint-").removesuffix(SUFFIX).split("-")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    group, slot, generation = map(int, parts)
    found = CheckpointName(GroupId(group), generation, Slot(slot))
    return found if str(found) == name else None


@attrs.frozen(kw_only=True)
class CheckpointHeader:
    group: GroupId
    slot: Slot
    needs: int
    generation: int
    chunks: int
    cluster: str
    node: NodeId
    incarnation: Incarnation
    version: int = FORMAT_VERSION

    def encode(self) -> bytes:
        body = _HEADER.pack(
            _MAGIC,
            self.version,
            HEADER_BYTES,
            self.group,
            self.node,
            self.slot,
            self.needs,
            self.generation,
            self.incarnation,
            self.chunks,
            self.cluster.encode("ascii"),
        )
        return body + _CHECKSUM.pack(crc32c(body))


@attrs.frozen(kw_only=True)
class Checkpoint:
    """A group's newest intact generation. `lost`: there are files, but none of them is intact."""

    group: GroupId
    slot: Slot
    needs: int
    chunks: tuple[bytes, ...]
    damaged: tuple[str, ...] = ()
    """Names of the group's damaged files."""

    @property
    def lost(self) -> bool:
        return not self.chunks


class CheckpointFiles:
    """The checkpoints of a data directory. Thread-safe; one file is written at a time."""

    def __init__(self, disk: Disk, identity: Identity) -> None:
        self._disk, self._identity = disk, identity
        self._lock = disk.threads.lock()
        self._save_lock = disk.threads.lock()
        self._kept: dict[GroupId, list[CheckpointName]] = {}
        """Oldest first."""
        self._needs: dict[CheckpointName, int] = {}
        self._damaged: set[CheckpointName] = set()
        for name in disk.names():
            found = checkpoint_name(name)
            if found is not None:
                self._kept.setdefault(found.group, []).append(found)
        for names in self._kept.values():
            names.sort()

    # ---- what is there --------------------------------------------------------------------------

    def groups(self) -> list[GroupId]:
        with self._lock:
            return sorted(self._kept)

    def files(self) -> list[str]:
        """The names of all files, oldest generation of the lowest group first."""
        with self._lock:
            return [str(name) for group in sorted(self._kept) for name in self._kept[group]]

    def needs(self, group: GroupId) -> int | None:
        """The log may not be retired past this segment: the older generation needs it.

        None until there are two, or while one of them is known to be damaged: then the only one
        that is left may be damaged as well, and all of the log has to be there.
        """
        while True:
            with self._lock:
                intact = self._intact_ones(group)
                if len(intact) < GENERATIONS:
                    return None
                name = intact[-GENERATIONS]
                needs = self._needs.get(name)
            if needs is not None:
                return needs
            try:
                return self.needs_of(name)
            except StorageFailed:
                if self._is_kept(name):
                    raise  # else it has been replaced meanwhile

    def slot(self, group: GroupId) -> Slot | None:
        """The slot of the older generation, that of `needs`: the log may be retired up to it."""
        intact = self._intact(group)
        return intact[-GENERATIONS].slot if len(intact) >= GENERATIONS else None

    def _intact(self, group: GroupId) -> list[CheckpointName]:
        with self._lock:
            return self._intact_ones(group)

    def _intact_ones(self, group: GroupId) -> list[CheckpointName]:
        return [one for one in self._kept.get(group, []) if one not in self._damaged]

    def _is_kept(self, name: CheckpointName) -> bool:
        with self._lock:
            return name in self._kept.get(name.group, [])

    def needs_of(self, name: CheckpointName) -> int | None:
        """The segment that one file needs; None if its header is damaged."""
        needs = self._needs.get(name)
        if needs is None:
            try:
                needs = _read_header(self._disk.open(str(name)), name).needs
            except CheckpointDamaged:
                self._mark_damaged(name)
                return None
            self._needs[name] = needs
        return needs

    def _mark_damaged(self, name: CheckpointName) -> None:
        with self._lock:
            self._damaged.add(name)

    # ---- writing --------------------------------------------------------------------------------

    def save(self, group: GroupId, slot: Slot, needs: int, chunks: Sequence[bytes]) -> None:
        """Write a new generation, durably, and remove all but the last two. Any thread.

        Raises:
            DiskFull: nothing has changed.
            StorageFailed: the disk fails.
        """
        assert 0 < len(chunks) <= CHUNKS_MAX, f"{len(chunks)} chunks"
        with self._save_lock:
            with self._lock:
                kept = self._kept.get(group, [])
                generation = kept[-1].generation + 1 if kept else 1
            name = CheckpointName(group, generation, slot)
            temporary = _temporary_name(group)
            self._remove_temporary(temporary)  # a crash has left it
            try:
                self._write(temporary, name, needs, chunks)
            except StorageFailed:
                self._remove_temporary(temporary)
                raise
            self._disk.rename(temporary, str(name))
            self._disk.sync_directory()
            with self._lock:
                self._kept.setdefault(group, []).append(name)
                self._needs[name] = needs
            self._remove_old(group)

    def _write(
        self, temporary: str, name: CheckpointName, needs: int, chunks: Sequence[bytes]
    ) -> None:
        header = CheckpointHeader(
            group=name.group,
            slot=name.slot,
            needs=needs,
            generation=name.generation,
            chunks=len(chunks),
            cluster=self._identity.cluster,
            node=self._identity.node,
            incarnation=self._identity.incarnation,
        ).encode()
        file = _PacedFile(self._disk.create(temporary))
        file.write(header)
        seed = whole = crc32c(header)
        for number, chunk in enumerate(chunks):
            assert len(chunk) <= CHUNK_BYTES_MAX, f"a chunk of {len(chunk)} bytes"
            head = _CHUNK.pack(len(chunk), _chunk_checksum(seed, number, chunk))
            whole = crc32c(chunk, crc32c(head, whole))
            file.write(head)
            file.write(chunk)
        file.write(_END.pack(whole, _END_MAGIC))
        file.sync()

    def _remove_old(self, group: GroupId) -> None:
        """Remove all generations but the last two that are not known to be damaged."""
        kept = self._intact(group)[-GENERATIONS:]
        with self._lock:
            old = [one for one in self._kept[group] if one not in kept]
        self._remove(old)

    def remove(self, group: GroupId) -> None:
        """Durably remove all generations of a group that this node no longer has."""
        with self._save_lock:
            with self._lock:
                names = list(self._kept.get(group, []))
            self._remove(names)
            self._remove_temporary(_temporary_name(group))

    def _remove_temporary(self, name: str) -> None:
        if name in self._disk.names():
            self._disk.remove(name)

    def _remove(self, names: list[CheckpointName]) -> None:
        """Oldest first, each durably before the next: a crash never leaves only an old one."""
        for name in names:
            with self._lock:  # before the file is gone: other threads open what is kept
                kept = self._kept[name.group]
                kept.remove(name)
                if not kept:
                    del self._kept[name.group]
                self._damaged.discard(name)
                self._needs.pop(name, None)
            self._disk.remove(str(name))
            self._disk.sync_directory()

    # ---- reading --------------------------------------------------------------------------------

    def load(self, group: GroupId) -> Checkpoint | None:
        """The newest generation that is intact; None if there is no file of this group.

        Raises:
            DirectoryRefused: a file is another node's or cluster's, or of another format version.
            StorageFailed: the disk fails other than by having lost data.
        """
        with self._lock:
            names = list(self._kept.get(group, []))
        damaged: list[str] = []
        for name in reversed(names):
            try:
                header, chunks = self._read(name)
            except CheckpointDamaged:
                self._mark_damaged(name)
                damaged.append(str(name))
                continue
            except StorageFailed:
                if self._is_kept(name):
                    raise
                return self.load(group)  # it has been replaced meanwhile
            return Checkpoint(
                group=group,
                slot=name.slot,
                needs=header.needs,
                chunks=tuple(chunks),
                damaged=tuple(damaged),
            )
        if not damaged:
            return None
        return Checkpoint(group=group, slot=Slot(0), needs=0, chunks=(), damaged=tuple(damaged))

    def check(self, name: str) -> str | None:
        """Read a file again; returns what is wrong with it, or None. Any thread.

        A file that was replaced meanwhile counts as intact.
        """
        found = checkpoint_name(name)
        assert found is not None, f"{name} is no checkpoint"
        try:
            self._read(found)
        except CheckpointDamaged as damage:
            self._mark_damaged(found)
            return str(damage)
        except StorageFailed:
            if self._is_kept(found):
                raise
        return None

    def _read(self, name: CheckpointName) -> tuple[CheckpointHeader, list[bytes]]:
        file = self._disk.open(str(name))
        header = _read_header(file, name)
        _check_owner(str(name), header, self._identity)
        self._needs[name] = header.needs  # so that `needs` does not wait for the disk later
        return header, read_chunks(file, header)


def _temporary_name(group: GroupId) -> str:
    return f"checkpoint-{group:010d}{TEMPORARY_SUFFIX}"


class _PacedFile:
    """Writes sequentially, and makes the data durable every SYNC_EVERY_BYTES."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._offset = 0
        self._pieces: list[bytes | memoryview] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        for start in range(0, len(data), SYNC_EVERY_BYTES):
            piece = memoryview(data)[start : start + SYNC_EVERY_BYTES]
            self._pieces.append(piece)
            self._size += len(piece)
            if self._size >= SYNC_EVERY_BYTES:
                self.sync()

    def sync(self) -> None:
        write_all(self._file, self._pieces, self._offset)
        self._file.fdatasync()
        self._offset += self._size
        self._pieces, self._size = [], 0


def _read_header(file: File, name: CheckpointName) -> CheckpointHeader:
    header = decode_checkpoint_header(read_around(file, HEADER_BYTES_MAX, 0))
    if header is None:
        raise CheckpointDamaged(f"{name}: the header is damaged")
    if header.version != FORMAT_VERSION:
        raise DirectoryRefused(
            f"{name} has format version {header.version}; this program reads {FORMAT_VERSION}: use "
            "the version of the program that wrote it"
        )
    if (header.group, header.slot, header.generation) != (name.group, name.slot, name.generation):
        raise CheckpointDamaged(f"{name}: the header is another file's")
    return header


def decode_checkpoint_header(data: bytes) -> CheckpointHeader | None:
    """None if it is damaged. Later versions keep these fields in place, and the checksum last."""
    if len(data) < HEADER_BYTES or not data.startswith(_MAGIC):
        return None
    _, _, size, *_ = _HEADER.unpack_from(data)
    if not HEADER_BYTES <= size <= len(data):
        return None
    if _CHECKSUM.pack(crc32c(data[: size - _CHECKSUM.size])) != data[size - _CHECKSUM.size : size]:
        return None
    fields = _HEADER.unpack_from(data)
    _, version, _, group, node, slot, needs, generation, incarnation, chunks, cluster = fields
    return CheckpointHeader(
        group=GroupId(group),
        slot=Slot(slot),
        needs=needs,
        generation=generation,
        chunks=chunks,
        cluster=cluster.rstrip(b"\0").decode("ascii", "replace"),
        node=NodeId(node),
        incarnation=Incarnation(incarnation),
        version=version,
    )


def _check_owner(name: str, header: CheckpointHeader, identity: Identity) -> None:
    if (header.cluster, header.node) != (identity.cluster, identity.node):
        raise DirectoryRefused(
            f"{name} was written by node {header.node} of cluster {header.cluster!r}, and this is "
            f"node {identity.node} of {identity.cluster!r}: the files of two nodes have been mixed"
        )


def read_chunks(file: File, header: CheckpointHeader) -> list[bytes]:
    """All chunks, each of them verified.

    Raises:
        CheckpointDamaged: something is not what was written.
    """
    size = file.size()
    seed = whole = crc32c(header.encode())
    at = HEADER_BYTES
    chunks: list[bytes] = []
    for number in range(header.chunks):
        head = read_around(file, _CHUNK.size, at)
        at += _CHUNK.size
        length, checksum = _CHUNK.unpack(head) if len(head) == _CHUNK.size else (size, 0)
        if at + length > size:
            raise CheckpointDamaged(f"{file.name}: chunk {number} does not fit into the file")
        chunk = read_around(file, length, at)
        at += length
        if _chunk_checksum(seed, number, chunk) != checksum:
            raise CheckpointDamaged(f"{file.name}: the checksum of chunk {number} is wrong")
        whole = crc32c(chunk, crc32c(head, whole))
        chunks.append(chunk)
    end = read_around(file, _END.size + 1, at)
    if end != _END.pack(whole, _END_MAGIC) or not chunks:
        raise CheckpointDamaged(f"{file.name}: its end is damaged")
    return chunks


def _chunk_checksum(seed: int, number: int, chunk: bytes) -> int:
    return crc32c(chunk, crc32c(_CHUNK_SEED.pack(number, len(chunk)), seed))
