"""Where a node's time goes: py-spy watches one node of a fresh cluster while it is under load.

    .venv/bin/pip install py-spy                   # a tool of yours, not a dependency of ours
    .venv/bin/python -m benchmarks.studies.profile requests
    .venv/bin/python -m benchmarks.studies.profile produce-1kb --node 2 --seconds 20

Prints the functions by their own time and by the time with all they call, as parts of the samples
in which the node was not idle, and keeps the stacks in the folded format that flame graph programs
read. Time spent in C (a send, a checksum, a copy) counts for the Python function that called it.
py-spy stops the node for every sample, so rates under it mean nothing.
"""

import argparse
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import attrs
import trio

from benchmarks.load.frames import TargetError
from benchmarks.load.jobs import Job, ProduceJob, RequestJob
from benchmarks.suites.bench import QUICK, Bench, BenchmarkFailed
from benchmarks.suites.suite import PARTITIONS
from benchmarks.target import Target, fresh_cluster

RESULTS_DIR: Final = Path("bench-results")
SAMPLES_PER_S: Final = 250
ROWS: Final = 25
PY_SPY_S_MAX: Final = 30.0
"""On top of the time that it was asked to record."""


class ProfileFailed(RuntimeError):
    """No profile; the message says why."""


@attrs.frozen
class Share:
    own: float
    total: float


def read_folded(text: str) -> tuple[Counter[tuple[str, ...]], int]:
    """Stacks, outermost frame first, with how often each was seen; and the total."""
    stacks: Counter[tuple[str, ...]] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        stacks[tuple(frame.rpartition(":")[0] + ")" for frame in frames.split(";"))] += int(count)
    return stacks, stacks.total()


def shares(stacks: Counter[tuple[str, ...]]) -> dict[str, Share]:
    """For every function the part of all samples in which it ran itself, and was on the stack."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for stack, count in stacks.items():
        own[stack[-1]] += count
        for frame in set(stack):
            total[frame] += count
    samples = stacks.total()
    return {frame: Share(own[frame] / samples, total[frame] / samples) for frame in total}


def table(found: dict[str, Share], key: Callable[[Share], float], title: str) -> str:
    lines = [f"{title:<62}{'own':>8}{'total':>8}", "-" * 78]
    best = sorted(found.items(), key=lambda item: (-key(item[1]), item[0]))[:ROWS]
    lines += [f"{frame[:61]:<62}{one.own:>8.1%}{one.total:>8.1%}" for frame, one in best]
    return "\n".join(lines)


def _job(load: str, target: Target, topic: str, seconds: float) -> Job:
    if load in ("requests", "single"):
        return RequestJob(
            bootstrap=target.bootstrap,
            topic=topic,
            connections=64 if load == "requests" else 1,
            in_flight=1,
            record_bytes=100,
            rate=0.0,
            first_node=0,
            warm_up_s=1.0,
            window_s=seconds,
            pids=target.pids,
        )
    return ProduceJob(
        bootstrap=target.bootstrap,
        topic=topic,
        partitions=PARTITIONS,
        message_bytes=100 if load == "produce-100b" else 1000,
        idempotent=True,
        warm_up_s=1.0,
        window_s=seconds,
        pids=target.pids,
    )


async def _profile(options: argparse.Namespace, path: Path) -> None:
    async with fresh_cluster(groups=12, overrides=options.overrides, say=print) as target:
        bench = Bench(target, QUICK, print)
        pid = target.pids[options.node - 1]
        async with target.topic("profile", PARTITIONS) as topic, trio.open_nursery() as nursery:
            job = _job(options.load, target, topic, options.seconds + 2)
            nursery.start_soon(_load, bench, job)
            await trio.sleep(2)
            await trio.to_thread.run_sync(_record, pid, options.seconds, path)
            nursery.cancel_scope.cancel()


async def _load(bench: Bench, job: Job) -> None:
    measured = await bench.run(job)
    print(
        f"{measured.per_s:,.0f}/s, {measured.node_us_per_count:.3g} us of the nodes' time for one"
    )


def _record(pid: int, seconds: int, path: Path) -> None:
    look = ["--pid", str(pid), "--duration", str(seconds), "--rate", str(SAMPLES_PER_S)]
    kept = ["--format", "raw", "--output", str(path)]
    try:
        done = subprocess.run(
            [_py_spy(), "record", *look, *kept],
            capture_output=True,
            text=True,
            timeout=seconds + PY_SPY_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ProfileFailed("py-spy did not end in time") from error
    if done.returncode != 0:
        raise ProfileFailed(f"py-spy: {done.stderr.strip()}")


def _py_spy() -> str:
    beside = Path(sys.executable).with_name("py-spy")
    found = str(beside) if beside.exists() else shutil.which("py-spy")
    if found is None:
        raise ProfileFailed(f"py-spy is not installed: {sys.executable} -m pip install py-spy")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.studies.profile",
        description="Profile one node under load with py-spy.",
    )
    parser.add_argument("load", choices=("requests", "single", "produce-100b", "produce-1kb"))
    parser.add_argument("--node", type=int, default=1, choices=(1, 2, 3))
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--output", type=Path, help="folded stacks; default in bench-results/")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="S.K=V")
    options = parser.parse_args(arguments)
    path = options.output or RESULTS_DIR / f"profile-{options.load}-node-{options.node}.folded"
    path.parent.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    try:
        _py_spy()
        trio.run(_profile, options, path)
    except* (ProfileFailed, BenchmarkFailed, TargetError) as group:
        failures += map(str, group.exceptions)
    if failures:
        print(f"profile: {'; '.join(failures)}", file=sys.stderr)
        return 1
    stacks, samples = read_folded(path.read_text(encoding="utf-8"))
    found = shares(stacks)
    print(f"\n{samples} samples of node {options.node} under {options.load}; stacks in {path}\n")
    print(table(found, lambda one: one.own, "function, by its own time"))
    print(f"\n{table(found, lambda one: one.total, 'function, by the time with all it calls')}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
