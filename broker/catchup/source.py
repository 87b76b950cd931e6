"""The node that helps another one to catch up: it answers, and keeps nothing for anybody.

Theory of operation. Questions are answered in the order they come, as fast as the bucket lets them:
one question of each sink waits at a time, and a newer one takes its place. Data is read from the
cold store and the log as they are at that moment, by whoever carries out `Read`; what has been
trimmed meanwhile is GONE, and the sink looks anew. Of a group's state there is an iterator and the
chunk that is being sent: chunks are made when they are asked for, one at a time, so that no state
is ever encoded as a whole. A sink that has gone silent loses its session after SESSION_NS.
"""

from collections.abc import Iterator
from typing import Final, Protocol

import attrs

from broker.catchup.bucket import Bucket
from broker.catchup.effects import Read, Send, SourceEffect
from broker.catchup.messages import (
    AskData,
    AskManifest,
    AskState,
    Data,
    Manifest,
    Part,
    Question,
    Refused,
    State,
    Why,
)
from paxos.entry import Buffer
from paxos.ids import MS, GroupId, NodeId, Slot

PIECE_BYTES: Final = 256 * 1024
SESSION_NS: Final = 60_000 * MS
SESSIONS_MAX: Final = 4
READS_MAX: Final = 8
"""Under way at a time, of all sinks together."""


class Shelf(Protocol):
    """What a source serves from."""

    def applied(self, group: GroupId) -> Slot | None:
        """How far we are; None where we cannot help: no member, or catching up ourselves."""

    def parts(self, group: GroupId) -> tuple[Part, ...]: ...

    def state(self, group: GroupId) -> Iterator[bytes]:
        """The group's chunks, each made when it is asked for; the base is the first."""


@attrs.define(eq=False)
class _Session:
    group: GroupId
    chunks: Iterator[bytes]
    number: int
    """Of the chunk `current`."""
    current: bytes
    following: bytes | None
    touched_ns: int


@attrs.define(eq=False)
class SourceStatistics:
    bytes_sent: int = 0
    answers: int = 0
    refusals: int = 0
    sessions: int = 0


class Source:
    def __init__(self, shelf: Shelf, bucket: Bucket) -> None:
        self._shelf, self._bucket = shelf, bucket
        self._waiting: dict[NodeId, Question] = {}
        self._reading: dict[NodeId, AskData] = {}
        self._sessions: dict[NodeId, _Session] = {}
        self._effects: list[SourceEffect] = []
        self.statistics = SourceStatistics()

    def take(self) -> list[SourceEffect]:
        effects, self._effects = self._effects, []
        return effects

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._sessions or self._reading)

    # -- events -------------------------------------------------------------------------------

    def on_question(self, now_ns: int, sender: NodeId, question: Question) -> None:
        self._waiting.pop(sender, None)
        self._waiting[sender] = question
        self._serve(now_ns)

    def tick(self, now_ns: int) -> None:
        silent = [
            node
            for node, session in self._sessions.items()
            if now_ns - session.touched_ns > SESSION_NS
        ]
        for node in silent:
            del self._sessions[node]
        self._serve(now_ns)

    def peer_down(self, node: NodeId) -> None:
        self._waiting.pop(node, None)
        self._sessions.pop(node, None)
        self._reading.pop(node, None)

    def was_read(
        self, to: NodeId, ask: AskData, end: int, payload: tuple[Buffer, ...], *, gaps: bool
    ) -> None:
        """A Read is done: batches up to `end`."""
        if self._done_reading(to, ask):
            self._account(sum(map(len, payload)))
            self._answer(to, Data(ask.number, ask.group, ask.uid, end, gaps, payload))

    def not_read(self, to: NodeId, ask: AskData, why: Why) -> None:
        if self._done_reading(to, ask):
            self._refuse(to, ask, why)

    def _done_reading(self, to: NodeId, ask: AskData) -> bool:
        """Whether the answer is still waited for."""
        if self._reading.get(to) is not ask:
            return False
        del self._reading[to]
        return True

    # -- answers ------------------------------------------------------------------------------

    def _serve(self, now_ns: int) -> None:
        while self._waiting and self._bucket.open(now_ns):
            sender = next(iter(self._waiting))
            question = self._waiting.pop(sender)
            applied = self._shelf.applied(question.group)
            if applied is None:
                self._refuse(sender, question, Why.BEHIND)
            elif isinstance(question, AskData):
                self._read(sender, question)
            elif isinstance(question, AskManifest):
                self._tell(sender, question, applied)
            else:
                self._send_state(now_ns, sender, question)

    def _tell(self, sender: NodeId, ask: AskManifest, applied: Slot) -> None:
        if applied <= ask.applied:
            self._refuse(sender, ask, Why.BEHIND)
        else:
            parts = self._shelf.parts(ask.group)
            self._answer(sender, Manifest(ask.number, ask.group, applied, parts))

    def _read(self, sender: NodeId, ask: AskData) -> None:
        self._reading.pop(sender, None)  # its answer, if it still comes, is dropped
        if len(self._reading) >= READS_MAX:
            self._refuse(sender, ask, Why.BUSY)
            return
        self._reading[sender] = ask
        self._effects.append(Read(sender, ask))

    def _send_state(self, now_ns: int, sender: NodeId, ask: AskState) -> None:
        session = self._sessions.get(sender)
        if ask.chunk == 0 and ask.at == 0:
            session = self._open(now_ns, sender, ask)
            if session is None:
                self._refuse(sender, ask, Why.BUSY)
                return
        if session is None or session.group != ask.group or not self._turn_to(session, ask):
            self._refuse(sender, ask, Why.GONE)
            return
        session.touched_ns = now_ns
        whole = memoryview(session.current)
        piece = whole[ask.at : ask.at + PIECE_BYTES]
        ends = ask.at + len(piece) == len(whole)
        last = ends and session.following is None
        state = State(ask.number, ask.group, ask.chunk, ask.at, len(whole), last, (piece,))
        self._account(len(piece))
        self._answer(sender, state)

    def _open(self, now_ns: int, sender: NodeId, ask: AskState) -> _Session | None:
        self._sessions.pop(sender, None)
        if len(self._sessions) >= SESSIONS_MAX:
            return None
        chunks = self._shelf.state(ask.group)
        first, following = next(chunks), next(chunks, None)
        session = _Session(ask.group, chunks, 0, first, following, now_ns)
        self._sessions[sender] = session
        self.statistics.sessions += 1
        return session

    def _turn_to(self, session: _Session, ask: AskState) -> bool:
        """Go on to the chunk that is asked for, if it is this one or the next."""
        if ask.chunk == session.number + 1 and session.following is not None:
            session.current = session.following
            session.following = next(session.chunks, None)
            session.number += 1
        return ask.chunk == session.number and ask.at < len(session.current)

    # -- small things -------------------------------------------------------------------------

    def _account(self, size: int) -> None:
        self._bucket.take(size)
        self.statistics.bytes_sent += size

    def _refuse(self, to: NodeId, question: Question, why: Why) -> None:
        self.statistics.refusals += 1
        self._effects.append(Send(to, Refused(question.number, question.group, why)))

    def _answer(self, to: NodeId, answer: Data | Manifest | State) -> None:
        self.statistics.answers += 1
        self._effects.append(Send(to, answer))
