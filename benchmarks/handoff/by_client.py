"""What clients of several languages see while masters move: lost, twice, errors, silence.

A fresh cluster of three nodes for each client and kind of producer; one topic whose partitions are
in all groups, and sends that reach several nodes at a time. Groups are moved one after the other,
some twice in a row, so that a former master forwards to one that has just handed the group on. The
group of the coordinator stays: what its moves cost is another measurement.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE
from typing import Any, Final

import attrs
import trio
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from benchmarks.handoff.figures import percentile
from benchmarks.handoff.moves import FORWARDED, NODES, NOT_LEADER, OVERRIDES, Cluster, in_thread
from benchmarks.handoff.programs import Program
from benchmarks.load.frames import TargetError
from broker.groups.consumer_groups import hash_consumer_group
from cluster import state, workload
from cluster.launcher import launch
from cluster.spec import plan

GROUPS: Final = 4
PARTITIONS: Final = 8
TOPIC, CONSUMERS = "moving", "moving"
START_S: Final = 120.0
END_S: Final = 80.0
"""A program that has not ended so long after it was told to is hung."""
MOVED_S: Final = 15.0
AUDIT_S: Final = 60.0
PAUSE_S: Final = 0.25
TWICE_EVERY: Final = 5
"""Every so many moves are followed by the next one of the same group at once."""


@attrs.define
class Told:
    """What a program has said so far."""

    acked: list[tuple[int, int]] = attrs.Factory(list)
    """(wall ms, number), as for `read`."""
    read: list[tuple[int, int]] = attrs.Factory(list)
    errors: list[str] = attrs.Factory(list)
    warnings: list[str] = attrs.Factory(list)
    ready: bool = False
    sent: int | None = None

    @property
    def has_begun(self) -> bool:
        return self.ready and bool(self.acked and self.read)

    def heard(self, line: str) -> None:
        letter, _, rest = line.partition(" ")
        if letter in ("a", "r"):
            at, number = rest.split()
            (self.acked if letter == "a" else self.read).append((int(at), int(number)))
        elif letter == "ready":
            self.ready = True
        elif letter == "end":
            self.sent = int(rest)
        else:
            (self.warnings if letter == "w" else self.errors).append(rest or line)


@attrs.frozen(kw_only=True)
class Seen:
    """One client, with one kind of producer."""

    client: str
    idempotent: bool
    rate: int
    moves: int
    sent: int
    acknowledged: int
    lost: int
    """Acknowledged, and not in the log."""
    twice: int
    """In the log more than once."""
    disordered: int
    """Behind a later one of its partition."""
    unread: int
    """Acknowledged, and not given to the client's own consumer."""
    read_twice: int
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hung: bool
    silence_ms: dict[str, float]
    """Between two acknowledgements."""
    read_silence_ms: dict[str, float]
    refusals: int
    """Requests answered NOT_LEADER_OR_FOLLOWER, by the nodes' count."""
    forwarded: int

    def missed_bars(self) -> list[str]:
        counts = {
            "lost": self.lost,
            "twice": self.twice,
            "errors": len(self.errors),
            "unread": self.unread,
            "hung": int(self.hung),
        }
        return [f"{count} {what}" for what, count in counts.items() if count]

    def summary(self) -> dict[str, Any]:
        value = attrs.asdict(self)
        for name in ("errors", "warnings"):
            value[name] = len(value[name])
            value[f"{name[:-1]}_examples"] = list(getattr(self, name)[:5])
        return value


async def watch(
    program: Program, *, idempotent: bool, rate: int, moves: int, overrides: tuple[str, ...] = ()
) -> Seen:
    """
    Raises:
    TargetError: if the program does not start, or a group does not move.
    """
    state.DEFAULT_DATA_DIR.mkdir(parents=True, exist_ok=True)
    data_dir = Path(tempfile.mkdtemp(prefix="moving-", dir=state.DEFAULT_DATA_DIR))
    try:
        spec, _ = plan(data_dir, node_count=NODES, groups=GROUPS, fixed_ports=False)
        async with launch(spec, overrides=(*OVERRIDES, *overrides)) as launcher:
            await launcher.start_all(START_S)
            cluster = Cluster(spec, launcher, 0)
            await cluster.until_even()
            create = partial(workload.create_topic, partitions=PARTITIONS, replication=NODES)
            await in_thread(partial(create, spec.bootstrap, TOPIC))
            kind = "idempotent" if idempotent else "plain"
            arguments = (spec.bootstrap, TOPIC, CONSUMERS, str(PARTITIONS), str(rate), kind)
            told, hung, done = Told(), False, 0
            problem: TargetError | None = None
            before = await _counters(cluster)
            async with trio.open_nursery() as nursery:
                start = partial(
                    trio.run_process, [*program.command, *arguments], stdin=PIPE, stdout=PIPE
                )
                process: trio.Process = await nursery.start(partial(start, check=False))
                nursery.start_soon(_listen, process, told)
                try:
                    await _until(lambda: told.has_begun, START_S, told)
                    done = await _move_about(cluster, moves)
                    assert process.stdin is not None
                    await process.stdin.aclose()
                    with trio.move_on_after(END_S) as scope:
                        await process.wait()
                    hung = scope.cancelled_caught
                except TargetError as error:
                    problem = error
                if process.returncode is None:
                    process.kill()
            if problem is not None:
                raise problem
            after = await _counters(cluster)
            stored = await in_thread(partial(stored_numbers, spec.bootstrap))
            launcher.hurry.set()  # nobody needs its data: no graceful end
            refusals, forwarded = (end - begin for end, begin in zip(after, before, strict=True))
            return judged(
                program.client,
                told,
                stored,
                idempotent=idempotent,
                rate=rate,
                moves=done,
                hung=hung or told.sent is None,
                refusals=refusals,
                forwarded=forwarded,
            )
    finally:
        shutil.rmtree(data_dir)


async def _counters(cluster: Cluster) -> tuple[int, int]:
    return await cluster.counted(NOT_LEADER), await cluster.counted(FORWARDED)


async def _listen(process: trio.Process, told: Told) -> None:
    assert process.stdout is not None
    rest = b""
    async for chunk in process.stdout:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                told.heard(line.decode(errors="replace"))


async def _until(condition: Callable[[], bool], seconds: float, told: Told) -> None:
    with trio.move_on_after(seconds):
        while True:
            if condition():
                return
            await trio.sleep(0.01)
    said = (told.errors + told.warnings)[-1:] or ["it said nothing"]
    raise TargetError(f"the client did not begin in {seconds:.0f} s: {said[0]}")


async def _move_about(cluster: Cluster, moves: int) -> int:
    """How many groups were moved: one that does not move on a busy machine is left alone."""
    done = 0
    kept = 1 + hash_consumer_group(CONSUMERS, GROUPS)
    movable = [group for group in range(1, GROUPS + 1) if group != kept]
    for number in range(moves):
        cluster.group = movable[number // TWICE_EVERY % len(movable)]
        if number % TWICE_EVERY < 3:
            cluster.group = movable[number % len(movable)]
        master = (await cluster.view()).masters()[cluster.group]
        if master is None:
            continue
        target = master % NODES + 1
        await cluster.place(target)
        with trio.move_on_after(MOVED_S):
            while True:
                if (await cluster.view()).masters()[cluster.group] == target:
                    done += 1
                    break
                await trio.sleep(0.01)
        if number % TWICE_EVERY < 3:
            await trio.sleep(PAUSE_S)
    if not done:
        raise TargetError(f"none of {moves} moves came about")
    return done


def stored_numbers(bootstrap: str) -> list[list[int]]:
    """What is in the log, by partition, in order."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "audit", "enable.auto.commit": False}
    consumer = Consumer(settings, logger=workload.CLIENT_LOG)
    places = [TopicPartition(TOPIC, one, OFFSET_BEGINNING) for one in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(one, timeout=AUDIT_S)[1] for one in places]
    stored: list[list[int]] = [[] for _ in places]
    consumer.assign(places)
    deadline = time.monotonic() + AUDIT_S
    while any(len(row) < end for row, end in zip(stored, ends, strict=True)):
        if time.monotonic() > deadline:
            raise TargetError(f"only {sum(map(len, stored))} of {sum(ends)} messages can be read")
        for message in consumer.consume(1_000, 0.2):
            value, partition = message.value(), message.partition()
            if message.error() is None and value is not None and partition is not None:
                stored[partition].append(int(value))
    consumer.close()
    return stored


def judged(
    client: str,
    told: Told,
    stored: Sequence[Sequence[int]],
    *,
    idempotent: bool,
    rate: int,
    moves: int,
    hung: bool,
    refusals: int,
    forwarded: int,
) -> Seen:
    """A pure function of what the program said and what is in the log."""
    counts = Counter(number for row in stored for number in row)
    acked = {number for _, number in told.acked}
    read = Counter(number for _, number in told.read)
    return Seen(
        client=client,
        idempotent=idempotent,
        rate=rate,
        moves=moves,
        sent=told.sent or 0,
        acknowledged=len(acked),
        lost=len(acked - counts.keys()),
        twice=sum(count - 1 for count in counts.values()),
        disordered=sum(later < earlier for row in stored for earlier, later in pairwise(row)),
        unread=len(acked - read.keys()),
        read_twice=sum(count - 1 for count in read.values()),
        errors=tuple(told.errors),
        warnings=tuple(told.warnings),
        hung=hung,
        silence_ms=_silence([at for at, _ in told.acked]),
        read_silence_ms=_silence([at for at, _ in told.read]),
        refusals=refusals,
        forwarded=forwarded,
    )


def _silence(times_ms: Sequence[int]) -> dict[str, float]:
    gaps = [float(later - earlier) for earlier, later in pairwise(times_ms)] or [0.0]
    return {"p99": percentile(gaps, 99), "max": max(gaps)}
