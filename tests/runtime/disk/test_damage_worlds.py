"""Worlds in which files of running nodes are damaged: nothing wrong is ever read or voted for.

Three real engines (in some worlds two, or five) over real logs on memory disks (engines.py);
simulator/ must not run these, because repairs and the scrubber belong to the shell. Everything is
drawn from a seed: what is produced, which bytes of whose segments change while the node runs, and
who reads, scrubs, loses links or power. Only one node's files are damaged at a time, also while
others are down; and a node that loses power then may have been the only other one that knew a slot
to be chosen.

At any time, a read of a slot returns what was chosen there. A restart of a copy of any node's disk
either does not vote or knows everything that binds the running node (ADR 46). And in the end every
member has the whole log again, reads all of it, and votes.
"""

from collections import Counter
from random import Random
from typing import Final

import pytest

from broker.proposals.intake import Done, Outcome
from paxos.changes.rewriting import write_again
from paxos.entry import Entry
from paxos.ids import GroupId, Slot
from runtime.disk.repair import Repairs
from simulator.mutants.planting import Mutant, mutant, plant
from storage.errors import StorageError
from storage.format import OFFSET_BITS, OFFSET_MASK, RECORD_HEADER_BYTES, place_of, segment_name
from storage.identity import boot
from storage.log.index import GroupState
from storage.log.log_state import LogState
from storage.log.model import WalConfig
from storage.log.opening import open_wal
from storage.log.replay import decoded
from tests.runtime.disk.test_repair import votes, whole
from tests.runtime.engines import Member, Net

SEEDS: Final = 6
OTHER_SIZES: Final = {2: 6, 5: 3}
"""How many worlds have that number of nodes."""
STEPS: Final = 60
GROUPS: Final = (1, 2)
SEGMENT_BYTES: Final = 16 << 10
END_MS_MAX: Final = 60_000


def encoded(entry: Entry) -> bytes:
    return b"".join(entry.chunks)


class World:
    def __init__(self, seed: int, nodes: int = 3) -> None:
        self.dice = Random(f"damage {seed}" if nodes == 3 else f"damage {seed} of {nodes}")
        self.net = Net(nodes, groups=GROUPS, segment=SEGMENT_BYTES)
        self.chosen: dict[tuple[GroupId, Slot], bytes] = {}
        """The first value that was read of each applied slot."""
        self.outcomes: list[tuple[GroupId, str, list[Outcome]]] = []
        self.hurt: set[int] = set()
        """Nodes whose files were damaged and are not yet known to be whole again: one at a time."""
        self.statistics: Counter[str] = Counter()

    def run(self) -> None:
        for _ in range(STEPS):
            self._produce()
            self.net.advance(self.dice.choice((20, 100, 400)))
            self._learn_what_is_chosen()
            self._strike()
            self._look()
        self._end()

    # -- what goes on -------------------------------------------------------------------------

    def _produce(self) -> None:
        for group in self.net.groups:
            for member in self.net.up():
                if member.acting(group):
                    for _ in range(self.dice.randrange(4)):
                        text = f"{group} {len(self.outcomes)}"
                        self.outcomes.append((group, text, member.submit(text, group=group)))

    def _learn_what_is_chosen(self) -> None:
        for member in self.net.up():
            if member.node in self.hurt:
                continue
            for group in self.net.groups:
                for slot in range(1, member.multi.replicas[group].learner.applied + 1):
                    if (group, Slot(slot)) not in self.chosen:
                        entry = member.wal.read_entry(group, Slot(slot))
                        self.chosen[group, Slot(slot)] = encoded(entry)

    def _strike(self) -> None:
        strikes = (self._damage, self._damage, self._read, self._scrub, self._power, self._cut)
        self.dice.choice(strikes)(self.net[self.dice.choice(sorted(self.net.members))])

    def _damage(self, member: Member) -> None:
        """One byte or several, in the payload or header of a record, or anywhere."""
        if not member.up or member.writer.busy or self._hurt_now() - {member.node}:
            return
        group = self.dice.choice(self.net.groups)
        slots = [slot for one, slot in self.chosen if one == group]
        try:
            place = member.wal.find(group, self.dice.choice(slots))[0]
        except (StorageError, LookupError, IndexError):
            return
        self.hurt.add(member.node)
        at, length = self.dice.choice(
            ((RECORD_HEADER_BYTES + 5, 1), (self.dice.randrange(8, RECORD_HEADER_BYTES), 1),
             (20, 12), (0, 100), (RECORD_HEADER_BYTES, 200))
        )  # fmt: skip
        name, start = segment_name(place >> OFFSET_BITS), (place & OFFSET_MASK) + at
        end = min(start + length, self._end_of(member, place >> OFFSET_BITS))
        for offset in range(start, end):
            member.disk.corrupt(name, offset, self.dice.randrange(1, 256))
        self.statistics["damaged"] += 1
        self.statistics["masters damaged"] += any(member.acting(one) for one in self.net.groups)

    def _end_of(self, member: Member, number: int) -> int:
        end = member.wal.end
        return end & OFFSET_MASK if end >> OFFSET_BITS == number else SEGMENT_BYTES

    def _hurt_now(self) -> set[int]:
        self.hurt = {node for node in self.hurt if not self._is_well(self.net[node])}
        return self.hurt

    def _is_well(self, member: Member) -> bool:
        """The scrubber has since read all of it, and nothing is left to repair."""
        if not member.up:
            return False
        self._scrub(member)
        self.net.advance(100)
        pair = len(self.net.members) == 2  # what one of them forgets, only the other has
        return (
            not (pair and not all(self._is_over(group) for group in self.net.groups))
            and not member.engine.repairs.missing
            and member.engine.repairs.idle
            and all(votes(member, group) for group in self.net.groups)
            and all(member.multi.replicas[group].rejoin is None for group in self.net.groups)
        )

    def _scrub(self, member: Member) -> None:
        if member.up:
            for number in member.wal.kept():
                member.scrubber.suspect(place_of(number, 0))

    def _read(self, member: Member) -> None:
        """A consumer reads old data, or a peer catches up."""
        if not member.up:
            return
        for group, slot in self.dice.sample(sorted(self.chosen), min(20, len(self.chosen))):
            if slot > member.multi.replicas[group].learner.applied:
                continue
            try:
                found = encoded(member.wal.read_entry(group, slot))
            except (StorageError, LookupError):
                self.statistics["reads refused"] += 1
                try:
                    member.scrubber.suspect(member.wal.find(group, slot)[0])
                except (StorageError, LookupError):
                    continue
            else:
                assert found == self.chosen[group, slot], (member.node, group, slot)
                self.statistics["reads"] += 1

    def _power(self, member: Member) -> None:
        if not member.up:
            self.net.restart(member.node)
        elif len([*self.net.up()]) > 1:
            self.net.crash(member.node)
            self.statistics["lost power while another was hurt"] += bool(self.hurt - {member.node})

    def _cut(self, member: Member) -> None:
        other = self.dice.choice(self.net.others(member.node))
        if self.net.linked(member.node, other.node):
            self.net.cut(member.node, other.node)
        elif member.up and other.up:
            self.net.heal(member.node, other.node)

    # -- what must hold -----------------------------------------------------------------------

    def _look(self) -> None:
        member = self.net[self.dice.choice(sorted(self.net.members))]
        self._read(member)
        if not member.up or member.writer.busy:
            return
        copy = member.disk.clone()
        copy.close()
        identity = boot(copy, "test", member.node)
        _, found = open_wal(copy, identity, WalConfig(segment_bytes=SEGMENT_BYTES), self.net.groups)
        for group in self.net.groups:
            acceptor, again = member.multi.replicas[group].acceptor, found.groups.get(group)
            if again is None or not again.voting:
                self.statistics["restarts that would not vote"] += 1
                continue
            self.statistics["restarts that would vote"] += 1
            assert acceptor.voting, "it has given up the vote, and a restart takes it back"
            bound = max(again.promised, again.floor)
            assert bound >= acceptor.promised, (member.node, group)
            for slot, (ballot, entry) in acceptor.votes.items():
                if slot > max(again.proven, again.applied):
                    there, value = again.votes[slot]
                    assert there == ballot, (member.node, group, slot)
                    assert encoded(value) == encoded(entry), (member.node, group, slot)

    def _restart_who_knows_no_ballot(self) -> None:
        """The known gap of ADR 46: one of two members says Behind for ever, and nobody can do
        without it. After a restart it no longer knows what it cannot show."""
        for member in [*self.net.up()]:
            if member.engine.repairs.missing:
                self.net.crash(member.node)
                self.net.restart(member.node)
                self.statistics["restarted by an operator"] += 1

    def _is_over(self, group: GroupId) -> bool:
        """A master has settled everything that was open, and all members have it."""
        return any(one.acting(group) for one in self.net.up()) and whole(self.net, group)

    def _end(self) -> None:
        net = self.net
        for member in net.members.values():
            if not member.up:
                net.restart(member.node)
        for a in net.members:
            for b in net.members:
                if a < b:
                    net.heal(a, b)
        for member in net.up():
            self._scrub(member)
        net.advance(1_000)
        if len(net.members) == 2:
            self._restart_who_knows_no_ballot()
        for group in net.groups:
            net.until(lambda group=group: self._is_over(group), END_MS_MAX)  # type: ignore[misc]
        for member in net.up():
            self._scrub(member)
        net.advance(200)
        assert not any(member.engine.repairs.missing for member in net.up())
        for group in net.groups:
            texts = [member.ledgers[group].texts() for member in net.up()]
            assert texts == [texts[0]] * len(net.members)
            told = {
                text for one, text, found in self.outcomes
                if one == group and found and isinstance(found[0], Done)
            }  # fmt: skip
            assert told <= set(texts[0]), "acknowledged and lost"
            self.statistics["acknowledged"] += len(told)
        self.statistics["repaired"] += sum(one.engine.repairs.repaired for one in net.up())


def test_what_is_damaged_below_running_nodes_is_never_served_and_always_mended() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = World(seed)
        world.run()
        total += world.statistics
    for what, least in (
        ("damaged", 5),
        ("masters damaged", 1),
        ("reads", 500),
        ("reads refused", 1),
        ("repaired", 3),
        ("restarts that would vote", 100),
        ("acknowledged", 300),
    ):
        assert total[what] >= least * SEEDS / 6, (what, total)


@pytest.mark.parametrize(("nodes", "seeds"), OTHER_SIZES.items())
def test_nor_below_two_or_five(nodes: int, seeds: int) -> None:
    for seed in range(seeds):
        World(seed, nodes).run()


FORGETFUL: Final = ((3, 217), (3, 254), (2, 42), (2, 46))
"""Worlds, by nodes and seed, that stood still: each member in turn was repaired, and at its next
start forgot what it had not lost, until no member knew it (storage.log.damage_notes)."""


@pytest.mark.parametrize(("nodes", "seed"), FORGETFUL)
def test_what_was_not_hit_is_not_forgotten(nodes: int, seed: int) -> None:
    World(seed, nodes).run()


@pytest.mark.parametrize("seed", [23, 45])
def test_what_one_node_alone_has_applied_and_lost_does_not_stop_the_group(seed: int) -> None:
    """Worlds that stood still: the others had it as a vote (paxos.changes.testimony)."""
    World(seed).run()


BUGS: Final[dict[str, Mutant]] = {
    "a restart forgets what a running node knew of the damage": mutant(
        "ADR 46",
        "",
        (GroupState.lose_open, "any(slot in slots for slots in untouched)", "False"),
        tests="",
    ),
    "a restart takes no damage for the loss of a vote": mutant(
        "ADR 46", "", (LogState.costs_vote, "return not any(", "return False and any("), tests=""
    ),
    "what a running node is bound by is not written again": mutant(
        "ADR 46", "", (write_again, "step.persist.extend(records)", "pass"), tests=""
    ),
    "the next life is not told that what it has lost was chosen": mutant(
        "ADR 46", "", (write_again, "acceptor.promised, applied))", "acceptor.promised))"), tests=""
    ),
    "what was lost is not asked for": mutant(
        "ADR 17", "", (Repairs._ask, "if others:", "if not others:"), tests=""
    ),
    "what is read is not checked": mutant(
        "ADR 17",
        "",
        (decoded, "if record_intact(record, place, seed) and", "if"),
        tests="",
    ),
}
SEEDS_MAX: Final = 12
RARE: Final = {"a restart forgets what a running node knew of the damage": FORGETFUL}
"""Bugs that only a particular world shows."""


@pytest.mark.parametrize("name", BUGS)
def test_these_worlds_find(name: str) -> None:
    worlds = RARE.get(name, tuple((3, seed) for seed in range(SEEDS_MAX)))
    with plant(BUGS[name]):
        for nodes, seed in worlds:
            try:
                World(seed, nodes).run()
            except (AssertionError, LookupError):
                return
    pytest.fail(f"not in {len(worlds)} worlds")
