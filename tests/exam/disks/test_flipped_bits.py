"""Exam row S4: two random bits in a dead node's directory are flipped.

In the log: `evenkeel data verify` reports them and the start finds them. The node does not vote
where it may have forgotten something, gets its lost data back from its peers, and votes again. In
things that are kept twice (the header of a segment, the identity, the synced mark): one copy is
lost, and nothing else happens. Throughout, and in the end from the damaged nodes themselves,
clients read exactly what was written.
"""

import random
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from cluster import health
from storage.format import OFFSET_BITS, OFFSET_MASK, SEGMENT_HEADER_BYTES, segment_number
from storage.identity import IDENTITY_COPY_NAME, IDENTITY_NAME
from storage.log.synced_mark import MARK_NAME
from tests.cluster.scenery import FULL, acknowledged, judge, load, until
from tests.doses import ONLY_IN_FULL
from tests.exam.disks.logs import log_of, opened, whole
from tests.exam.hurting import SMALL_SEGMENTS, Hurting, hurting, until_true
from tests.exam.own_copies import judge_own_copies

pytestmark = pytest.mark.cluster

DOSES = 30
BITS = 2
BELOW = 4
"""Times two bits, for a node with checkpoints."""
RATE = 200
PAD_BYTES = 1000
A_FEW = 5
APART_BYTES = 16 << 10
"""Two flips this far apart are never in one record, which would already be known as damaged."""
DRAWS_MAX = 1000
HEADER_COPY_BYTES = 132
MARK_COPY_BYTES = 12
"""The meaningful bytes of each copy; zeros follow."""
SOME = 30
"""Acknowledgements in each partition: enough log for that many flips."""
PLACES = ("log", "header", "log", "log", "log", "identity", "log", "log", "log", "mark")
"""The first two are the taste: one thing kept once, and one kept twice."""


@attrs.define
class Flipper:
    """Flips bits in the directory of one node, never twice in one place."""

    directory: Path
    _dice: random.Random
    _hurt: set[tuple[str, int]] = attrs.Factory(set)

    def flip(self, place: str) -> None:
        if place == "log":
            for _ in range(BITS):
                self._flip(*self._in_the_log(), self._dice.randrange(8))
        else:
            name, size = self._copy(place)
            for bit in self._dice.sample(range(8 * size), BITS):
                self._flip(name, *divmod(bit, 8))

    def _flip(self, name: str, at: int, bit: int) -> None:
        with (self.directory / name).open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 1 << bit]))

    def _in_the_log(self) -> tuple[str, int]:
        """Below the synced mark: what is above may be a torn tail, which was never acknowledged."""
        log = log_of(self.directory)
        ends = {}
        for seen in log.segments:
            number = segment_number(seen.name)
            assert number is not None
            last = number == log.synced >> OFFSET_BITS
            ends[seen.name] = min(seen.used, log.synced & OFFSET_MASK) if last else seen.used
        for _ in range(DRAWS_MAX):
            (name,) = self._dice.choices([*ends], [*ends.values()])
            if ends[name] > SEGMENT_HEADER_BYTES:
                at = self._dice.randrange(SEGMENT_HEADER_BYTES, ends[name])
                around = {(name, at // APART_BYTES + near) for near in (-1, 0, 1)}
                if not around & self._hurt:
                    self._hurt.add((name, at // APART_BYTES))
                    return name, at
        pytest.fail("the log is too short for so many flips")

    def _copy(self, place: str) -> tuple[str, int]:
        """One of two copies: the file that begins with it, and its length."""
        if place == "mark":
            return MARK_NAME, MARK_COPY_BYTES
        if place == "identity":
            name = self._dice.choice((IDENTITY_NAME, IDENTITY_COPY_NAME))
            return name, (self.directory / name).stat().st_size
        used = [seen.name for seen in log_of(self.directory).segments if seen.used]
        return self._dice.choice(used), HEADER_COPY_BYTES


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_flipped_bits_are_noticed_and_repaired(tmp_path: Path) -> None:
    dice = random.Random(5)
    async with hurting(tmp_path, *SMALL_SEGMENTS) as hurt:
        cluster = hurt.cluster
        data = cluster.spec.data_dir
        flippers = {n: Flipper(data / f"node-{n}", dice) for n in (1, 2, 3)}
        async with load(cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await until(cluster, whole, "all nodes vote")
            await acknowledged(producer, SOME)
            for number in range(DOSES):
                victim, place = number % 3 + 1, PLACES[number % len(PLACES)]
                await acknowledged(producer, A_FEW)
                hurt.marks.fault(f"bits of node {victim}: {place}")
                await cluster.kill(victim)
                flippers[victim].flip(place)
                problems = log_of(data / f"node-{victim}").problems
                assert problems or place == "mark", "`evenkeel data verify` finds nothing"
                await acknowledged(producer, A_FEW)  # two of three keep serving
                await cluster.restart(victim)
                noticed = opened(hurt, victim)["damage"]
                assert bool(noticed) == (place == "log"), (place, problems, noticed)
                assert await alarm(hurt, victim) >= len(noticed)
                await until(cluster, whole, "all nodes vote again")
                hurt.marks.heal()
            await acknowledged(producer, A_FEW)
        await judge(cluster, producer)
        await judge_own_copies(cluster, tmp_path)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_batches_below_a_checkpoint_are_repaired_as_well(tmp_path: Path) -> None:
    """After a restart no slot leads to them. The node becomes master in the end, so they are
    read."""
    dice = random.Random(6)
    async with hurting(tmp_path, *SMALL_SEGMENTS, "storage.checkpoint_records=1000") as hurt:
        cluster, victim = hurt.cluster, 2
        directory = cluster.spec.data_dir / f"node-{victim}"
        flipper = Flipper(directory, dice)
        async with load(cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await until(cluster, whole, "all nodes vote")
            await acknowledged(producer, SOME)
            seen = {one.name for one in directory.glob("checkpoint-*.ckpt")}
            await until_true(
                lambda: len({one.name for one in directory.glob("checkpoint-*.ckpt")} - seen) > 3,
                "groups have been written down",
            )
            await cluster.kill(victim)
            for _ in range(BELOW):
                flipper.flip("log")
            await cluster.restart(victim)
            assert opened(hurt, victim)["damage"]
            await until(cluster, whole, "all nodes vote again")
            await acknowledged(producer, A_FEW)
        body = {"all_on": victim}
        await health.call_async(cluster.spec.node(victim).http, "POST", "/admin/placement", body)
        on_victim = lambda view: set(view.masters().values()) == {victim}  # noqa: E731
        await until(cluster, on_victim, "it is master of everything")
        await judge(cluster, producer)


async def alarm(hurt: Hurting, node: int) -> float:
    http = hurt.cluster.spec.node(node).http
    ask = partial(health.request, http, "GET", "/metrics", timeout_s=10)
    _, text = await trio.to_thread.run_sync(ask)
    name = "evenkeel_log_damage_total "
    (line,) = [one for one in text.decode().splitlines() if one.startswith(name)]
    return float(line.removeprefix(name))
