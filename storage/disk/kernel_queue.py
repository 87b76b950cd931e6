"""Linux's io_uring through ctypes: the kernel reads and writes while the caller goes on.

Every operation carries IOSQE_ASYNC: a thread of the kernel carries it out, from the very first
step. So a submission never waits for the disk, however long the disk takes: not for a frozen
file system, not for ext4's journal, not for a device whose queue is full. (io_submit(2), which was
used here before, waits for all of these.) See io_uring_setup(2) and io_uring_enter(2); the C
library does not wrap these system calls. If they are forbidden, our own threads do the work.
"""

import ctypes
import errno
import mmap
import os
import struct
import sys
from collections.abc import Sequence
from typing import Final

import attrs

_SETUP, _ENTER, _REGISTER = 425, 426, 427
"""Numbers of the system calls, the same on every architecture."""
_PARAMETERS: Final = struct.Struct("=10I8IQ8IQ")
"""struct io_uring_params: ten words, where things are in the first ring, and in the second."""
_SQ_RING, _CQ_RING, _ENTRIES = 0, 0x8000000, 0x10000000
"""What is mapped, as offsets of the ring's descriptor."""
_ENTRY: Final = struct.Struct("=BBHiQQIIQHHiQQ")
"""struct io_uring_sqe: operation, flags, priority, file, offset, address, bytes, flags of the read
or write, number, and four fields of which we use none."""
_RESULT: Final = struct.Struct("=QiI")
_WORD: Final = struct.Struct("=I")
_WAIT: Final = struct.Struct("=QIIQ")
_LINK, _ASYNC, _QUIET = 4, 16, 64
"""Flags of an operation: the next one waits for it; never begin it inline; no result if it does all
it was asked for."""
_KNOWS_QUIET: Final = 1 << 11
_GET_EVENTS, _EXTENDED = 1, 8
_REGISTER_EVENTFD: Final = 4
READ: Final = 22
WRITE: Final = 23
REFUSALS: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)
"""Not this way: the file system, the kernel or a sandbox knows no such I/O."""
LATER: Final = (errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
"""Not now: a limit of the machine, or of this process."""


@attrs.frozen
class Operation:
    """The memory (address and bytes) must stay until `completed` has returned `number`."""

    code: int
    descriptor: int
    address: int
    size: int
    offset: int
    flags: int = 0
    number: int = 0


class KernelQueue:
    """Up to `depth` operations at a time. `supported` turns False for good when one is refused."""

    def __init__(self, depth: int) -> None:
        self.supported = sys.platform == "linux" and sys.byteorder == "little"
        self._depth = depth
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._ring = -1
        self._eventfd = -1
        self._under_way = 0
        self._leading = _ASYNC | _LINK
        self.quiet_links = False

    def __del__(self) -> None:
        if self._ring >= 0:
            while self._under_way:
                self.completed(1.0)  # the memory it works on goes with us
            os.close(self._ring)

    def submit(self, operations: Sequence[Operation], *, eventfd: int = -1) -> bool:
        """Submit a chain of operations: each begins when the one before it has done all it was
        asked for, and is cancelled otherwise. False: nothing has begun.

        `eventfd`, if given, is set when there are results. With `quiet_links` (Linux 5.17) the
        chain has one result: that of the first that fails, or of the last. Otherwise each operation
        has one, and a cancelled one has ECANCELED.

        Raises:
            OSError: the kernel has begun with a part of them, or refuses for another reason.
        """
        if not self.supported or not (self._ring >= 0 or self._set_up()):
            return False
        if eventfd != self._eventfd and not self._signal_by(eventfd):
            return False
        assert self._under_way + len(operations) <= self._depth, "more than was asked for"
        (tail,) = _WORD.unpack_from(self._sq, self._sq_tail)
        last = len(operations) - 1
        for at, one in enumerate(operations):
            slot = (tail + at) & self._sq_mask
            flags = _ASYNC if at == last else self._leading
            _ENTRY.pack_into(
                self._entries,
                slot * _ENTRY.size,
                *(one.code, flags, 0, one.descriptor, one.offset, one.address, one.size, one.flags),
                *(one.number, 0, 0, 0, 0, 0),
            )
            _WORD.pack_into(self._sq, self._sq_array + slot * _WORD.size, slot)
        _WORD.pack_into(self._sq, self._sq_tail, (tail + len(operations)) & 0xFFFFFFFF)
        begun = self._call(_ENTER, self._ring, len(operations), 0, 0, None, 0)
        if begun == len(operations):
            self._under_way += 1 if self.quiet_links else begun
            return True
        if begun > 0:
            raise OSError(errno.ENOMEM, "the kernel has begun with a part")
        _WORD.pack_into(self._sq, self._sq_tail, tail)  # it must not take them later
        self._refused(ctypes.get_errno())
        return False

    def completed(self, wait_s: float = 0.0) -> tuple[int, int] | None:
        """The number of one operation that is over, and how many bytes were read or written, or a
        negative errno; None if there is none within `wait_s` seconds."""
        (head,) = _WORD.unpack_from(self._cq, self._cq_head)
        if head == _WORD.unpack_from(self._cq, self._cq_tail)[0]:
            if wait_s > 0.0:
                self.wait(wait_s)
            if head == _WORD.unpack_from(self._cq, self._cq_tail)[0]:
                return None
        at = self._cq_results + (head & self._cq_mask) * _RESULT.size
        number, result, _ = _RESULT.unpack_from(self._cq, at)
        _WORD.pack_into(self._cq, self._cq_head, (head + 1) & 0xFFFFFFFF)
        self._under_way -= 1
        if -result in REFUSALS:
            self.supported = False
        return number, result

    def wait(self, wait_s: float) -> None:
        """Wait until there is a result, without taking it, or the time is over. Any thread."""
        span = ctypes.create_string_buffer(struct.pack("=qq", int(wait_s), int(wait_s % 1 * 1e9)))
        extended = ctypes.create_string_buffer(_WAIT.pack(0, 0, 0, ctypes.addressof(span)))
        flags = _GET_EVENTS | _EXTENDED
        self._call(_ENTER, self._ring, 0, 1, flags, extended, ctypes.c_size_t(_WAIT.size))

    def _set_up(self) -> bool:
        parameters = ctypes.create_string_buffer(_PARAMETERS.size)
        ring = self._call(_SETUP, self._depth, parameters)
        if ring < 0:
            self._refused(ctypes.get_errno())
            return False
        self._ring = ring
        fields = _PARAMETERS.unpack(parameters.raw)
        sq_entries, cq_entries, features = *fields[:2], fields[5]
        self.quiet_links = bool(features & _KNOWS_QUIET)
        if self.quiet_links:
            self._leading |= _QUIET
        _, self._sq_tail, mask_at, _, _, _, self._sq_array = fields[10:17]
        self._cq_head, self._cq_tail, cq_mask_at, _, _, self._cq_results = fields[19:25]
        self._sq = self._map(self._sq_array + sq_entries * _WORD.size, _SQ_RING)
        self._cq = self._map(self._cq_results + cq_entries * _RESULT.size, _CQ_RING)
        self._entries = self._map(sq_entries * _ENTRY.size, _ENTRIES)
        (self._sq_mask,) = _WORD.unpack_from(self._sq, mask_at)
        (self._cq_mask,) = _WORD.unpack_from(self._cq, cq_mask_at)
        return True

    def _map(self, size: int, offset: int) -> mmap.mmap:
        return mmap.mmap(self._ring, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, offset=offset)

    def _signal_by(self, eventfd: int) -> bool:
        if self._eventfd >= 0:
            self._call(_REGISTER, self._ring, _REGISTER_EVENTFD + 1, None, 0)
        descriptor = ctypes.c_int(eventfd)
        call = (self._ring, _REGISTER_EVENTFD, ctypes.byref(descriptor), 1)
        if eventfd >= 0 and self._call(_REGISTER, *call) != 0:
            self._eventfd = -1
            self._refused(ctypes.get_errno())
            return False
        self._eventfd = eventfd
        return True

    def _refused(self, number: int) -> None:
        if number in REFUSALS:
            self.supported = False
        elif number not in LATER:
            raise OSError(number, os.strerror(number))
