"""Linux's asynchronous I/O by ctypes: what the kernel reads or writes while the caller goes on.

The C library does not wrap these system calls; `io_submit` of a direct read or write costs about
15 us. See io_submit(2) and, for what is packed here, linux/aio_abi.h.
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
_RESULT_BY_EVENTFD: Final = 1
_ONE: Final = ctypes.c_long(1)
READ: Final = 0
WRITE: Final = 1
REFUSALS: Final = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)
"""Not this way: the file system, the kernel or a sandbox knows no such I/O."""
LATER: Final = (errno.EAGAIN, errno.EINTR)
"""Not now: limits of the machine (fs.aio-max-nr) or of the device's queue."""


class KernelQueue:
    """Up to `depth` operations at a time. `supported` turns False for good when one is refused."""

    def __init__(self, depth: int) -> None:
        numbers = _NUMBERS.get(platform.machine())
        self.supported = numbers is not None
        self._depth = ctypes.c_long(depth)
        self._setup, self._destroy, self._getevents, self._submit = map(
            ctypes.c_long, numbers or (-1, -1, -1, -1)
        )
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._context = ctypes.c_ulong(0)
        self._iocb = ctypes.create_string_buffer(_IOCB.size)
        self._list = (ctypes.c_void_p * 1)(ctypes.addressof(self._iocb))
        self._event = ctypes.create_string_buffer(_EVENT.size)

    def __del__(self) -> None:
        if self._context.value:  # waits for what is under way: the memory it works on goes
            self._call(self._destroy, self._context)

    def submit(
        self,
        operation: int,
        flags: int,
        descriptor: int,
        memory: tuple[int, int],
        offset: int,
        *,
        number: int = 0,
        eventfd: int = -1,
    ) -> bool:
        """Begin to READ into or WRITE from `memory` (address and bytes), aligned for direct I/O.

        The memory must stay until `completed` has told `number`; so that somebody asks, `eventfd`
        is set then, if there is one. False: nothing has begun.

        Raises:
            OSError: the device failed.
        """
        if not self.supported or not (self._context.value or self._set_up()):
            return False
        address, size = memory
        by_eventfd = (_RESULT_BY_EVENTFD, eventfd) if eventfd >= 0 else (0, 0)
        _IOCB.pack_into(
            self._iocb,
            0,
            *(number, 0, flags, operation, 0, descriptor),
            *(address, size, offset, 0, *by_eventfd),
        )
        begun: bool = self._call(self._submit, self._context, _ONE, self._list) == 1
        if not begun:
            self._refused(ctypes.get_errno())
        return begun

    def completed(self, wait_s: float = 0.0) -> tuple[int, int] | None:
        """The number of one operation that is over, and how many bytes were read or written, or a
        negative errno; None if there is none within `wait_s` seconds."""
        wait = struct.pack("=qq", int(wait_s), int(wait_s % 1 * 1e9))
        came = self._call(self._getevents, self._context, _ONE, _ONE, self._event, wait)
        if came != 1:
            return None
        number, _, result, _ = _EVENT.unpack(self._event.raw)
        if -result in REFUSALS:
            self.supported = False
        return number, result

    def _set_up(self) -> bool:
        if self._call(self._setup, self._depth, ctypes.byref(self._context)) == 0:
            return True
        self._refused(ctypes.get_errno())
        return False

    def _refused(self, number: int) -> None:
        if number in REFUSALS:
            self.supported = False
        elif number not in LATER:
            raise OSError(number, os.strerror(number))
