"""Which lives of a node used a directory, and which life it must begin after.

`identity` counts the starts. Two more facts decide whether a directory is the one that the peers
know (runtime.membership.admission), and both must survive a crash:

* *Which life was admitted last.* A start that reached nobody says nothing about the directory. If
  it counted as the directory's past, an old copy would pass for the real one at its second start:
  its first one has a later number than every life that the peers have registered. So each start is
  noted with the life admitted before it, and a node registers only when its admission is noted.
  So a directory that nobody has admitted yet says so at every start (`NEVER_ADMITTED`): whatever is
  registered of its node was registered from another directory.
* *Which life the peers know*, where that is later than this one: a wall clock that was far ahead,
  then an old copy of the directory, or an empty one. The next start begins above that number,
  instead of being refused until the clock has caught up.

The file is replaced as a whole. A damaged file is as good as none: then the last start counts as
admitted, as it did before there was this file.
"""

from typing import Final

import attrs
from crc32c import crc32c

from paxos.ids import INCARNATION_MAX, INCARNATION_ZERO, Incarnation
from storage.disk.files import Disk, read_around, write_all

LIVES_NAME: Final = "lives"
_TEMPORARY_NAME: Final = "lives.tmp"
_TITLE: Final = "evenkeel lives 1"
_BYTES_MAX: Final = 1024
BELIEVED_MAX: Final = INCARNATION_MAX // 2
"""The latest life that is believed of peers: enough numbers are left for every later start."""
NEVER_ADMITTED: Final = Incarnation(1)
"""The past of a directory that has been started, and that nobody has admitted: before every life
that a node registers, because those follow the wall clock."""


@attrs.frozen
class Lives:
    """`starts`: the last two starts, each with the life admitted last (0: none, or not known).

    Two, because a boot may end between this file and `identity`, which names the start that counts.
    """

    starts: tuple[tuple[Incarnation, Incarnation], ...] = ()
    above: Incarnation = INCARNATION_ZERO
    """A later life must begin above this one."""

    def admitted_before(self, life: Incarnation) -> Incarnation:
        """The life admitted last, for a directory whose last start was `life`.

        A directory that nobody has admitted yet may hold a log all the same: the node voted and
        crashed before its admission was noted, or it was told that it has forgotten what it
        promised, and noted that for some of its groups. An older program does not write this file:
        then the last start is what is known.
        """
        admitted = dict(self.starts).get(life)
        return life if admitted is None else admitted or NEVER_ADMITTED

    def started(
        self, life: Incarnation, admitted: Incarnation, last: Incarnation | None = None
    ) -> "Lives":
        """With one more start, or its admission. `last`: the start that `identity` names; those
        after it never came to be, and must not take its place here."""
        earlier = [start for start in self.starts if start[0] != life and last in (None, start[0])]
        return attrs.evolve(self, starts=(*earlier[-1:], (life, admitted)))


def read_lives(disk: Disk) -> Lives:
    if LIVES_NAME not in disk.names():
        return Lives()
    return _decode(read_around(disk.open(LIVES_NAME), _BYTES_MAX, 0)) or Lives()


def write_lives(disk: Disk, lives: Lives) -> None:
    """Replace the file as a whole; it is durable afterwards.

    Raises:
        StorageFailed: the disk fails.
        DiskFull: the file is as it was.
    """
    if _TEMPORARY_NAME in disk.names():
        disk.remove(_TEMPORARY_NAME)
    file = disk.create(_TEMPORARY_NAME)
    write_all(file, [_encode(lives)], 0)
    file.fdatasync()
    disk.rename(_TEMPORARY_NAME, LIVES_NAME)
    disk.sync_directory()


def _encode(lives: Lives) -> bytes:
    rows = [f"start {life} admitted {admitted}" for life, admitted in lives.starts]
    text = "\n".join([_TITLE, *rows, f"above {lives.above}", ""]).encode()
    return text + f"crc32c {crc32c(text):08x}\n".encode()


def _decode(data: bytes) -> Lives | None:
    """Read it back. Only the very bytes that `_encode` makes are accepted, so any flip is found."""
    try:
        _title, *rows, above, _ = data.decode("ascii").splitlines()
        starts = tuple(
            (Incarnation(int(life)), Incarnation(int(admitted)))
            for _, life, _, admitted in (row.split(" ") for row in rows)
        )
        lives = Lives(starts, Incarnation(int(above.removeprefix("above "))))
    except ValueError:
        return None
    return lives if data == _encode(lives) and lives.above <= BELIEVED_MAX else None
