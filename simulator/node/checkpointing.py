"""A simulated node's checkpoints: taken and saved, logs retired behind them, states from peers.

Does what runtime/ does with threads and links, as far as the simulator needs it and in the same
order: a checkpoint is durable before a log is retired; a peer's state is durable here before it is
used; the state machine uses it first, then the replica. A node may die between any two of these
steps (`simulator.node.crash_points`). A checkpoint is fuzzy: its base is taken first, and entries
are applied between its parts.
"""

from collections.abc import Iterator
from typing import Final

from broker.state_machine.checkpoint_chunks import Chunk, ChunkKind, encode_chunk
from paxos import base as bases
from paxos.base import Base
from paxos.ids import MS, GroupId, NodeId, Slot
from paxos.step import FetchState, Step
from simulator.environment.dice import between, dice
from simulator.node.crash_points import Boundary
from simulator.node.disk import DiskFailed
from simulator.node.group_state import AskState, GiveState, Group
from simulator.node.host import Host
from simulator.node.recovery import Saved

PARTS_AT_ONCE: Final = 2
PAUSE_NS_MAX: Final = 250 * MS
"""The longest pause between some parts of a checkpoint and the next ones."""
WRITE_NS_MAX: Final = 60 * MS
AGAIN_NS: Final = 300 * MS
"""A state that has not come is requested again after this time."""


class Checkpoints:
    """Those of one life of a node."""

    def __init__(self, node: Host) -> None:
        self._node, self._life = node, node.life
        self._every = node.world.checkpoint_slots
        self._chance = dice(node.world.options.seed, "checkpoints", node.me, node.life)
        self._last: dict[GroupId, Slot] = {}
        self._busy = False
        self._asked: dict[GroupId, int] = {}
        self.held: set[GroupId] = set()
        """Groups whose state is on its way here: their checkpoints are worth nothing."""
        self._saved: dict[GroupId, Slot] = {}
        self._lives: dict[GroupId, int] = {}
        """How often a group's state here was replaced by another one."""

    @property
    def _gone(self) -> bool:
        return not (self._node.up and self._node.life == self._life)

    # -- our own ------------------------------------------------------------------------------

    def began_with(self, group: Group, chunks: tuple[bytes, ...]) -> None:
        """The node has booted with this checkpoint: its replica already has the base."""
        replica = group.replica
        base = replica.base()
        self._last[replica.group] = self._saved[replica.group] = base.slot
        self._node.restore(replica.group, base.slot, chunks[1:])
        self._node.world.bases.used(self._node.me, replica.group, base)

    def tick(self) -> None:
        if not self._every or self._busy:
            return
        for ident, group in self._node.groups.items():
            applied = group.replica.learner.applied
            if ident not in self.held and applied - self._last.get(ident, 0) >= self._every:
                self.begin(ident)
                return

    def begin(self, ident: GroupId) -> None:
        assert not self._busy
        self._busy = True
        base = self._node.groups[ident].replica.base()
        self._last[ident] = base.slot
        first = encode_chunk(Chunk(ChunkKind.REPLICA, 0, base.slot, bases.encode(base)))
        life = self._lives.get(ident, 0)
        self._take(ident, life, base.slot, [first], self._node.parts(ident))

    def _over(self, ident: GroupId, life: int) -> bool:
        return self._gone or self._lives.get(ident, 0) != life

    def _take(
        self, ident: GroupId, life: int, slot: Slot, chunks: list[bytes], parts: Iterator[bytes]
    ) -> None:
        """Take some more parts; entries are applied before the next ones are taken."""
        if self._over(ident, life):
            self._busy = False
            return
        node, loop = self._node, self._node.world.loop
        for part in parts:
            chunks.append(part)
            if len(chunks) % PARTS_AT_ONCE == 0:
                pause = between(self._chance, 0, PAUSE_NS_MAX)
                loop.after(pause, self._take, ident, life, slot, chunks, parts)
                return
        node.reach(Boundary.STATE_TAKEN)
        saved, until = Saved(slot, tuple(chunks)), node.appended
        loop.after(between(self._chance, MS, WRITE_NS_MAX), self._save, ident, life, saved, until)

    def _save(self, ident: GroupId, life: int, saved: Saved, until: int) -> None:
        """If its parts name places of the log, wait until the log is durable there."""
        node = self._node
        over = self._over(ident, life)
        if not over and node.world.settles and not self.may_save(until):
            node.world.loop.after(MS, self._save, ident, life, saved, until)
            return
        self._busy = False
        if over or not self.is_saved(ident, saved):
            return
        self._saved[ident] = saved.slot
        node.world.statistics["checkpoints"] += 1
        node.reach(Boundary.STATE_SAVED)
        self.retire(ident)
        node.reach(Boundary.LOG_RETIRED)

    def is_saved(self, ident: GroupId, saved: Saved) -> bool:
        """Make it durable, if the disk has room; the node ends if the disk fails."""
        try:
            return self._node.disk.save(ident, saved)
        except DiskFailed as failed:
            self._node.fail(failed)
            return False

    def may_save(self, until: int) -> bool:
        return self._node.is_durable(until)

    def retire(self, ident: GroupId) -> None:
        self._node.groups[ident].retire(self._node.disk.retire(ident))

    def retire_all(self) -> None:
        for ident in self._node.groups:
            self.retire(ident)

    # -- broker.transfer.driver.States ---------------------------------------------------------

    def newest(self, group: GroupId) -> Slot | None:
        return self._saved.get(group)

    def forget(self, group: GroupId) -> None:
        self._give_up(group)

    def came(self, now_ns: int, group: GroupId, slot: Slot, size: int) -> None:
        self._saved[group] = slot

    def soon(self, group: GroupId) -> None:
        self._last[group] = Slot(-self._every)

    def left(self, ident: GroupId) -> None:
        """The node has dropped the group: a checkpoint under way is of no use."""
        self._last.pop(ident, None)
        self._saved.pop(ident, None)
        self._give_up(ident)

    def _give_up(self, ident: GroupId) -> None:
        self._lives[ident] = self._lives.get(ident, 0) + 1

    # -- a peer's -----------------------------------------------------------------------------

    def fetch(self, fetch: FetchState) -> None:
        """The core cannot go on without it, and repeats this call."""
        node, group = self._node, fetch.group
        now_ns = node.world.loop.now_ns
        if now_ns - self._asked.get(group, -AGAIN_NS) >= AGAIN_NS:
            self._asked[group] = now_ns
            ask = AskState(group, node.groups[group].replica.learner.applied)
            node.world.network.send(node.me, fetch.source, ask)

    def asked(self, source: NodeId, ask: AskState) -> None:
        saved = self._node.disk.newest(ask.group)
        if saved is not None and saved.slot > ask.applied:
            self._node.world.network.send(self._node.me, source, GiveState(ask.group, saved))

    def given(self, what: GiveState) -> None:
        node = self._node
        if what.saved.slot > node.groups[what.group].replica.learner.applied:
            node.reach(Boundary.STATE_RECEIVED)
            delay = between(self._chance, MS, WRITE_NS_MAX)
            node.world.loop.after(delay, self._keep, self._lives.get(what.group, 0), what)

    def _keep(self, life: int, what: GiveState) -> None:
        """First it becomes durable, then it is used."""
        node, saved = self._node, what.saved
        if (
            self._over(what.group, life)
            or saved.slot <= node.groups[what.group].replica.learner.applied
        ):
            return
        # A checkpoint that is being taken now is older: it must not end up above this one (seed
        # 1157: the node began with it after a crash, and the log had nothing in between).
        self._give_up(what.group)
        if self.is_saved(what.group, saved):
            node.reach(Boundary.STATE_KEPT)
            node.restore(what.group, saved.slot, saved.chunks[1:])
            self.go_on_from(what.group, saved.base)
            node.reach(Boundary.STATE_INSTALLED)

    def go_on_from(self, ident: GroupId, base: Base) -> None:
        """The state machine is that of the base, and the state is durable here."""
        node, world = self._node, self._node.world
        node.disk.skip(ident, base.slot)
        node.wrote()
        group = node.groups[ident]
        world.bases.used(node.me, ident, base)
        world.statistics["states installed"] += 1
        world.trace.note(world.loop.now_ns, "install", node.me, ident, base.slot)
        group.log, group.log_start = [], Slot(base.slot + 1)
        self._last[ident] = base.slot
        now, step = node.now(), Step()
        group.replica.install(now, base, step)
        group.intake.forget_proposed(now)
        node.finish(now, step, (group,))
