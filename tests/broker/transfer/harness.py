"""A sink and its sources, each over a store in memory; time passes only when a test advances it."""

import random
import struct
from collections import deque
from collections.abc import Callable, Iterator

import attrs

from broker.lifecycle.token_bucket import TokenBucket
from broker.transfer import codec
from broker.transfer.effects import (
    Append,
    Fetched,
    Install,
    NotFetched,
    Open,
    Read,
    Repair,
    Restart,
    Save,
    TierAll,
)
from broker.transfer.effects import Send as SendIt
from broker.transfer.messages import AskData, AskManifest, AskState, Message, Part, RefusalReason
from broker.transfer.sink import Candidate, Sink
from broker.transfer.source import Source
from paxos.ids import MS, GroupId, NodeId, Slot
from tests.broker.batches import batch
from wire.records.batch import patched_head, split

GROUP = GroupId(3)
STEP_NS = 20 * MS
_CHUNK = struct.Struct(">Bqqq")
BASE, PARTITION = 1, 3


def log_of(uid: int, records: int) -> list[tuple[int, int, bytes]]:
    """(base, end, batch) of a partition's batches: the same on every node, and ever longer."""
    assert records % 10 == 0
    dice, found, offset = random.Random(uid), [], 0
    while offset < records:
        count = min(dice.randrange(1, 9), 10 - offset % 10)
        raw = batch(*(f"{uid}-{offset + n}" for n in range(count)), pad=dice.randrange(20_000))
        whole = patched_head(raw, offset, 7) + raw[16:]
        found.append((offset, offset + count, whole))
        offset += count
    return found


@attrs.define(eq=False)
class Store:
    """One node's data of one group: a source serves from it, and a sink writes into it."""

    applied_to: Slot
    logs: dict[int, list[tuple[int, int, bytes]]] = attrs.Factory(dict)
    starts: dict[int, int] = attrs.Factory(dict)
    damaged: set[int] = attrs.Factory(set)
    state_pad: int = 10
    shut: bool = False
    on_chunk: Callable[[], None] = lambda: None

    # -- Shelf
    def has(self, group: GroupId) -> bool:
        return not self.shut

    def saved(self, group: GroupId) -> Slot | None:
        return self.applied_to

    def parts(self, group: GroupId) -> tuple[Part, ...]:
        return tuple(
            Part(uid, self.starts.get(uid, 0), log[-1][1] if log else 0)
            for uid, log in sorted(self.logs.items())
        )

    def state(self, group: GroupId) -> Iterator[bytes]:
        yield _CHUNK.pack(BASE, self.applied_to, 0, 0)
        for uid in sorted(self.logs):
            self.on_chunk()
            part = next(part for part in self.parts(group) if part.uid == uid)
            fixed = _CHUNK.pack(PARTITION, uid, part.log_start, part.next_offset)
            yield fixed + bytes(self.state_pad)

    def read(self, ask: AskData) -> tuple[int, tuple[bytes, ...]] | RefusalReason:
        log = self.logs.get(ask.uid, [])
        if ask.uid in self.damaged:
            return RefusalReason.DAMAGED
        found = [one for one in log if one[1] > ask.offset and one[1] > self.starts.get(ask.uid, 0)]
        if not found or ask.offset < self.starts.get(ask.uid, 0):
            return RefusalReason.GONE
        taken, size = [found[0]], len(found[0][2])
        for one in found[1:]:
            size += len(one[2])
            if size > ask.bytes_max:
                break
            taken.append(one)
        return taken[-1][1], tuple(one[2] for one in taken)

    # -- Local
    def cold_end(self, uid: int) -> int | None:
        log = self.logs.get(uid)
        return log[-1][1] if log else None


@attrs.define(eq=False)
class World:
    """Node 1 catches up from the `others`."""

    mine: Store
    others: dict[NodeId, Store]
    masters: dict[NodeId, int] = attrs.Factory(dict)
    now_ns: int = 1
    lose: Callable[[NodeId, Message], bool] = lambda _node, _message: False
    bytes_per_s: int = 0
    compacted_uids: frozenset[int] = frozenset()
    told: list[Message] = attrs.Factory(list)
    installed: list[tuple[bytes, ...]] = attrs.Factory(list)
    repaired: list[Repair] = attrs.Factory(list)
    fetched: list[Fetched] = attrs.Factory(list)
    not_fetched: list[NotFetched] = attrs.Factory(list)
    saved: bool = False
    sink: Sink = attrs.field(init=False)
    sources: dict[NodeId, Source] = attrs.field(init=False)
    _disk: deque[object] = attrs.Factory(deque)

    def __attrs_post_init__(self) -> None:
        self.sink = Sink(self, TokenBucket(self.bytes_per_s, 512 * 1024), 1 << 32)
        self.sources = {
            node: Source(store, TokenBucket(0, 0)) for node, store in self.others.items()
        }

    def restart(self, node: NodeId) -> None:
        self.sources[node] = Source(self.others[node], TokenBucket(0, 0))

    # -- Local
    def applied(self, group: GroupId) -> Slot:
        return self.mine.applied_to

    def knows_end(self, uid: int) -> bool:
        return True

    def cold_end(self, uid: int) -> int | None:
        return self.mine.cold_end(uid)

    def compacted(self, uid: int) -> bool:
        return uid in self.compacted_uids

    def part_of(self, chunk: bytes) -> Part | None:
        kind, uid, start, end = _CHUNK.unpack_from(chunk)
        return Part(uid, start, end) if kind == PARTITION else None

    def candidates(self, group: GroupId) -> list[Candidate]:
        return [
            Candidate(node, store.applied_to, self.masters.get(node, 0))
            for node, store in self.others.items()
        ]

    # -- running
    def run(self, until: Callable[[], bool], steps: int = 5000) -> None:
        for _ in range(steps):
            if until():
                return
            self.step()
        raise AssertionError(f"not within {steps} steps: {self.sink.view()}")

    def step(self) -> None:
        self.now_ns += STEP_NS
        self.sink.tick(self.now_ns)
        for source in self.sources.values():
            source.tick(self.now_ns)
        while self._exchange() or self._work():
            pass

    def _exchange(self) -> bool:
        effects = self.sink.take()
        for effect in effects:
            if isinstance(effect, SendIt):
                message = self._over_the_link(effect.to, effect.message)
                if message is not None and effect.to in self.sources:
                    assert isinstance(message, AskData | AskManifest | AskState)
                    self.sources[effect.to].on_question(self.now_ns, NodeId(1), message)
            else:
                self._disk.append(effect)
        moved = bool(effects)
        for node, source in self.sources.items():
            for one in source.take():
                moved = True
                if isinstance(one, Read):
                    got = self.others[node].read(one.ask)
                    if isinstance(got, RefusalReason):
                        source.not_read(one.to, one.ask, got)
                    else:
                        gaps = one.ask.uid in self.compacted_uids
                        source.was_read(one.to, one.ask, *got, gaps=gaps)
                elif isinstance(one, Open):
                    chunks = [*self.others[node].state(one.ask.group)]
                    source.opened(self.now_ns, one.to, one.ask, chunks)
                else:
                    answer = self._over_the_link(node, one.message)
                    if answer is not None:
                        assert not isinstance(answer, AskData | AskManifest | AskState)
                        self.sink.on_answer(self.now_ns, node, answer)
        return moved

    def _over_the_link(self, node: NodeId, message: Message) -> Message | None:
        self.told.append(message)
        if self.lose(node, message):
            return None
        return codec.decode(memoryview(b"".join(codec.encode(message))))

    def _work(self) -> bool:
        """The disk does one job."""
        if not self._disk:
            return False
        effect, mine = self._disk.popleft(), self.mine
        if isinstance(effect, TierAll):
            self.sink.tiered(self.now_ns, effect.group)
        elif isinstance(effect, Restart):
            mine.logs[effect.uid] = []
        elif isinstance(effect, Append):
            log = mine.logs.setdefault(effect.uid, [])
            assert effect.start == log[-1][1] if log else effect.start <= effect.batches[0].base
            log += [(one.base, one.end, bytes(one.data)) for one in effect.batches]
            self.sink.appended(self.now_ns, effect.size)
        elif isinstance(effect, Save):
            self.check_data(effect.chunks)
            self.saved = True
            self.sink.saved(self.now_ns, effect.group)
        elif isinstance(effect, Install):
            assert self.saved, "installed before it was a checkpoint"
            mine.applied_to = Slot(_CHUNK.unpack_from(effect.chunks[0])[1])
            self.installed.append(effect.chunks)
            self.sink.installed(self.now_ns, effect.group)
        elif isinstance(effect, Repair):
            self.repaired.append(effect)
        elif isinstance(effect, Fetched):
            self.fetched.append(effect)
        elif isinstance(effect, NotFetched):
            self.not_fetched.append(effect)
        return True

    def check_data(self, chunks: tuple[bytes, ...]) -> None:
        """Everything that the state mentions is there and intact."""
        for chunk in chunks:
            part = self.part_of(chunk)
            if part is None or part.log_start == part.next_offset:
                continue
            log = self.mine.logs[part.uid]
            assert log[0][0] <= part.log_start or part.uid in self.compacted_uids
            assert log[-1][1] >= part.next_offset
            for (base, end, data), after in zip(log, [*log[1:], None], strict=True):
                header = split(memoryview(data))[0].header
                assert (header.base_offset, header.last_offset + 1) == (base, end)
                assert after is None or after[0] == end or part.uid in self.compacted_uids


def same(a: Store, b: Store) -> bool:
    return {uid: log for uid, log in a.logs.items() if log} == {
        uid: log for uid, log in b.logs.items() if log
    }
