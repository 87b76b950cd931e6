"""The frames of requests to coordinators that a node passes on for its clients, and of the answers
(broker.groups.forwarded_requests).

    GROUP_REQUEST  u64 number, u32 group, i32 epoch, i64 until, body   (coordinator.carried)
    GROUP_ANSWER   u64 number, u8 verdict, body

`epoch` names the mastership that the request is meant for, `until` is a wall clock's time: after it
the request is not taken. Nodes before this release close a link on which such a frame comes, so
it is sent only to those whose PING says that they know it.
"""

import struct
from typing import Final, Protocol

from broker.groups.forwarded_requests import Verdict
from paxos.codec import PeerError
from paxos.entry import Buffer
from paxos.ids import GroupId, NodeId
from runtime.peers.frames import Kind

_REQUEST: Final = struct.Struct(">QIiq")
_ANSWER: Final = struct.Struct(">QB")


class Asking(Protocol):
    """What the frames are for (broker.groups.forwarded_requests.RequestForwarding)."""

    def on_request(
        self,
        sender: NodeId,
        number: int,
        group: GroupId,
        epoch: int,
        until_wall_ns: int,
        body: Buffer,
    ) -> None: ...

    def on_answer(self, sender: NodeId, number: int, verdict: int, body: Buffer) -> None: ...

    def lost(self, node: NodeId) -> None: ...


class Sending(Protocol):
    """The links (runtime.peers.peers)."""

    def knows_group_requests(self, to: NodeId) -> bool: ...

    def send_frame(
        self, to: NodeId, kind: Kind, chunks: tuple[Buffer, ...], group: GroupId | None
    ) -> bool: ...


class GroupRequestLinks:
    """Implements broker.groups.forwarded_requests.RequestLinks."""

    def __init__(self, links: Sending) -> None:
        self._links = links
        self.asking: Asking | None = None

    def takes(self, to: NodeId) -> bool:
        return self._links.knows_group_requests(to)

    def ask(
        self, to: NodeId, number: int, group: GroupId, epoch: int, until_wall_ns: int, body: bytes
    ) -> bool:
        head = _REQUEST.pack(number, group, epoch, until_wall_ns)
        return self._links.send_frame(to, Kind.GROUP_REQUEST, (head, body), group)

    def answer(self, to: NodeId, number: int, verdict: Verdict, body: bytes) -> None:
        head = _ANSWER.pack(number, verdict)
        self._links.send_frame(to, Kind.GROUP_ANSWER, (head, body), None)

    def on_frame(self, node: NodeId, kind: int, body: memoryview) -> None:
        """Raises PeerError for a frame that is cut short."""
        layout = _REQUEST if kind == Kind.GROUP_REQUEST else _ANSWER
        if len(body) < layout.size:
            raise PeerError(f"a frame of kind {kind} and {len(body)} bytes")
        rest = body[layout.size :]
        if self.asking is None:
            return
        if kind == Kind.GROUP_REQUEST:
            number, group, epoch, until_wall_ns = _REQUEST.unpack_from(body)
            self.asking.on_request(node, number, GroupId(group), epoch, until_wall_ns, rest)
        else:
            number, verdict = _ANSWER.unpack_from(body)
            self.asking.on_answer(node, number, verdict, rest)

    def lost(self, node: NodeId) -> None:
        if self.asking is not None:
            self.asking.lost(node)
