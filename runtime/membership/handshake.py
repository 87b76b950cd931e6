"""The handshake of a link: its first frame (HELLO), and the answer to a node that is refused.

Every connection begins with the caller's id, the node it wants, the cluster and the format. A
caller that does not belong here gets the reason and what to do about it (REFUSED), once, and the
connection ends; both sides log it. A refused node does no harm: it retries with backoff.
"""

import struct
from collections.abc import Collection
from enum import IntEnum
from typing import Final

import attrs

from paxos import codec
from paxos.codec import PeerError
from paxos.ids import INCARNATION_MAX, NOBODY, Incarnation, NodeId

FORMAT: Final = 5
"""The format of the frames on a link, including this one, and of their meaning. 1: without `to`,
`founding` and REFUSED. 2: without write tokens: replicas of both versions would judge the same
batch differently, and their state would diverge. 3: without CONSOLE. 4: without fences for the
decisions of a mastership (ADR 33): an older replica stops at such a command."""
_HELLO: Final = struct.Struct(">HHiQiHH")
_REFUSED: Final = struct.Struct(">B")
NAME_BYTES_MAX: Final = 255
FOUNDING_BYTES_MAX: Final = 1024
REASON_BYTES_MAX: Final = 1024


class RefusalReason(IntEnum):
    FORMAT = 1
    OTHER_CLUSTER = 2
    OTHER_NODE = 3
    """The address belongs to another node than the wanted one."""
    SAME_NODE = 4
    REMOVED = 5
    UNKNOWN = 6
    FOUNDING = 7
    TWICE = 8


@attrs.frozen
class Refusal:
    why: RefusalReason
    text: str

    def encode(self) -> bytes:
        return _REFUSED.pack(self.why) + self.text.encode()[:REASON_BYTES_MAX]

    @classmethod
    def decode(cls, body: memoryview) -> "Refusal":
        if not _REFUSED.size <= len(body) <= _REFUSED.size + REASON_BYTES_MAX:
            raise PeerError(f"a refusal of {len(body)} bytes")
        (why,) = _REFUSED.unpack_from(body)
        if not 1 <= why <= len(RefusalReason):
            raise PeerError(f"a refusal of kind {why}")
        text = str(body[_REFUSED.size :], "utf-8", "replace")
        return cls(
            RefusalReason(why), "".join(char if char.isprintable() else "?" for char in text)
        )


class Refused(PeerError):
    """The caller does not belong here; it gets the reason before its connection ends."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


@attrs.frozen(kw_only=True)
class Hello:
    cluster_id: str
    node: NodeId
    incarnation: Incarnation
    to: NodeId = NOBODY
    """The node that the caller wants to talk to."""
    founding: str = ""
    """The settings with which its groups were founded: must be the same on all nodes."""

    def encode(self) -> bytes:
        name, founding = self.cluster_id.encode(), self.founding.encode()
        head = (FORMAT, codec.FORMAT, self.node, self.incarnation, self.to)
        return _HELLO.pack(*head, len(name), len(founding)) + name + founding

    @classmethod
    def decode(cls, body: memoryview) -> "Hello":
        """Decode a HELLO. Raises PeerError (Refused) for another format, or PeerError for a
        malformed frame."""
        if len(body) >= 2:
            _check_formats(int.from_bytes(body[:2], "big"), int.from_bytes(body[2:4], "big"))
        if len(body) < _HELLO.size:
            raise PeerError("a greeting that is cut short")
        _, _, node, incarnation, to, name_size, founding_size = _HELLO.unpack_from(body)
        name = body[_HELLO.size : _HELLO.size + name_size]
        founding = body[_HELLO.size + name_size :]
        sizes_fit = name_size <= NAME_BYTES_MAX and founding_size <= FOUNDING_BYTES_MAX
        if len(name) != name_size or len(founding) != founding_size or not sizes_fit:
            raise PeerError("a malformed greeting")
        if incarnation >= INCARNATION_MAX:
            raise PeerError("a malformed greeting")
        return cls(
            cluster_id=str(name, "utf-8", "replace"),
            node=NodeId(node),
            incarnation=Incarnation(incarnation),
            to=NodeId(to),
            founding=str(founding, "utf-8", "replace"),
        )


def _check_formats(frames: int, messages: int) -> None:
    if frames != FORMAT or messages != codec.FORMAT:
        text = (
            f"it speaks peer format {frames}.{messages}, this node {FORMAT}.{codec.FORMAT}: run "
            "the same version of Evenkeel on all nodes"
        )
        raise Refused(Refusal(RefusalReason.FORMAT, text))


def refusal(
    me: Hello,
    caller: Hello,
    *,
    known: Collection[NodeId],
    removed: Collection[NodeId],
    connected: Incarnation | None,
) -> Refusal | None:
    """Why a caller is refused; None if it is accepted. `connected`: the incarnation of the calling
    node that is connected already. Both sides log the texts."""
    node = caller.node
    if caller.cluster_id != me.cluster_id:
        return Refusal(
            RefusalReason.OTHER_CLUSTER,
            f"node {node} belongs to cluster {caller.cluster_id!r}, node {me.node} to "
            f"{me.cluster_id!r}: correct node.cluster_id, or the address in [peers]",
        )
    if caller.to not in (NOBODY, me.node):
        return Refusal(
            RefusalReason.OTHER_NODE,
            f"node {node} looks for node {caller.to}, and this is node {me.node}: correct the "
            f"address of node {caller.to} in [peers]",
        )
    if node == me.node:
        return Refusal(
            RefusalReason.SAME_NODE,
            f"another process also claims to be node {node}: stop one of them, or give it another "
            "node.id",
        )
    if node in removed:
        return Refusal(
            RefusalReason.REMOVED,
            f"node {node} was removed from this cluster, and its number is never used again: a new "
            "node gets a new node.id and an empty directory",
        )
    if node not in known:
        return Refusal(
            RefusalReason.UNKNOWN,
            f"node {node} is not in this cluster: add it with `evenkeel node add`",
        )
    if caller.founding != me.founding:
        return Refusal(
            RefusalReason.FOUNDING,
            f"node {node} was configured with [groups] {caller.founding}; node {me.node} with "
            f"{me.founding}: they must be the same",
        )
    if connected is not None and caller.incarnation < connected:
        return Refusal(
            RefusalReason.TWICE,
            f"a later process of node {node} is connected: two run with one node.id; stop one",
        )
    return None
