"""Which files the event loop's thread touches, as the kernel sees it.

strace is attached to that one thread (its number is the process's). It sees every system call of
the thread, whoever makes it: Python's `open` and `os`, `logging` and `print`, a late import, a C
library, ctypes. Each call is judged, and one of an unknown kind is reported, so a new way to the
disk cannot slip through. Hooks at the level of `os` (sys.addaudithook, patches of `os`) see less:
no pread, no fsync, nothing from C.

Two things it does not see: a page fault on a mapped file (code of a library that was paged out),
and another thread that waits for the disk while the loop waits for it (a lock). test_hung_disks.py
finds the second, on a disk that really hangs. And it sees only code that runs while it watches.
"""

import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

FOLLOWS_S: Final = 10.0
_NO_FILES: Final = """
    brk mmap munmap mremap mprotect madvise futex clone clone3 set_robust_list rseq gettid getpid
    getppid getrandom clock_gettime clock_nanosleep nanosleep sched_yield sched_getaffinity
    rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack restart_syscall tgkill prctl getrusage
    prlimit64 sysinfo uname exit exit_group wait4 membarrier getuid geteuid getgid getegid
    socket socketpair bind listen accept4 accept connect getsockname getpeername getsockopt
    setsockopt shutdown sendto sendmsg recvfrom recvmsg epoll_create1 epoll_ctl epoll_wait
    epoll_pwait epoll_pwait2 poll ppoll select pselect6 eventfd2 pipe2 pidfd_open signalfd4
    io_uring_setup io_uring_enter io_uring_register
"""
NO_FILES: Final = frozenset(_NO_FILES.split())
"""Memory, threads, time, the process itself; sockets and readiness; and the log's writes, which all
have IOSQE_ASYNC (tests/storage/disk/test_kernel_writes.py)."""
NO_DISK: Final = ("socket:", "pipe:", "anon_inode:", "TCP", "UNIX", "/proc/", "/sys/", "/dev/null")
"""Kinds of descriptors that never wait for a disk."""
_CALL: Final = re.compile(r"^(?:\d+ +)?(\w+)\((.*)$")
_OF_DESCRIPTOR: Final = re.compile(r"(?:^|[ \[{=])(-?\d+|AT_FDCWD)<([^>]*)>")
_NEVER_WAITS: Final = re.compile(r", RWF_NOWAIT\)")
"""A read from the page cache, or nothing."""
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)"')
_BY_PATH: Final = re.compile(
    r"^(open|openat|openat2|creat|stat|lstat|newfstatat|statx|access|faccessat2?|readlink|"
    r"readlinkat|unlink|unlinkat|rename|renameat2?|mkdir|mkdirat|rmdir|statfs|truncate|chmod|"
    r"fchmodat|link|linkat|symlink|symlinkat|chdir|execve|utimensat|getcwd|mknodat)$"
)


def touched(line: str) -> tuple[str, str] | None:
    """The call and the file of a line of `strace -y`, or None if it has nothing to do with a
    disk."""
    found = _CALL.match(line)
    if found is None:
        return None
    name, rest = found.groups()
    if name in NO_FILES or (name == "preadv2" and _NEVER_WAITS.search(rest)):
        return None
    if _BY_PATH.match(name):
        quoted = _QUOTED.search(rest)
        path = quoted.group(1) if quoted is not None else ""
        if path.startswith("/") or not _OF_DESCRIPTOR.search(rest):
            return None if path.startswith(NO_DISK) else (name, path)
    files = [path for _, path in _OF_DESCRIPTOR.findall(rest.partition(") = ")[0])]
    if files and all(path.startswith(NO_DISK) for path in files):
        return None
    return name, " ".join(files)


def while_serving(lines: Iterable[str]) -> Iterator[str]:
    """From the opening of the last port to the end of the loop; from the first line if the watch
    began later."""
    kept: list[str] = []
    for line in lines:
        if (
            " SIGTERM, {sa_handler=SIG_DFL" in line
            or "rt_sigaction(SIGTERM, {sa_handler=SIG_DFL" in line
        ):
            break
        if re.match(r"^(?:\d+ +)?listen\(", line):
            kept.clear()
        kept.append(line)
    yield from kept


class LoopCalls:
    """Watches the main thread of one process until `end`, or until the process has ended."""

    def __init__(self, pid: int, out: Path) -> None:
        self._out = out
        command = ("strace", "-y", "-s", "300", "-o", str(out), "-p", str(pid))
        quiet = "epoll_wait,epoll_ctl,futex,recvfrom,sendto,sendmsg,recvmsg,clock_gettime,madvise"
        self._process = subprocess.Popen(
            [*command, "-e", f"trace=!{quiet}"], stderr=subprocess.PIPE, text=True
        )
        stderr = self._process.stderr
        assert stderr is not None
        said = stderr.readline()
        if "attached" not in said:
            raise RuntimeError(f"strace: {said or self._process.wait(FOLLOWS_S)}")

    def end(self) -> Counter[tuple[str, str]]:
        """What was touched while the node served, and how often."""
        self._process.terminate()
        self._process.communicate(timeout=FOLLOWS_S)
        with self._out.open(errors="replace") as lines:
            found = map(touched, while_serving(lines))
            return Counter(one for one in found if one is not None)


def main(pid: str, seconds: str) -> None:
    """`python -m tests.exam.disks.loop_calls PID SECONDS` watches any running node."""
    calls = LoopCalls(int(pid), Path(f"loop-calls-{pid}.strace"))
    time.sleep(float(seconds))
    for (name, path), count in calls.end().most_common():
        sys.stdout.write(f"{count} {name} {path}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
