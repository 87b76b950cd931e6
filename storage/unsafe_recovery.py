"""An operator's order that groups vote again although they may have forgotten promises.

It is a file in the directory. The next start takes it, removes it first, and carries it out once:
docs/operations.md, "Recovering with a loss".
"""

from collections.abc import Collection
from typing import Final

from paxos.ids import GroupId
from storage.disk.files import Disk, read_around, write_all
from storage.errors import DirectoryRefused

UNSAFE_NAME: Final = "unsafe-recover"
_TEMPORARY_NAME: Final = "unsafe-recover.tmp"
_TITLE: Final = "evenkeel unsafe-recover 1\n"
_BYTES_MAX: Final = 64 * 1024


def give_order(disk: Disk, groups: Collection[GroupId]) -> None:
    if _TEMPORARY_NAME in disk.names():
        disk.remove(_TEMPORARY_NAME)
    file = disk.create(_TEMPORARY_NAME)
    text = _TITLE + " ".join(map(str, sorted(groups))) + "\n"
    write_all(file, [text.encode()], 0)
    file.fdatasync()
    disk.rename(_TEMPORARY_NAME, UNSAFE_NAME)
    disk.sync_directory()


def take_order(disk: Disk) -> frozenset[GroupId]:
    """The groups that the order names; it is removed.

    Raises:
        DirectoryRefused: it is not what `give_order` has written.
    """
    if UNSAFE_NAME not in disk.names():
        return frozenset()
    file = disk.open(UNSAFE_NAME)
    text = read_around(file, min(file.size(), _BYTES_MAX), 0).decode("ascii", "replace")
    words = text.removeprefix(_TITLE).split()
    if not text.startswith(_TITLE) or not all(map(str.isdecimal, words)):
        raise DirectoryRefused(f"the file {UNSAFE_NAME!r} is no order that was given: remove it")
    disk.remove(UNSAFE_NAME)
    disk.sync_directory()
    return frozenset(GroupId(int(word)) for word in words)
