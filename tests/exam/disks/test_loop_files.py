"""The event loop touches no file while a node serves: strace shows it."""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from cluster import health
from cluster.launcher import Launcher
from tests.cluster.scenery import (
    FULL,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    three_nodes,
    until,
)
from tests.cluster.trimmed import SHORT_LOG
from tests.doses import ONLY_IN_FULL
from tests.exam.disks.loop_calls import LoopCalls, touched, while_serving

RATE = 800
PAGES = ("/livez", "/readyz", "/metrics", "/status", "/console")


@pytest.mark.cluster
@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_nodes_whole_life(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    seen: Counter[tuple[str, str]] = Counter()
    async with three_nodes(tmp_path, *SHORT_LOG) as cluster:
        watched = {node: watch(cluster, node, tmp_path) for node in (1, 2, 3)}
        async with load(cluster, "steady", rate=RATE, pad_bytes=4000) as producer:
            await acknowledged(producer, 500)
            await in_thread(partial(pages, cluster))
            seen += watched.pop(3).end()
            await cluster.kill(3)
            await acknowledged(producer, 300)
            cluster.start(3)
            watched[3] = watch(cluster, 3, tmp_path)
            await cluster.wait_ready(3)
            await acknowledged(producer, 300)
        await until(cluster, everything_has_a_master, "every group has a master")
        await judge(cluster, producer)
        for one in watched.values():
            seen += one.end()
    assert not seen, "\n".join(map(str, seen))


def watch(cluster: Launcher, node: int, directory: Path) -> LoopCalls:
    pid = cluster.pid_of(node)
    try:
        return LoopCalls(pid, directory / f"loop-{pid}.strace")
    except RuntimeError as refused:
        pytest.skip(f"processes may not be watched here: {refused}")


def pages(cluster: Launcher) -> None:
    for node in cluster.spec.nodes:
        for path in PAGES:
            health.request(node.http, "GET", path, timeout_s=10)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            'openat(AT_FDCWD</x>, "/data/lock", O_RDONLY) = 3',
            ("openat", "/data/lock"),
        ),
        ('openat(AT_FDCWD</x>, "/proc/self/statm", O_RDONLY) = 3</proc/1/statm>', None),
        ('write(2</data/node-1.log>, "{}", 2) = 2', ("write", "/data/node-1.log")),
        ("fdatasync(7</data/synced>)    = 0", ("fdatasync", "/data/synced")),
        ("close(7</data/segment-1.wal>) = 0", ("close", "/data/segment-1.wal")),
        ("close(25<socket:[7450492]>)   = 0", None),
        ('read(5<anon_inode:[eventfd]>, "", 8) = 8', None),
        (
            "io_submit(0x7f, 1, [{aio_fildes=5</data/segment-1.wal>}]) = 1",
            ("io_submit", "/data/segment-1.wal"),
        ),
        ("fancy_new_call(1, 2)          = 0", ("fancy_new_call", "")),
        (
            'pwritev(9</data/synced>, [{iov_base="x", iov_len=12}], 1, 512) = 12',
            ("pwritev", "/data/synced"),
        ),
        (
            'preadv2(9</data/segment-1.wal>, [{iov_base="x", iov_len=9}], 1, 7, RWF_NOWAIT) = 9',
            None,
        ),
        (
            "preadv2(9</data/segment-1.wal>, [{iov_len=9}], 1, 7, 0) = 9",
            ("preadv2", "/data/segment-1.wal"),
        ),
        ("--- SIGTERM {si_signo=SIGTERM} ---", None),
        ("getpid() = 28101", None),
    ],
)
def test_what_counts_as_a_touch(line: str, expected: tuple[str, str] | None) -> None:
    assert touched(line) == expected


def test_what_happens_before_and_after_it_serves_is_left_out() -> None:
    """A start reads the log, and a stop may wait for the disk."""
    lines = [
        'openat(AT_FDCWD</x>, "/before", O_RDONLY) = 3',
        "listen(5<socket:[1]>, 4096) = 0",
        'openat(AT_FDCWD</x>, "/between", O_RDONLY) = 3',
        "listen(6<socket:[2]>, 4096) = 0",
        'openat(AT_FDCWD</x>, "/while", O_RDONLY) = 3',
        "rt_sigaction(SIGTERM, {sa_handler=SIG_DFL, sa_mask=[]}, NULL, 8) = 0",
        'openat(AT_FDCWD</x>, "/after", O_RDONLY) = 3',
    ]
    found = [one for one in map(touched, while_serving(lines)) if one is not None]
    assert found == [("openat", "/while")]
    assert [touched(line) for line in while_serving(lines[4:5])] == [("openat", "/while")]
