"""The owner of a directory: boots are counted durably, and another node's directory is never
used."""

import errno
from itertools import product
from pathlib import Path

import pytest
from crc32c import crc32c

from paxos.ids import Incarnation, NodeId
from storage.disk.files import RealDisk
from storage.disk.memory import MemoryDisk, PowerCut
from storage.errors import DirectoryLocked, DirectoryRefused, StorageFailed
from storage.identity import (
    FORMAT_VERSION,
    IDENTITY_COPY_NAME,
    IDENTITY_NAME,
    WITH_CLUSTER_VERSION,
    Identity,
    boot,
    mark_cluster_version,
    mark_log_created,
)
from storage.lives import NEVER_ADMITTED, read_lives, write_lives
from wire.software import CLUSTER_VERSION_NEWEST

NODE = NodeId(3)


def boot_again(disk: MemoryDisk | RealDisk) -> Identity:
    disk.close()
    return boot(RealDisk(disk.directory) if isinstance(disk, RealDisk) else disk, "c", NODE)


def test_every_boot_has_a_higher_incarnation(tmp_path: Path) -> None:
    for disk in (MemoryDisk(), RealDisk(tmp_path)):
        first = boot(disk, "c", NODE)
        assert (first.node, first.incarnation, first.has_log) == (NODE, 1, False)
        mark_log_created(disk, first)
        second = boot_again(disk)
        assert second == Identity("c", NODE, Incarnation(2), has_log=True, previous=NEVER_ADMITTED)


def test_two_processes_cannot_boot_in_one_directory(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    boot(disk, "c", NODE)
    with pytest.raises(DirectoryLocked):
        boot(RealDisk(tmp_path), "c", NODE)
    disk.close()


@pytest.mark.parametrize(("cluster", "node"), [("other", 3), ("c", 4)])
def test_a_directory_of_someone_else_is_refused(cluster: str, node: int) -> None:
    disk = MemoryDisk()
    boot(disk, "c", NODE)
    disk.close()
    with pytest.raises(DirectoryRefused, match="belongs to node 3 of cluster 'c'"):
        boot(disk, cluster, NodeId(node))


def written_by(version: int) -> MemoryDisk:
    """A directory as left by a program with this format."""
    disk = MemoryDisk()
    boot(disk, "c", NODE)
    text = disk.content(IDENTITY_NAME).partition(b"crc32c")[0]
    text = text.replace(b"format %d" % FORMAT_VERSION, b"format %d" % version)
    for name in (IDENTITY_NAME, IDENTITY_COPY_NAME):
        disk.open(name).pwritev([text + b"crc32c %08x\n" % crc32c(text)], 0)
    disk.close()
    return disk


def test_a_later_format_is_refused() -> None:
    with pytest.raises(DirectoryRefused, match="reads format 4 and those before"):
        boot(written_by(WITH_CLUSTER_VERSION + 1), "c", NODE)


def raised(disk: MemoryDisk, version: int) -> None:
    mark_log_created(disk, boot(disk, "c", NODE))
    mark_cluster_version(disk, version)
    disk.close()


def test_a_cluster_version_is_named_and_survives_starts() -> None:
    """Programs of before there were cluster versions refuse the format, with their own words."""
    disk = MemoryDisk()
    raised(disk, CLUSTER_VERSION_NEWEST)
    for incarnation in (2, 3):
        identity = boot(disk, "c", NODE)
        assert identity.cluster_version == CLUSTER_VERSION_NEWEST
        assert (identity.incarnation, identity.has_log) == (incarnation, True)
        assert disk.content(IDENTITY_NAME).startswith(b"evenkeel data directory, format 4\n")
        mark_cluster_version(disk, 1)  # it never falls
        disk.close()


def test_a_directory_of_the_first_cluster_version_is_as_programs_of_before_wrote_it() -> None:
    disk = MemoryDisk()
    boot(disk, "c", NODE)
    assert disk.content(IDENTITY_NAME).startswith(b"evenkeel data directory, format 3\n")
    assert b"cluster-version" not in disk.content(IDENTITY_NAME)


def test_a_cluster_version_that_is_too_new_is_refused_with_what_to_do() -> None:
    disk = MemoryDisk()
    raised(disk, CLUSTER_VERSION_NEWEST + 7)
    with pytest.raises(DirectoryRefused) as refused:
        boot(disk, "c", NODE)
    assert f"is of cluster version {CLUSTER_VERSION_NEWEST + 7}, which never falls" in str(
        refused.value
    )
    reads = f"reads cluster versions 1 to {CLUSTER_VERSION_NEWEST}: start the node with the version"
    assert reads in str(refused.value)


def test_the_fourth_format_without_a_cluster_version_is_damage() -> None:
    with pytest.raises(DirectoryRefused, match="damaged"):
        boot(written_by(WITH_CLUSTER_VERSION), "c", NODE)


@pytest.mark.parametrize("version", range(1, FORMAT_VERSION))
def test_an_earlier_format_is_read_and_the_program_that_wrote_it_is_shut_out_at_once(
    version: int,
) -> None:
    """The new rules allow a batch that the old ones do not: so the directory shows the new format
    before the node sends anything."""
    disk = written_by(version)
    assert boot(disk, "c", NODE).incarnation == 2
    for name in (IDENTITY_NAME, IDENTITY_COPY_NAME):
        assert disk.content(name).startswith(
            b"evenkeel data directory, format %d\n" % FORMAT_VERSION
        )


@pytest.mark.parametrize(("renames", "incarnation"), [(0, 2), (1, 2), (2, 3)])
def test_a_boot_may_stop_between_two_formats(renames: int, incarnation: int) -> None:
    disk = written_by(1)
    disk.stop("rename", after=renames)
    with pytest.raises(PowerCut):
        boot(disk, "c", NODE)
    disk.crash(lambda: True)
    assert boot(disk, "c", NODE).incarnation == incarnation


def test_every_flipped_bit_and_every_truncation_of_one_file_is_mended() -> None:
    """The other file has the same contents; the boot writes both anew."""
    disk = MemoryDisk()
    boot(disk, "c", NODE)
    for name in (IDENTITY_NAME, IDENTITY_COPY_NAME):
        size = len(disk.content(name))
        for at in range(size):
            for mask in (1, 2, 4, 8, 16, 32, 64, 128):
                damaged = disk.clone()
                damaged.corrupt(name, at, mask)
                identity = boot(damaged, "c", NODE)
                assert (identity.incarnation, identity.damaged) == (2, (name,))
                assert not boot_again(damaged).damaged
            cut = disk.clone()
            cut.truncate(name, at)
            assert boot(cut, "c", NODE).incarnation == 2


def test_damage_to_both_files_is_refused() -> None:
    disk = MemoryDisk()
    boot(disk, "c", NODE)
    for name in (IDENTITY_NAME, IDENTITY_COPY_NAME):
        disk.corrupt(name, 50, 1)
    with pytest.raises(DirectoryRefused, match="damaged"):
        boot(disk.clone(), "c", NODE)


def test_the_clock_takes_the_incarnation_past_what_the_directory_remembers() -> None:
    """A directory that was rolled back must not repeat incarnations of its lost future."""
    disk = MemoryDisk()
    identity = boot(disk, "c", NODE, first=1_000)
    write_lives(disk, read_lives(disk).started(identity.incarnation, identity.incarnation))
    old = disk.clone()
    assert boot_again(disk).incarnation == 1_001
    identity = boot(old, "c", NODE, first=1_500)
    assert (identity.incarnation, identity.previous) == (1_500, 1_000)
    assert boot(old.clone(), "c", NODE, first=3).incarnation == 1_501, "a clock set back is ignored"


def test_a_log_without_an_identity_is_refused() -> None:
    disk = MemoryDisk()
    disk.create("segment-0000000001.wal")
    with pytest.raises(DirectoryRefused, match="nobody knows whose"):
        boot(disk, "c", NODE)


def test_a_boot_that_fails_or_crashes_anywhere_never_repeats_an_incarnation() -> None:
    """Wherever the machine stops, the next successful boot is above every earlier one."""
    disk = MemoryDisk()
    highest = boot(disk, "c", NODE).incarnation
    for keep in (True, False):
        for operation in ("open", "write", "fdatasync", "rename", "fsync"):
            for failure, after in product((errno.EIO, None), (0, 1)):
                disk.crash(lambda: True)
                if failure is None:
                    disk.stop(operation, after=after)
                else:
                    disk.fail(operation, failure, after=after)
                with pytest.raises((StorageFailed, PowerCut)):
                    boot(disk, "c", NODE)
                disk.crash(lambda keep=keep: keep)
                incarnation = boot(disk, "c", NODE).incarnation
                assert incarnation > highest
                highest = incarnation


@pytest.mark.parametrize("cluster", ["", "x" * 65, "two\nlines", "ü"])
def test_a_cluster_id_is_short_and_printable(cluster: str) -> None:
    with pytest.raises(ValueError, match="printable"):
        boot(MemoryDisk(), cluster, NODE)
