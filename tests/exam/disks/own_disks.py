"""A file system of its own for each node, in a file: a test can freeze it or slow it down."""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs
import pytest

from cluster.launcher import Command, node_command
from cluster.spec import ClusterSpec

IMAGE_BYTES: Final = 320 << 20
TOOLS: Final = ("mkfs.ext4", "mount", "umount", "fsfreeze")
BLKIO: Final = Path("/sys/fs/cgroup/blkio")


@attrs.define
class OwnDisk:
    """The disk of one node; all that was done to it is undone when the test ends."""

    node: int
    mounted: Path
    frozen: bool = False
    _limits: Path | None = None

    def freeze(self) -> None:
        """Every write blocks, by whatever call; a blocked process cannot even be killed."""
        run("fsfreeze", "-f", str(self.mounted))
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            run("fsfreeze", "-u", str(self.mounted))
            self.frozen = False

    def limit(self, pid: int, writes_per_s: int) -> None:
        """Limits this process to that many writes a second."""
        if not os.access(BLKIO, os.W_OK):
            pytest.skip("there is no blkio cgroup to be had here")
        device = os.stat(self.mounted).st_dev
        self._limits = BLKIO / f"evenkeel-{os.getpid()}-{self.node}"
        self._limits.mkdir()
        rule = f"{os.major(device)}:{os.minor(device)} {writes_per_s}"
        (self._limits / "blkio.throttle.write_iops_device").write_text(rule)
        (self._limits / "cgroup.procs").write_text(str(pid))

    def lift(self) -> None:
        if self._limits is not None:
            for pid in (self._limits / "cgroup.procs").read_text().split():
                (BLKIO / "cgroup.procs").write_text(pid)
            self._limits.rmdir()
            self._limits = None


@contextmanager
def own_disks(directory: Path, nodes: Sequence[int]) -> Iterator[dict[int, OwnDisk]]:
    """Skips the test, with a reason, where this needs rights that we do not have."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount and freeze file systems")
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    disks: dict[int, OwnDisk] = {}
    try:
        for node in nodes:
            disks[node] = OwnDisk(node, made(directory, node))
        yield disks
    finally:
        for disk in disks.values():
            disk.thaw()
            disk.lift()
            run("umount", "--lazy", str(disk.mounted))


def made(directory: Path, node: int) -> Path:
    image, mounted = directory / f"disk-{node}.img", directory / f"disk-{node}"
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    mounted.mkdir()
    run("mkfs.ext4", "-q", "-F", str(image))
    try:
        run("mount", "-o", "loop", str(image), str(mounted))
    except subprocess.CalledProcessError as refused:
        pytest.skip(f"a file cannot be mounted here: {refused.stderr.strip()}")
    return mounted


def run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


def command_on(disks: dict[int, OwnDisk]) -> Command:
    """Nodes with their data and all their output on these disks."""

    def command(spec: ClusterSpec, node: int, overrides: Sequence[str]) -> list[str]:
        mounted = disks[node].mounted
        words = node_command(spec, node, [*overrides, f"node.data_dir={mounted / 'data'}"])
        return ["/bin/sh", "-c", 'exec "$@" 2>>"$0"', str(mounted / "said.log"), *words]

    return command
