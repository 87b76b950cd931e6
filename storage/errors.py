"""What can go wrong with a node's files. The shell reacts differently to each class.

`StorageFailed`: the disk failed a write or an fsync; never retried, because after a failed fsync
the kernel may have dropped the very pages that a second fsync would then report as safe
("fsyncgate", PostgreSQL 2018). `DiskFull` is the case that an operator can remedy.
`WalDamaged`: the disk does not hold what was written; a read that meets it is not answered, and a
restart raises it only if it cannot tell what was lost. `DirectoryRefused`: the files are fine, but
not ours to use.
"""

import errno
from typing import Final

from paxos.ids import GroupId, Slot
from storage.format import Place, place_of, segment_number

UNREADABLE: Final = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)
"""What a disk, or a file system with checksums, answers when it has lost what was written."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT)


class StorageError(Exception):
    """Any refusal or failure of this package."""


class StorageFailed(StorageError):
    """An operation on a file failed: the node stops (exit code 74) and does not try again."""

    def __init__(self, operation: str, file: str, error: OSError) -> None:
        super().__init__(f"{operation} of {file} failed: {error}")
        self.operation = operation
        self.file = file
        self.errno = error.errno


class DiskFull(StorageFailed):
    """No space (ENOSPC, EDQUOT). From `prepare_next` it is harmless: free space and go on."""


class NoSegment(StorageError):
    """The disk is too full for the next segment's file.

    Nothing of the batch was written beyond the border, so the same batch may be written again once
    there is room. That is not true of a write that failed.
    """

    def __init__(self, full: DiskFull) -> None:
        super().__init__(str(full))
        self.full = full


class WalDamaged(StorageError):
    """The log does not hold what was written to it; `file` and `byte` say where.

    `group` and `slot` are given if known, for a repair from peers.
    """

    def __init__(
        self,
        file: str,
        byte: int,
        what: str,
        *,
        group: GroupId | None = None,
        slot: Slot | None = None,
    ) -> None:
        whose = "" if group is None else f" (group {group}, slot {slot})"
        super().__init__(
            f"{file}, byte {byte}{whose}: {what}. This node cannot vouch for what it has promised "
            "and accepted. Keep the directory for examination and do not edit it; restore the file "
            "from an exact copy taken after the node stopped, or let the node rejoin with an empty "
            "directory as a new member that learns from its peers"
        )
        self.file = file
        self.byte = byte
        self.what = what
        self.group = group
        self.slot = slot

    @property
    def place(self) -> Place:
        return place_of(segment_number(self.file) or 0, self.byte)


class ColdDamaged(StorageError):
    """A partition's cold data from offset `base` to `end` is not what was written."""

    def __init__(self, uid: int, base: int, end: int, file: str, byte: int) -> None:
        super().__init__(
            f"{file}, byte {byte}: offsets {base} to {end} of partition {uid} are damaged"
        )
        self.uid, self.base, self.end = uid, base, end
        self.file, self.byte = file, byte


class DirectoryRefused(StorageError):
    """The directory belongs to another node, cluster or format version, or is incomplete."""


class DirectoryLocked(DirectoryRefused):
    """Another process is using the directory."""


class NotInLog(StorageError, LookupError):
    """The slot or position is not in the log: never written here, or retired with its segment."""


def storage_failed(operation: str, file: str, error: OSError) -> StorageFailed:
    kind = DiskFull if error.errno in _FULL else StorageFailed
    return kind(operation, file, error)
