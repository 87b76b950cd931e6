"""Who this directory belongs to, and how often its node has booted.

The incarnation is durable before the node says anything (docs/protocol.md, "Model"),
for a lease is held by (node, incarnation) and a takeover happens once per incarnation (R6, R11).
The file is replaced as a whole (temporary file, fsync, rename, fsync of the directory). It is text,
so that an operator can read it, and it has a checksum that reveals a flipped digit.

There are two copies. `identity.copy` is written first, so it is never behind, and a boot that ended
between the two has said nothing to anybody: whichever is intact may be used.
"""

from functools import partial
from typing import Final

import attrs
from crc32c import crc32c

from paxos.ids import INCARNATION_MAX, INCARNATION_ZERO, Incarnation, NodeId
from storage.disk.files import Disk, read_around, write_all
from storage.disk.space import write_with_reserve
from storage.errors import DirectoryRefused
from storage.format import CLUSTER_BYTES_MAX, SEGMENT_SUFFIX
from storage.lives import Lives, read_lives, write_lives
from wire.software import (
    CLUSTER_VERSION_BASE,
    CLUSTER_VERSION_NEWEST,
    CLUSTER_VERSION_OLDEST,
    VERSION,
)

IDENTITY_NAME: Final = "identity"
IDENTITY_COPY_NAME: Final = "identity.copy"
_TEMPORARY_NAME: Final = "identity.tmp"
IDENTITY_BYTES_MAX: Final = 1024
FORMAT_VERSION: Final = 3
"""Of the directory as a whole: raised when an older program could read every byte but would
interpret it differently. 2: partitions judge write tokens (ADR 28). 3: commands say what they were
decided on (ADR 33)."""
WITH_CLUSTER_VERSION: Final = 4
"""The same from cluster version 2 on, which it names: a program that cannot read what is in the
directory must say so, before it reads anything else."""
READABLE_VERSIONS: Final = (1, 2, 3, WITH_CLUSTER_VERSION)
_TITLE: Final = b"evenkeel data directory, format "
_TITLES: Final = [_TITLE + b"%d" % version for version in READABLE_VERSIONS]


def _check_cluster(_self: object, _field: object, value: str) -> None:
    if not value.isascii() or not value.isprintable() or not 0 < len(value) <= CLUSTER_BYTES_MAX:
        raise ValueError(f"a cluster id is 1 to {CLUSTER_BYTES_MAX} printable ASCII: {value!r}")


@attrs.frozen
class Identity:
    """`has_log`: a write-ahead log was made here, so its absence is a loss, not a first start."""

    cluster: str = attrs.field(validator=_check_cluster)
    node: NodeId
    incarnation: Incarnation
    has_log: bool = False
    previous: Incarnation = INCARNATION_ZERO
    """The incarnation that was admitted with this directory last; the last one that started where
    that is not known (storage.lives), and 0 for an empty directory."""
    cluster_version: int = CLUSTER_VERSION_BASE
    """The highest that this node has seen: the log may have what it allows."""
    damaged: tuple[str, ...] = ()
    """Which of the two files were damaged when this boot read them; it has replaced them."""


def boot(disk: Disk, cluster: str, node: NodeId, *, first: int = 1) -> Identity:
    """Lock the directory, check that it is ours, and count this boot durably.

    The new incarnation is at least `first`, which the shell takes from the wall clock: a node that
    lost its directory, or got an old copy of it back, must not come back under an incarnation that
    its peers or the log know, or an old Steal or lease would be taken for its own (R6, R11). Where
    the clock was ahead once, the peers know better, and what they said is kept in `lives`.

    Raises:
        DirectoryLocked: another process uses the directory.
        DirectoryRefused: it is another node's or cluster's, of another format, or damaged.
    """
    disk.lock()
    old, damaged = read_identity(disk)
    lives = read_lives(disk)
    if old is None:
        previous = INCARNATION_ZERO
        old = Identity(cluster, node, previous)
    else:
        previous = lives.admitted_before(old.incarnation)
        if (old.cluster, old.node) != (cluster, node):
            raise DirectoryRefused(
                f"the data directory belongs to node {old.node} of cluster {old.cluster!r}; this is"
                f" node {node} of cluster {cluster!r}: correct the configuration or the path"
            )
        _check_cluster_version(old.cluster_version)
    incarnation = Incarnation(max(old.incarnation, lives.above, first - 1) + 1)
    new = attrs.evolve(old, incarnation=incarnation, previous=previous, damaged=damaged)
    lives = lives.started(incarnation, previous, last=old.incarnation)
    write_with_reserve(disk, partial(_start, disk, lives, new))
    return new


def _start(disk: Disk, lives: Lives, new: Identity) -> None:
    write_lives(disk, lives)  # first: it is about starts that `identity` names
    _write(disk, new)


def read_identity(disk: Disk) -> tuple[Identity | None, tuple[str, ...]]:
    """The identity of the directory, None if it is empty; and which of its files are damaged.

    Raises:
        DirectoryRefused: nobody can tell, or it is of another format.
    """
    names = disk.names()
    found: list[Identity] = []
    damaged: list[str] = []
    for name in (IDENTITY_NAME, IDENTITY_COPY_NAME):
        if name in names:
            identity = _decode(read_around(disk.open(name), IDENTITY_BYTES_MAX, 0))
            if identity is None:
                damaged.append(name)
            else:
                found.append(identity)
    if found:
        newest = max(found, key=lambda one: (one.incarnation, one.has_log, one.cluster_version))
        return newest, tuple(damaged)
    if damaged:
        title = read_around(disk.open(damaged[0]), IDENTITY_BYTES_MAX, 0).partition(b"\n")[0]
        if title.startswith(_TITLE) and title not in _TITLES:
            raise DirectoryRefused(
                f"the data directory says {title.decode('ascii', 'replace')!r}; this program reads "
                f"format {WITH_CLUSTER_VERSION} and those before: use the version of the program "
                "that wrote it"
            )
        raise DirectoryRefused(
            f"the file {damaged[0]!r} is damaged: restore it from an exact copy, or let the node"
            " rejoin with an empty directory"
        )
    if any(name.endswith(SEGMENT_SUFFIX) for name in names):
        raise DirectoryRefused(
            f"the data directory has a log but no file {IDENTITY_NAME!r}, so nobody knows whose it "
            "is nor how often it booted: restore the file, or start with an empty directory"
        )
    return None, ()


def _check_cluster_version(version: int) -> None:
    """
    Raises:
        DirectoryRefused: this program cannot read what is in the directory.
    """
    if not CLUSTER_VERSION_OLDEST <= version <= CLUSTER_VERSION_NEWEST:
        raise DirectoryRefused(
            f"the data directory is of cluster version {version}, which never falls; this is "
            f"Evenkeel {VERSION}, which reads cluster versions {CLUSTER_VERSION_OLDEST} to "
            f"{CLUSTER_VERSION_NEWEST}: start the node with the version of Evenkeel that the other "
            "nodes run (docs/upgrades.md)"
        )


def mark_cluster_version(disk: Disk, version: int) -> None:
    """Note that the cluster version has risen: an older program must not go on with this
    directory."""
    identity, _ = read_identity(disk)
    if identity is not None and identity.cluster_version < version:
        _write(disk, attrs.evolve(identity, cluster_version=version))


def mark_log_created(disk: Disk, identity: Identity) -> None:
    """Note that the directory has a log: from now on its absence is a loss."""
    _write(disk, attrs.evolve(identity, has_log=True))


def _write(disk: Disk, identity: Identity) -> None:
    for name in (IDENTITY_COPY_NAME, IDENTITY_NAME):
        if _TEMPORARY_NAME in disk.names():
            disk.remove(_TEMPORARY_NAME)  # left by a crash, or a full disk, in the lines below
        file = disk.create(_TEMPORARY_NAME)
        write_all(file, [_encode(identity)], 0)
        file.fdatasync()
        disk.rename(_TEMPORARY_NAME, name)
        disk.sync_directory()


def _encode(identity: Identity, version: int = FORMAT_VERSION) -> bytes:
    named = identity.cluster_version > CLUSTER_VERSION_BASE
    if named:
        version = WITH_CLUSTER_VERSION
    text = (
        f"evenkeel data directory, format {version}\n"
        f"cluster {identity.cluster}\n"
        f"node {identity.node}\n"
        f"incarnation {identity.incarnation}\n"
        f"log {int(identity.has_log)}\n" + f"cluster-version {identity.cluster_version}\n" * named
    ).encode()
    return text + f"crc32c {crc32c(text):08x}\n".encode()


def _decode(data: bytes) -> Identity | None:
    """Read it back. Only the very bytes that `_encode` makes are accepted, so any flip is found."""
    try:
        _title, *fields, _ = data.decode("ascii").splitlines()
        cluster, node, incarnation, has_log, *last = (field.split(" ", 1)[1] for field in fields)
        identity = Identity(
            cluster,
            NodeId(int(node)),
            Incarnation(int(incarnation)),
            has_log == "1",
            cluster_version=int(last[0]) if last else CLUSTER_VERSION_BASE,
        )
        intact = (
            data in [_encode(identity, version) for version in range(1, FORMAT_VERSION + 1)]
            and 0 <= identity.incarnation < INCARNATION_MAX
        )
    except (ValueError, IndexError):
        return None
    return identity if intact else None
