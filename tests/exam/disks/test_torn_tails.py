"""Exam row S3: the last 1 to 4,096 bytes of a dead node's log are cut off or garbled.

Bytes that were never synced were never acknowledged: they are cut off, and the node goes on. Synced
bytes are different, wherever they stand: others rely on them. Then the node reports the damage,
does not vote where it may have forgotten something, gets its lost data back, and votes again.
"""

import random
from pathlib import Path

import pytest

from cluster.workload import SteadyProducer
from storage.format import OFFSET_BITS, OFFSET_MASK, SEGMENT_HEADER_BYTES, segment_name
from tests.cluster.scenery import FULL, acknowledged, judge, load, until
from tests.doses import ONLY_IN_FULL
from tests.exam.disks.logs import log_of, opened, whole
from tests.exam.hurting import Hurting, hurting
from tests.exam.own_copies import judge_own_copies
from tests.exam.points import TORN

pytestmark = pytest.mark.cluster

BYTES_MAX = 4096
RATE = 200
PAD_BYTES = 300
SKIP_MAX = 40
DOSES = 20 if FULL else 1
A_FEW = 5
DIE_UNSYNCED = ("fsync.before", TORN, "wal-write.after")


def spoil(directory: Path, end: int, size: int, dice: random.Random) -> None:
    """The last bytes before `end` become zeros, as if never written, or anything else."""
    path = directory / segment_name(end >> OFFSET_BITS)
    rubbish = bytes(size) if dice.random() < 0.5 else dice.randbytes(size)
    with path.open("r+b") as file:
        file.seek((end & OFFSET_MASK) - size)
        file.write(rubbish)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_torn_tail_is_cut_off(tmp_path: Path) -> None:
    """The node dies between a write and its fdatasync, and all or half of the write is lost."""
    dice = random.Random(3)
    async with hurting(tmp_path) as hurt:
        cluster = hurt.cluster
        async with load(cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await until(cluster, whole, "all nodes vote")
            missed = 0
            for number in range(DOSES):
                victim = number % 3 + 1
                hurt.marks.fault(f"the tail of node {victim} is torn")
                point = DIE_UNSYNCED[number % len(DIE_UNSYNCED)]
                hurt.order(victim, "crash", f"{point} {dice.randrange(SKIP_MAX)}")
                await hurt.died(victim)
                torn = tear(cluster.spec.data_dir / f"node-{victim}", dice)
                missed += not torn and point != TORN
                await come_back(hurt, producer, victim)
                assert not opened(hurt, victim)["damage"]
                hurt.marks.heal()
        # A sync that was under way may have ended before the process did.
        assert missed <= DOSES // 5, f"{missed} times nothing was there that was not synced"
        await judge(cluster, producer)
        await judge_own_copies(cluster, tmp_path)


def tear(directory: Path, dice: random.Random) -> bool:
    """Spoil some of the unsynced bytes; False if there are none."""
    log = log_of(directory)
    start = log.synced if log.synced >> OFFSET_BITS == log.end >> OFFSET_BITS else 0
    unsynced = log.end - max(start, log.end & ~OFFSET_MASK | SEGMENT_HEADER_BYTES)
    if unsynced <= 0:
        return False
    spoil(directory, log.end, dice.randint(1, min(BYTES_MAX, unsynced)), dice)
    return True


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_tail_that_was_synced_is_missed_and_repaired(tmp_path: Path) -> None:
    dice = random.Random(4)
    async with hurting(tmp_path) as hurt:
        cluster = hurt.cluster
        async with load(cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await acknowledged(producer, A_FEW)
            for number in range(DOSES):
                await until(cluster, whole, "all nodes vote")
                victim = number % 3 + 1
                hurt.marks.fault(f"the log of node {victim} loses its end")
                await cluster.kill(victim)
                directory = cluster.spec.data_dir / f"node-{victim}"
                synced = log_of(directory).synced
                room = (synced & OFFSET_MASK) - SEGMENT_HEADER_BYTES
                spoil(directory, synced, dice.randint(1, min(BYTES_MAX, room)), dice)
                await come_back(hurt, producer, victim)
                assert opened(hurt, victim)["damage"], "it did not notice"
                await until(cluster, whole, "all nodes vote again")
                hurt.marks.heal()
            await acknowledged(producer, A_FEW)
        await judge(cluster, producer)
        await judge_own_copies(cluster, tmp_path)


async def come_back(hurt: Hurting, producer: SteadyProducer, victim: int) -> None:
    await acknowledged(producer, A_FEW)  # two of three keep serving
    await hurt.cluster.restart(victim)
    await until(hurt.cluster, whole, "all nodes vote")
