"""The few operations on files that the log needs, as a Protocol, and the real disk.

The Protocol exists so that the simulator can run the same log on a disk that loses, tears and fails
(`memory.py`); one conformance test runs against both. Every implementation raises `StorageFailed`
for an OSError of the system, so that callers need not know errno.

Durability, as the log relies on it: bytes are safe when `fdatasync` has returned; a name (created,
renamed, removed) is safe when `sync_directory` has returned; a 512-byte sector is written whole or
not at all; un-synced writes may survive in any subset of sectors.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from paxos.entry import Buffer
from storage.disk.closing import close_soon
from storage.disk.descriptors import DESCRIPTORS
from storage.disk.direct import (
    BLOCK_BYTES,
    LONG_READ_BYTES,
    LONG_READ_BYTES_MAX,
    BufferPool,
    DirectFile,
    GrowingFile,
    Staging,
    opened_directly,
    whole_blocks,
)
from storage.disk.kernel_writes import Following
from storage.disk.read_ahead import ReadAhead
from storage.disk.threads import SYSTEM_THREADS, Threads
from storage.errors import UNREADABLE, DirectoryLocked, StorageFailed, storage_failed
from storage.format import SEGMENT_SUFFIX

IOV_MAX: Final = 1024
"""Linux's limit on the buffers of one pwritev."""

JOIN_BELOW_BYTES: Final = 16 * 1024
"""Buffers smaller than this are joined with their neighbours: a copy costs less than an iovec."""


class File(Protocol):
    """An open file. It closes when the last reference goes, so a reader can never lose it."""

    @property
    def name(self) -> str: ...

    def size(self) -> int: ...

    def pread(self, size: int, offset: int) -> bytes:
        """Up to `size` bytes; fewer only where the file ends."""
        ...

    def read_long(self, size: int, offset: int) -> memoryview:
        """As `pread`, for long data that is read once: it bypasses the page cache."""
        ...

    def read_now(self, size: int, offset: int) -> memoryview | None:
        """As `read_long`, but without waiting for the disk; None if that is not possible or fails:
        call `read_long` in another thread. Only for bytes that will not change."""
        ...

    def read_soon(self, size: int, offset: int) -> None:
        """Read ahead for a `read_long` with these arguments, if that can be done while the caller
        goes on. Only for bytes that will not change."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write up to IOV_MAX buffers; may write less than asked, never nothing."""
        ...

    def begin_write(
        self, buffers: Sequence[Buffer], offset: int, wakeup: int, then: "Then | None" = None
    ) -> bool:
        """Begin to write all of `buffers` durably, and then `then`, while the caller goes on: this
        never waits for the disk. The eventfd `wakeup` is set when `finish_write` has a result.
        False, and nothing happens, if that is not possible here or now, as for the first write:
        write it in the usual way. One such write per disk at a time."""
        ...

    def finish_write(self, wait_s: float = 0.0) -> bool | None:
        """True: what was begun is durable. None: it is still under way after `wait_s` seconds.
        False: it has to be written once more, in the usual way."""
        ...

    def reserve(self, size: int) -> None:
        """Make the file `size` bytes long, with its space on the disk; unwritten bytes are 0."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file short; durable with the next fdatasync."""
        ...

    def fdatasync(self) -> None: ...


Then: TypeAlias = tuple[File, bytes, int]
"""What is written when a write is durable: a few bytes, at this offset of this file."""


class Disk(Protocol):
    """One flat directory of files, used by one process at a time."""

    @property
    def threads(self) -> Threads:
        """The threads that work on it, and wait for it."""
        ...

    def lock(self) -> None:
        """Take the directory for this process, until `close`.

        Raises:
            DirectoryLocked: if another process has it.
        """
        ...

    def close(self) -> None: ...

    def names(self) -> list[str]:
        """The files' names, sorted."""
        ...

    def sizes(self) -> dict[str, int]:
        """The files' sizes in bytes, in the order of their names."""
        ...

    def create(self, name: str) -> File:
        """A new empty file; the name must be free."""
        ...

    def open(self, name: str) -> File: ...

    def is_linked(self, name: str) -> bool:
        """Whether the file has another name, outside of this directory: it must not be changed."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Atomic; replaces `new` if it exists."""
        ...

    def remove(self, name: str) -> None: ...

    def sync_directory(self) -> None: ...

    def free_bytes(self) -> int:
        """How much may still be written, as far as this process knows."""
        ...


LOCK_NAME: Final = "lock"
_OPENING: Final = threading.Lock()
"""Taken to open files for direct reads: never by the event loop."""


class RealFile:
    """A file descriptor with an owner. With `staging` it is a segment of the log, which has its
    full size, and all writes bypass the page cache; otherwise long ones do, by way of `growing`."""

    def __init__(
        self,
        path: Path,
        flags: int,
        growing: Staging,
        kept: BufferPool,
        ahead: ReadAhead,
        staging: Staging | None = None,
    ) -> None:
        self.name = path.name
        self._descriptor = self._reading = -1
        self._kept, self._ahead, self._staging = kept, ahead, staging
        self._direct: DirectFile | None = None
        self._reads_directly = True
        try:
            self._descriptor = DESCRIPTORS.have(
                lambda: os.open(path, flags | os.O_RDWR | os.O_CLOEXEC, 0o600)
            )
        except OSError as error:
            raise storage_failed("open", path.name, error) from error
        self._growing = GrowingFile(self._descriptor, growing)

    def __del__(self) -> None:
        # With the last reference, so that a reader in another thread never sees its descriptor
        # closed, or worse, reused. Errors of close do not matter: what counts was fdatasynced.
        if self._descriptor < 0:
            return
        direct = -1 if self._direct is None else self._direct.let_go()
        close_soon((self._growing.let_go(), direct, self._reading, self._descriptor))

    def size(self) -> int:
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise storage_failed("stat", self.name, error) from error

    def pread(self, size: int, offset: int) -> bytes:
        try:
            data = os.pread(self._descriptor, size, offset)
            while len(data) < size:
                more = os.pread(self._descriptor, size - len(data), offset + len(data))
                if not more:
                    break
                data += more
            return data
        except OSError as error:
            raise storage_failed("read", self.name, error) from error

    def read_long(self, size: int, offset: int) -> memoryview:
        if not self._is_direct(size):
            return memoryview(self.pread(size, offset))
        ahead = self._ahead.take(self, size, offset)
        if ahead is not None:
            return ahead
        start = offset % BLOCK_BYTES
        memory = self._kept.take(whole_blocks(start + size))
        if memory is None:
            return memoryview(self.pread(size, offset))
        got = self._read_directly(memory, offset - start)
        if got < start + size:  # refused, or rare: interrupted, or the file ends here
            return memoryview(self.pread(size, offset))
        return memory[start : start + size].toreadonly()

    def read_now(self, size: int, offset: int) -> memoryview | None:
        if self._is_direct(size):
            if self._reading < 0:
                return None
            return self._ahead.take_now(self, self._reading, size, offset)
        data = bytearray(size)
        try:
            got = os.preadv(self._descriptor, [data], offset, os.RWF_NOWAIT)
        except OSError:  # not in the page cache; or it fails, which `read_long` will report
            return None
        return memoryview(data).toreadonly() if got == size else None

    def read_soon(self, size: int, offset: int) -> None:
        if self._is_direct(size) and self._reading >= 0:
            self._ahead.begin(self, self._reading, size, offset)

    def _is_direct(self, size: int) -> bool:
        return self._reads_directly and LONG_READ_BYTES <= size <= LONG_READ_BYTES_MAX

    def _opened_for_reading(self) -> bool:
        """The first read opens it. That may wait, so it is not for the event loop."""
        if self._reading < 0:
            with _OPENING:  # readers of several threads share this file
                if self._reading < 0:
                    self._reading = opened_directly(self._descriptor, os.O_RDONLY)
        return self._reading >= 0

    def _read_directly(self, memory: memoryview, offset: int) -> int:
        if self._opened_for_reading():
            try:
                return os.preadv(self._reading, [memory], offset)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise storage_failed("read", self.name, error) from error
        self._reads_directly = False
        return 0

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        try:
            if self._staging is None:
                return self._growing.write(buffers, offset)
            return self._write_directly(buffers, offset) or os.pwritev(
                self._descriptor, buffers, offset
            )
        except OSError as error:
            raise storage_failed("write", self.name, error) from error

    def _write_directly(self, buffers: Sequence[Buffer], offset: int) -> int:
        direct = self._opened_directly()
        return direct.write(buffers, offset) if direct.supported else 0

    def begin_write(
        self, buffers: Sequence[Buffer], offset: int, wakeup: int, then: Then | None = None
    ) -> bool:
        direct = self._direct
        if direct is None or not direct.supported:
            return False  # a write in the usual way opens it, and may wait for that
        following = None
        if then is not None:
            file, data, place = then
            assert isinstance(file, RealFile)
            following = Following(file._descriptor, data, place)
        try:
            return direct.begin(buffers, offset, wakeup, following)
        except OSError as error:
            raise storage_failed("write", self.name, error) from error

    def finish_write(self, wait_s: float = 0.0) -> bool | None:
        assert self._direct is not None, "nothing was begun"
        try:
            return self._direct.finish(wait_s)
        except OSError as error:
            raise storage_failed("write", self.name, error) from error

    def _opened_directly(self) -> DirectFile:
        assert self._staging is not None
        if self._direct is None:
            self._direct = DirectFile(self._descriptor, self._staging)
        return self._direct

    def reserve(self, size: int) -> None:
        try:
            os.posix_fallocate(self._descriptor, 0, size)
        except OSError as error:
            raise storage_failed("reserve", self.name, error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._descriptor, size)
        except OSError as error:
            raise storage_failed("truncate", self.name, error) from error

    def fdatasync(self) -> None:
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise storage_failed("fdatasync", self.name, error) from error


class RealDisk:
    """A directory of the operating system, created if it is missing. `bytes_max`: how much of the
    disk its files may take, 0 for all. `clock`: see ReadAhead."""

    def __init__(
        self, directory: Path, bytes_max: int = 0, clock: Callable[[], float] | None = None
    ) -> None:
        self.directory = directory
        self.threads: Threads = SYSTEM_THREADS
        self._bytes_max = bytes_max
        self._staging = Staging()
        self._growing = Staging()
        """Separate, so that the log's writer never waits for background writes."""
        self._kept = BufferPool()
        self._ahead = ReadAhead(self._kept, clock)
        try:
            missing = not directory.exists()
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if missing:
                _sync_path(directory.parent)
        except OSError as error:
            raise storage_failed("open", str(directory), error) from error
        self._lock = -1

    def lock(self) -> None:
        path = self.directory / LOCK_NAME
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise storage_failed("open", LOCK_NAME, error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise storage_failed("lock", LOCK_NAME, error) from error
            raise DirectoryLocked(
                f"{self.directory} is in use by process {holder or 'unknown'}: "
                "stop it, or give this node a data directory of its own"
            ) from error
        self._lock = descriptor
        with suppress(OSError):  # the holder's id is a courtesy: a full disk has no room for it
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def close(self) -> None:
        for descriptor in (self._lock, self._descriptor):
            if descriptor >= 0:
                os.close(descriptor)
        self._lock = self._descriptor = -1

    def names(self) -> list[str]:
        try:
            return sorted(
                name
                for name in DESCRIPTORS.have(lambda: os.listdir(self.directory))
                if name != LOCK_NAME
            )
        except OSError as error:
            raise storage_failed("list", str(self.directory), error) from error

    def sizes(self) -> dict[str, int]:
        found = {}
        try:
            with DESCRIPTORS.have(lambda: os.scandir(self.directory)) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):  # removed while we look
                        found[entry.name] = entry.stat().st_size
            found.pop(LOCK_NAME, None)
        except OSError as error:
            raise storage_failed("list", str(self.directory), error) from error
        return dict(sorted(found.items()))

    def create(self, name: str) -> File:
        flags = os.O_CREAT | os.O_EXCL
        return RealFile(self.directory / name, flags, self._growing, self._kept, self._ahead)

    def open(self, name: str) -> File:
        staging = self._staging if name.endswith(SEGMENT_SUFFIX) else None
        path = self.directory / name
        return RealFile(path, 0, self._growing, self._kept, self._ahead, staging)

    def is_linked(self, name: str) -> bool:
        try:
            return os.stat(self.directory / name).st_nlink > 1
        except OSError as error:
            raise storage_failed("stat", name, error) from error

    def rename(self, old: str, new: str) -> None:
        try:
            os.rename(self.directory / old, self.directory / new)
        except OSError as error:
            raise storage_failed("rename", old, error) from error

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.directory / name)
        except OSError as error:
            raise storage_failed("remove", name, error) from error

    def sync_directory(self) -> None:
        try:
            os.fsync(self._descriptor)
        except OSError as error:
            raise storage_failed("fsync", str(self.directory), error) from error

    def free_bytes(self) -> int:
        try:
            found = os.fstatvfs(self._descriptor)
        except OSError as error:
            raise storage_failed("statvfs", str(self.directory), error) from error
        free = found.f_bavail * found.f_frsize
        if self._bytes_max:
            free = min(free, max(0, self._bytes_max - sum(self.sizes().values())))
        return free


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_around(file: File, size: int, offset: int) -> bytes:
    """As `pread`, with zeros for the blocks that the disk cannot read.

    Only for data that is checked against a checksum afterwards: so a bad sector is one more kind of
    damage, found and repaired like a flipped bit, and not the end of the node.

    Raises:
        StorageFailed: for any other reason than a medium that has lost the bytes.
    """
    try:
        return file.pread(size, offset)
    except StorageFailed as failure:
        if failure.errno not in UNREADABLE:
            raise
    end = min(offset + size, file.size())
    pieces: list[bytes] = []
    while offset < end:
        size = min(end, offset - offset % BLOCK_BYTES + BLOCK_BYTES) - offset
        try:
            piece = file.pread(size, offset)
        except StorageFailed as failure:
            if failure.errno not in UNREADABLE:
                raise
            piece = bytes(size)
        pieces.append(piece)
        offset += size
    return b"".join(pieces)


def read_long_around(file: File, size: int, offset: int) -> memoryview:
    """As `read_around`, by way of `read_long`."""
    try:
        return file.read_long(size, offset)
    except StorageFailed as failure:
        if failure.errno not in UNREADABLE:
            raise
    return memoryview(read_around(file, size, offset))


def write_all(file: File, buffers: Sequence[Buffer], offset: int) -> None:
    """Write every byte of `buffers`, however many calls it takes."""
    for start in range(0, len(buffers), IOV_MAX):
        part = list(buffers[start : start + IOV_MAX])
        wanted = sum(map(len, part))
        while wanted:
            done = file.pwritev(part, offset)
            assert 0 < done <= wanted, f"pwritev of {file.name} wrote {done} of {wanted} bytes"
            offset += done
            wanted -= done
            if wanted:
                part = _after(part, done)


def _after(buffers: list[Buffer], done: int) -> list[Buffer]:
    """What is left of `buffers` after their first `done` bytes."""
    for at, buffer in enumerate(buffers):
        if done < len(buffer):
            return [memoryview(buffer)[done:], *buffers[at + 1 :]]
        done -= len(buffer)
    return []


def join_small(buffers: Sequence[Buffer]) -> list[Buffer]:
    """The same bytes with runs of small buffers joined; large ones are never copied."""
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BELOW_BYTES:
            run.append(buffer)
            continue
        if run:
            joined.append(b"".join(run))
            run = []
        joined.append(buffer)
    if run:
        joined.append(b"".join(run))
    return joined
