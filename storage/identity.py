"""Who this directory belongs to, and how often its node has booted.

The incarnation is durable before the node says anything (protocol.md section 1: `inc++ ; fsync`),
for a lease is held by (node, incarnation) and a takeover happens once per incarnation (R6, R11).
The file is replaced as a whole (temporary file, fsync, rename, fsync of the directory), it is text
so that an operator can read it, and it is checksummed because a flipped digit would be a lie.
"""

from typing import Final

import attrs
from crc32c import crc32c

from paxos.ids import Incarnation, NodeId
from storage.disk import Disk, write_all
from storage.errors import DirectoryRefused
from storage.format import CLUSTER_BYTES_MAX, SEGMENT_SUFFIX

IDENTITY_NAME: Final = "identity"
_TEMPORARY_NAME: Final = "identity.tmp"
IDENTITY_BYTES_MAX: Final = 1024
FORMAT_VERSION: Final = 1
INCARNATION_MAX: Final = 2**63 - 1
"""What records of the log can hold."""


def _check_cluster(_self: object, _field: object, value: str) -> None:
    if not value.isascii() or not value.isprintable() or not 0 < len(value) <= CLUSTER_BYTES_MAX:
        raise ValueError(f"a cluster id is 1 to {CLUSTER_BYTES_MAX} printable ASCII: {value!r}")


@attrs.frozen
class Identity:
    """`has_log`: the write-ahead log was made here once, so its absence is a loss, not a start."""

    cluster: str = attrs.field(validator=_check_cluster)
    node: NodeId
    incarnation: Incarnation
    has_log: bool = False


def boot(disk: Disk, cluster: str, node: NodeId, *, first: int = 1) -> Identity:
    """Lock the directory, check that it is ours, and count this boot durably.

    `first` is the incarnation of an empty directory's first boot. The shell takes it from the wall
    clock: a node that lost its directory must not come back under an incarnation that its peers or
    the log know, or an old Steal or lease would be taken for its own (R6, R11).

    Raises:
        DirectoryLocked: another process uses the directory.
        DirectoryRefused: it is another node's or cluster's, of another format, or damaged.
    """
    disk.lock()
    names = disk.names()
    if IDENTITY_NAME in names:
        old = _decode(disk.open(IDENTITY_NAME).pread(IDENTITY_BYTES_MAX, 0))
        if (old.cluster, old.node) != (cluster, node):
            raise DirectoryRefused(
                f"the data directory belongs to node {old.node} of cluster {old.cluster!r}; this is"
                f" node {node} of cluster {cluster!r}: correct the configuration or the path"
            )
    elif any(name.endswith(SEGMENT_SUFFIX) for name in names):
        raise DirectoryRefused(
            f"the data directory has a log but no file {IDENTITY_NAME!r}, so nobody knows whose it "
            "is nor how often it booted: restore the file, or start with an empty directory"
        )
    else:
        old = Identity(cluster, node, Incarnation(first - 1))
    new = attrs.evolve(old, incarnation=Incarnation(old.incarnation + 1))
    _write(disk, new)
    return new


def mark_log_created(disk: Disk, identity: Identity) -> None:
    """From now on an absent log is a loss."""
    _write(disk, attrs.evolve(identity, has_log=True))


def _write(disk: Disk, identity: Identity) -> None:
    if _TEMPORARY_NAME in disk.names():
        disk.remove(_TEMPORARY_NAME)  # left by a crash in the lines below
    file = disk.create(_TEMPORARY_NAME)
    write_all(file, [_encode(identity)], 0)
    file.fdatasync()
    disk.rename(_TEMPORARY_NAME, IDENTITY_NAME)
    disk.sync_directory()


def _encode(identity: Identity) -> bytes:
    text = (
        f"evenkeel data directory, format {FORMAT_VERSION}\n"
        f"cluster {identity.cluster}\n"
        f"node {identity.node}\n"
        f"incarnation {identity.incarnation}\n"
        f"log {int(identity.has_log)}\n"
    ).encode()
    return text + f"crc32c {crc32c(text):08x}\n".encode()


def _decode(data: bytes) -> Identity:
    """Read back; only the very bytes `_encode` makes are accepted, so every flip is found."""
    try:
        title, *fields, _ = data.decode("ascii").splitlines()
        if title.startswith("evenkeel") and not title.endswith(f" {FORMAT_VERSION}"):
            raise DirectoryRefused(
                f"the data directory says {title!r}; this program reads format {FORMAT_VERSION}: "
                "use the version of the program that wrote it"
            )
        cluster, node, incarnation, has_log = (field.split(" ", 1)[1] for field in fields)
        identity = Identity(
            cluster, NodeId(int(node)), Incarnation(int(incarnation)), has_log == "1"
        )
        intact = _encode(identity) == data and 0 <= identity.incarnation < INCARNATION_MAX
    except (ValueError, IndexError):
        intact = False
    if not intact:
        raise DirectoryRefused(
            f"the file {IDENTITY_NAME!r} is damaged: restore it from an exact copy, or let the node"
            " rejoin with an empty directory"
        )
    return identity
