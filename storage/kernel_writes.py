"""Writes that the kernel carries out while the caller goes on: Linux's asynchronous I/O, by ctypes.

A thread that writes and syncs costs the event loop more than the write: each of its system calls
gives the interpreter up and takes it back, and the loop waits and is woken as often. Here the loop
itself hands a direct write to the kernel (`io_submit`, about 15 us) and hears by an eventfd when it
is done. The write carries RWF_DSYNC, the per-write form of O_DSYNC: it is reported when the data,
and what is needed to find it, are durable, as after an fdatasync (pwritev2(2), open(2)).

Measured on ext4, 4 KiB, CPU for one durable write: thread with pwritev and fdatasync 52-66 us, this
21-30 us; the time until it is durable is the same (about 100 us).

What the kernel or the file system refuses is written by the thread: see runtime.log_writer.
"""

import ctypes
import errno
import os
import platform
import struct
from typing import Final

_NUMBERS: Final = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2), "riscv64": (0, 1, 4, 2)}
"""Of io_setup, io_destroy, io_getevents and io_submit, which the C library does not wrap."""
_IOCB: Final = struct.Struct("=QIiHhIQQqQII")
"""data, key, flags of the write, operation, priority, file, buffer, bytes, offset, 0, flags,
eventfd: `struct iocb` of linux/aio_abi.h on a little-endian machine."""
_EVENT: Final = struct.Struct("=QQqq")
_PWRITE: Final = 1
_RESULT_BY_EVENTFD: Final = 1
_RWF_DSYNC: Final = 2
_ONE: Final = ctypes.c_long(1)
REFUSALS: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)
"""Not this way: the file system, the kernel or a sandbox knows no such writes."""
LATER: Final = (errno.EAGAIN, errno.EINTR)
"""Not now: limits of the machine (fs.aio-max-nr) or of the device's queue."""


class KernelWrites:
    """One write at a time. `supported` turns False for good when it is refused."""

    def __init__(self) -> None:
        numbers = _NUMBERS.get(platform.machine())
        self.supported = numbers is not None
        self.under_way = False
        self._setup, self._destroy, self._getevents, self._submit = map(
            ctypes.c_long, numbers or (-1, -1, -1, -1)
        )
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._list = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._event = ctypes.create_string_buffer(_EVENT.size)

    def __del__(self) -> None:
        if self._context.value:  # waits for what is under way: the memory it is written from goes
            self._call(self._destroy, self._context)

    def begin(self, descriptor: int, address: int, size: int, offset: int, eventfd: int) -> bool:
        """Write `size` bytes at `address`, aligned for a direct write, and make them durable.

        The memory must stay as it is until `result` has said how it ended; `eventfd` is set when
        there is something to say. False: nothing has begun.

        Raises:
            OSError: the device failed.
        """
        assert not self.under_way, "one write at a time"
        if not self.supported or not (self._context.value or self._set_up()):
            return False
        _IOCB.pack_into(
            self._iocb,
            0,
            *(0, 0, _RWF_DSYNC, _PWRITE, 0, descriptor),
            *(address, size, offset, 0, _RESULT_BY_EVENTFD, eventfd),
        )
        self.under_way = self._call(self._submit, self._context, _ONE, self._list) == 1
        if not self.under_way:
            self._refused(ctypes.get_errno())
        return self.under_way

    def result(self, wait_s: float = 0.0) -> int | None:
        """How many bytes are durable, or a negative errno; None if it is not over."""
        assert self.under_way, "nothing was begun"
        wait = struct.pack("=qq", int(wait_s), int(wait_s % 1 * 1e9))
        came = self._call(self._getevents, self._context, _ONE, _ONE, self._event, wait)
        if came != 1:
            return None
        self.under_way = False
        result: int = _EVENT.unpack(self._event.raw)[2]
        if -result in REFUSALS:
            self.supported = False
        return result

    def _set_up(self) -> bool:
        if self._call(self._setup, _ONE, ctypes.byref(self._context)) == 0:
            return True
        self._refused(ctypes.get_errno())
        return False

    def _refused(self, number: int) -> None:
        if number in REFUSALS:
            self.supported = False
        elif number not in LATER:
            raise OSError(number, os.strerror(number))
