"""The node that helps another one to catch up: it answers, and reserves nothing for anybody.

Theory of operation. Questions are answered in the order they come, as fast as the bucket allows:
one question of each sink waits at a time, and a newer one replaces it. Data is read from the cold
store and the log as they are at that moment, by the driver that carries out `Read`; what has been
trimmed meanwhile is GONE, and the sink asks again what there is. A group's state is that of its
newest checkpoint file, read once per session: nothing is encoded on request, and the log above it
is kept until two younger ones have been written. A sink that has gone silent loses its session
after SESSION_NS.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from broker.lifecycle.token_bucket import TokenBucket
from broker.transfer.effects import Open, Read, Send, SourceEffect
from broker.transfer.messages import (
    AskData,
    AskManifest,
    AskState,
    Data,
    Manifest,
    Part,
    Question,
    RefusalReason,
    Refused,
    State,
)
from paxos.entry import Buffer
from paxos.ids import MS, GroupId, NodeId, Slot

PIECE_BYTES: Final = 256 * 1024
SESSION_NS: Final = 60_000 * MS
SESSIONS_MAX: Final = 4
READS_MAX: Final = 8
"""In progress at a time, for all sinks together."""


class SourceFiles(Protocol):
    """What a source serves from."""

    def has(self, group: GroupId) -> bool:
        """Whether this node can help: it is a member and not catching up itself."""

    def saved(self, group: GroupId) -> Slot | None:
        """The slot of the newest checkpoint."""

    def parts(self, group: GroupId) -> tuple[Part, ...]: ...


@attrs.define(eq=False)
class _Session:
    group: GroupId
    chunks: Sequence[bytes]
    touched_ns: int


@attrs.define(eq=False)
class SourceStatistics:
    bytes_sent: int = 0
    answers: int = 0
    refusals: int = 0
    sessions: int = 0


class Source:
    def __init__(self, shelf: SourceFiles, bucket: TokenBucket) -> None:
        self._shelf, self._bucket = shelf, bucket
        self._waiting: dict[NodeId, Question] = {}
        self._reading: dict[NodeId, AskData | AskState] = {}
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
        """A Read is done: it has batches up to `end`."""
        if self._done_reading(to, ask):
            self._account(sum(map(len, payload)))
            self._answer(to, Data(ask.number, ask.group, ask.uid, end, gaps, payload))

    def opened(self, now_ns: int, to: NodeId, ask: AskState, chunks: Sequence[bytes]) -> None:
        """An Open is done: those chunks of the checkpoint that another node can use, the base
        first."""
        if self._done_reading(to, ask):
            self.statistics.sessions += 1
            self._sessions[to] = session = _Session(ask.group, chunks, now_ns)
            self._send_piece(now_ns, to, session, ask)

    def not_read(self, to: NodeId, ask: AskData | AskState, why: RefusalReason) -> None:
        if self._done_reading(to, ask):
            self._refuse(to, ask, why)

    def _done_reading(self, to: NodeId, ask: AskData | AskState) -> bool:
        """Whether the answer is still expected."""
        if self._reading.get(to) is not ask:
            return False
        del self._reading[to]
        return True

    # -- answers ------------------------------------------------------------------------------

    def _serve(self, now_ns: int) -> None:
        while self._waiting and self._bucket.open(now_ns):
            sender = next(iter(self._waiting))
            question = self._waiting.pop(sender)
            if not self._shelf.has(question.group):
                self._refuse(sender, question, RefusalReason.BEHIND)
            elif isinstance(question, AskData):
                self._read(sender, question)
            elif isinstance(question, AskManifest):
                self._tell(sender, question)
            else:
                self._send_state(now_ns, sender, question)

    def _tell(self, sender: NodeId, ask: AskManifest) -> None:
        saved = self._shelf.saved(ask.group)
        if saved is None or saved <= ask.applied:
            self._refuse(sender, ask, RefusalReason.BEHIND)
        else:
            parts = self._shelf.parts(ask.group)
            self._answer(sender, Manifest(ask.number, ask.group, saved, parts))

    def _read(self, sender: NodeId, ask: AskData) -> None:
        self._reading.pop(sender, None)  # its answer, if it still comes, is dropped
        if len(self._reading) >= READS_MAX:
            self._refuse(sender, ask, RefusalReason.BUSY)
            return
        self._reading[sender] = ask
        self._effects.append(Read(sender, ask))

    def _send_state(self, now_ns: int, sender: NodeId, ask: AskState) -> None:
        if ask.chunk == 0 and ask.at == 0:
            self._open(sender, ask)
            return
        session = self._sessions.get(sender)
        if session is None or session.group != ask.group:
            self._refuse(sender, ask, RefusalReason.GONE)
        else:
            self._send_piece(now_ns, sender, session, ask)

    def _open(self, sender: NodeId, ask: AskState) -> None:
        self._sessions.pop(sender, None)
        self._reading.pop(sender, None)
        if len(self._sessions) >= SESSIONS_MAX or len(self._reading) >= READS_MAX:
            self._refuse(sender, ask, RefusalReason.BUSY)
            return
        self._reading[sender] = ask
        self._effects.append(Open(sender, ask))

    def _send_piece(self, now_ns: int, to: NodeId, session: _Session, ask: AskState) -> None:
        chunks = session.chunks
        if ask.chunk >= len(chunks) or ask.at >= len(chunks[ask.chunk]):
            self._refuse(to, ask, RefusalReason.GONE)
            return
        session.touched_ns = now_ns
        whole = memoryview(chunks[ask.chunk])
        piece = whole[ask.at : ask.at + PIECE_BYTES]
        last = ask.at + len(piece) == len(whole) and ask.chunk + 1 == len(chunks)
        state = State(ask.number, ask.group, ask.chunk, ask.at, len(whole), last, (piece,))
        self._account(len(piece))
        self._answer(to, state)
        if last:
            del self._sessions[to]  # if this answer is lost, the sink begins a new session

    # -- small things -------------------------------------------------------------------------

    def _account(self, size: int) -> None:
        self._bucket.take(size)
        self.statistics.bytes_sent += size

    def _refuse(self, to: NodeId, question: Question, why: RefusalReason) -> None:
        self.statistics.refusals += 1
        self._effects.append(Send(to, Refused(question.number, question.group, why)))

    def _answer(self, to: NodeId, answer: Data | Manifest | State) -> None:
        self.statistics.answers += 1
        self._effects.append(Send(to, answer))
