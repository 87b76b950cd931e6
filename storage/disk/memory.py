"""A disk in memory that can lose, tear, fail and run full, for the simulator and the tests.

A process sees what it writes at once (`cached`), but it is safe only after `fdatasync` (`durable`).
`crash` is a power cut: every un-synced 512-byte sector of every write survives or not, as the
caller's dice say, and of the un-synced directory changes a prefix survives, as in a journalled file
system. `kill` ends only the process: the cache stays, even where it is wrong, for after a failed
fdatasync it shows bytes that are not durable and that no later fdatasync writes.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Final

import attrs

from paxos.entry import Buffer
from storage.disk.direct import BLOCK_BYTES
from storage.disk.files import IOV_MAX, File, Then
from storage.disk.read_ahead import AHEAD_MAX
from storage.disk.threads import SYSTEM_THREADS, Threads
from storage.errors import DirectoryLocked, StorageFailed, storage_failed

SECTOR_BYTES: Final = 512
ENDLESS_BYTES: Final = 1 << 60
"""Free on a disk without a capacity."""


class PowerCut(Exception):
    """Raised in the middle of an operation of a disk that was told to `stop`: call `crash` next."""


@attrs.define(eq=False)
class _Inode:
    cached: bytearray = attrs.Factory(bytearray)
    durable: bytearray = attrs.Factory(bytearray)
    pending: list[tuple[int, bytes | None]] = attrs.Factory(list)
    """Offset and data; None for data: the file was cut short there."""
    unreadable: set[int] = attrs.Factory(set)
    """Numbers of blocks that the medium has lost."""

    def write(self, offset: int, data: bytes) -> None:
        self._remap(offset, offset + len(data))
        _put(self.cached, offset, data)
        self.pending.append((offset, data))

    def _remap(self, start: int, end: int) -> None:
        """A lost block that is written from its beginning on is replaced by a spare one."""
        for block in [one for one in self.unreadable if start <= one * BLOCK_BYTES < end]:
            self.unreadable.remove(block)
            lost = slice(block * BLOCK_BYTES, (block + 1) * BLOCK_BYTES)
            for content in (self.cached, self.durable):
                content[lost] = bytes(len(content[lost]))

    def reads(self, start: int, end: int) -> bool:
        """Whether all of it can be read."""
        lost = self.unreadable
        return not lost or lost.isdisjoint(range(start // BLOCK_BYTES, -(-end // BLOCK_BYTES)))

    def cut(self, size: int) -> None:
        del self.cached[size:]
        self.pending.append((size, None))

    def sync(self) -> None:
        for offset, data in self.pending:
            if data is None:
                del self.durable[offset:]
            else:
                _put(self.durable, offset, data)
        self.pending.clear()

    def crash(self, survives: Callable[[], bool]) -> None:
        for offset, data in self.pending:
            if data is None:
                if survives():
                    del self.durable[offset:]
                continue
            start = 0
            while start < len(data):
                end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
                if survives():
                    _put(self.durable, offset + start, data[start:end])
                start = end
        self.pending.clear()
        self.cached = bytearray(self.durable)


def _put(target: bytearray, offset: int, data: bytes) -> None:
    if len(target) < offset:
        target.extend(bytes(offset - len(target)))
    target[offset : offset + len(data)] = data


@attrs.define(eq=False)
class _Fault:
    operation: str
    number: int | None
    """The errno; None for a power cut."""
    after: int


class MemoryFile:
    """One file of a MemoryDisk. It is of no use after a crash of its disk."""

    def __init__(self, disk: "MemoryDisk", name: str, inode: _Inode) -> None:
        self.name = name
        self._disk = disk
        self._inode = inode
        self._life = disk.life
        self._ahead: dict[tuple[int, int], memoryview] = {}
        """By size and offset: the bytes as they were when their reading was begun."""

    def _touch(self, operation: str) -> None:
        assert self._life == self._disk.life, f"{self.name} was opened before the crash"
        self._disk.touch(operation, self.name)

    def _check_readable(self, operation: str, start: int, end: int) -> None:
        if not self._inode.reads(start, end):
            raise storage_failed(operation, self.name, OSError(errno.EIO, "injected"))

    def size(self) -> int:
        self._touch("stat")
        return len(self._inode.cached)

    def pread(self, size: int, offset: int) -> bytes:
        self._touch("read")
        self._check_readable("read", offset, offset + size)
        return bytes(memoryview(self._inode.cached)[offset : offset + size])

    def read_long(self, size: int, offset: int) -> memoryview:
        ahead = self._ahead.pop((size, offset), None)
        return memoryview(self.pread(size, offset)) if ahead is None else ahead

    def read_now(self, size: int, offset: int) -> memoryview | None:
        if self._disk.reads_late():
            return None
        with suppress(StorageFailed), self._disk.at_once():
            return self.read_long(size, offset)
        return None

    def read_soon(self, size: int, offset: int) -> None:
        with suppress(StorageFailed), self._disk.at_once():  # `read_long` will report it
            self._ahead[size, offset] = memoryview(self.pread(size, offset))
        if len(self._ahead) > AHEAD_MAX:
            del self._ahead[next(iter(self._ahead))]

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        self._touch("write")
        assert len(buffers) <= IOV_MAX, f"{len(buffers)} buffers in one pwritev"
        data = b"".join(buffers)[: self._disk.write_bytes_max]
        if offset % BLOCK_BYTES:  # a write into a block needs what is before it in the block
            self._check_readable("write", offset, offset + 1)
        self._disk.allocate(self.name, offset + len(data) - len(self._inode.cached))
        self._inode.write(offset, data)
        return len(data)

    def begin_write(
        self, buffers: Sequence[Buffer], offset: int, wakeup: int, then: Then | None = None
    ) -> bool:
        return False  # there is no kernel here that would do it

    def finish_write(self, wait_s: float = 0.0) -> bool | None:
        raise AssertionError("nothing was begun")

    def reserve(self, size: int) -> None:
        self._touch("reserve")
        missing = size - len(self._inode.cached)
        if missing > 0:
            self._disk.allocate(self.name, missing)
            self._inode.write(size - missing, bytes(missing))

    def truncate(self, size: int) -> None:
        self._touch("truncate")
        self._inode.cut(size)

    def fdatasync(self) -> None:
        try:
            self._touch("fdatasync")
        except StorageFailed:
            self._inode.pending.clear()  # as Linux: the pages are dropped, a retry would "succeed"
            raise
        self._inode.sync()


class MemoryDisk:
    """`capacity_bytes` bounds the sum of all files; `write_bytes_max` makes writes fall short."""

    def __init__(
        self, *, capacity_bytes: int | None = None, write_bytes_max: int | None = None
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.write_bytes_max = write_bytes_max
        self.reads_late: Callable[[], bool] = lambda: False
        """Asked for each `read_now`: whether it would have to wait for the disk."""
        self.threads: Threads = SYSTEM_THREADS
        self.life = 0
        """How many processes have used it before."""
        self._names: dict[str, _Inode] = {}
        self._durable_names: dict[str, _Inode] = {}
        self._pending_names: list[dict[str, _Inode]] = []
        self._faults: list[_Fault] = []
        self._locked = False

    # ---- what a test does to it ---------------------------------------------------------------

    def crash(self, survives: Callable[[], bool]) -> None:
        """Cut the power: `survives` is asked for every un-synced sector and directory change."""
        for names in self._pending_names:
            if not survives():
                break
            self._durable_names = names
        for inode in self._inodes():
            inode.crash(survives)
        self._names = dict(self._durable_names)
        self._pending_names.clear()
        self.kill()

    def kill(self) -> None:
        """End the process: files open so far are of no use, nothing written is lost."""
        self._faults.clear()
        self._locked = False
        self.life += 1

    def fail(self, operation: str, number: int, *, after: int = 0) -> None:
        """Let one `operation` (read, write, fdatasync...) raise errno `number`, `after` others."""
        self._faults.append(_Fault(operation, number, after))

    def stop(self, operation: str, *, after: int = 0) -> None:
        """Cut the power in the middle of an `operation`, after `after` others."""
        self._faults.append(_Fault(operation, None, after))

    def corrupt(self, name: str, offset: int, mask: int) -> None:
        """Flip the bits of `mask` in one byte, on the platter and in the cache."""
        inode = self._names[name]
        inode.cached[offset] ^= mask
        if offset < len(inode.durable):
            inode.durable[offset] ^= mask

    def lose_block(self, name: str, offset: int) -> None:
        """From now on the block at `offset` cannot be read, nor written into. Once it is written
        from its beginning on, it is as good as new, and empty after what was written."""
        self._names[name].unreadable.add(offset // BLOCK_BYTES)

    def truncate(self, name: str, size: int) -> None:
        """Cut a file short, from outside the process."""
        inode = self._names[name]
        inode.sync()
        del inode.cached[size:], inode.durable[size:]

    def content(self, name: str) -> bytes:
        return bytes(self._names[name].cached)

    def keep(self) -> dict[str, bytes]:
        """What a copy of the directory made now, file by file, would hold."""
        return {name: bytes(inode.cached) for name, inode in sorted(self._names.items())}

    def put(self, files: Mapping[str, bytes]) -> None:
        """Replace all files by these. No process uses the disk."""
        assert not self._locked
        self._names = {
            name: _Inode(bytearray(data), bytearray(data)) for name, data in files.items()
        }
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    def clone(self) -> "MemoryDisk":
        """A copy as a restarted process would find it: everything written, nothing locked."""
        copy = MemoryDisk(capacity_bytes=self.capacity_bytes, write_bytes_max=self.write_bytes_max)
        for name, inode in self._names.items():
            copy._names[name] = _Inode(bytearray(inode.cached), bytearray(inode.cached))
        copy._durable_names = dict(copy._names)
        return copy

    # ---- what its files ask -------------------------------------------------------------------

    def at_once(self) -> AbstractContextManager[None]:
        """What is done within it does not wait: for a subclass whose operations take time."""
        return nullcontext()

    def touch(self, operation: str, name: str) -> None:
        for fault in self._faults:
            if fault.operation == operation:
                fault.after -= 1
                if fault.after < 0:
                    self._faults.remove(fault)
                    if fault.number is None:
                        raise PowerCut(operation)
                    error = OSError(fault.number, "injected")
                    raise storage_failed(operation, name, error)

    def allocate(self, name: str, more: int) -> None:
        if more > max(0, self.free_bytes()):
            raise storage_failed("write", name, OSError(errno.ENOSPC, "no space left"))

    def _inodes(self) -> list[_Inode]:
        found = {id(inode): inode for inode in self._names.values()}
        found.update((id(inode), inode) for inode in self._durable_names.values())
        return list(found.values())

    def _changed(self) -> None:
        self._pending_names.append(dict(self._names))

    # ---- Disk ---------------------------------------------------------------------------------

    def lock(self) -> None:
        if self._locked:
            raise DirectoryLocked("the memory disk is in use")
        self._locked = True

    def close(self) -> None:
        self._locked = False

    def names(self) -> list[str]:
        self.touch("list", "directory")
        return sorted(self._names)

    def sizes(self) -> dict[str, int]:
        self.touch("list", "directory")
        return {name: len(self._names[name].cached) for name in sorted(self._names)}

    def create(self, name: str) -> File:
        self.touch("open", name)
        if name in self._names:
            raise storage_failed("open", name, FileExistsError(errno.EEXIST, "exists"))
        self._names[name] = _Inode()
        self._changed()
        return MemoryFile(self, name, self._names[name])

    def open(self, name: str) -> File:
        self.touch("open", name)
        if name not in self._names:
            raise storage_failed("open", name, FileNotFoundError(errno.ENOENT, "no such file"))
        return MemoryFile(self, name, self._names[name])

    def is_linked(self, name: str) -> bool:
        return False

    def rename(self, old: str, new: str) -> None:
        self.touch("rename", old)
        if old not in self._names:
            raise storage_failed("rename", old, FileNotFoundError(errno.ENOENT, "no such file"))
        self._names[new] = self._names.pop(old)
        self._changed()

    def remove(self, name: str) -> None:
        self.touch("remove", name)
        if name not in self._names:
            raise storage_failed("remove", name, FileNotFoundError(errno.ENOENT, "no such file"))
        del self._names[name]
        self._changed()

    def sync_directory(self) -> None:
        self.touch("fsync", "directory")
        self._durable_names = dict(self._names)
        self._pending_names.clear()

    def free_bytes(self) -> int:
        if self.capacity_bytes is None:
            return ENDLESS_BYTES
        return self.capacity_bytes - sum(len(inode.cached) for inode in self._names.values())
