# ruff: noqa: T201 (a command: what it finds it prints)
"""`make fuzz MINUTES=10`: all targets in turn, each for its share of the time, and a table.

    python -m tests.fuzz --minutes 10                      every target
    python -m tests.fuzz --executions 5000 --seed 7        so many of each, replayable
    python -m tests.fuzz --target peer-link --guided       one, by branch coverage (needs atheris)
    python -m tests.fuzz --target peer-link --replay HEX   one input again

A finding is made smaller, printed and written to build/fuzz/; the exit code is then 1. With --keep
the corpus is written anew from what was kept and what was found.
"""

import argparse
import hashlib
import importlib.util
import json
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs

from tests.fuzz import corpus
from tests.fuzz.engine import Campaign, Finding, Target, execute, feature_of, peak_rss_kib
from tests.fuzz.targets import targets_named

OUT: Final = Path("build/fuzz")
STEPS_BETWEEN_LOOKS: Final = 50
SHRINK_TRIES_MAX: Final = 400


@attrs.frozen(kw_only=True)
class Row:
    """One line of the table, and of report.json."""

    target: str
    executions: int
    per_second: int
    features: int
    found: int
    findings: int
    cpu_ms: float
    memory_kib: int
    rss_grown_kib: int


def fuzz(target: Target, seed: int, *, seconds: float, executions: int) -> tuple[Row, Campaign]:
    """One campaign; it continues after a finding, and reports each kind of finding once."""
    campaign = Campaign(target, seed, corpus.kept(target.name))
    told: set[str] = set()
    rss_kib = peak_rss_kib()
    began = time.monotonic()
    while True:
        try:
            if not campaign.executions:
                campaign.begin()
            while not _is_over(campaign, began, seconds, executions):
                campaign.run(STEPS_BETWEEN_LOOKS)
            break
        except Finding as finding:
            kind = feature_of(finding.__cause__ or Exception(finding.what))
            if kind not in told:
                told.add(kind)
                report(target, seed, campaign.executions, shrunk(target, finding))
            if _is_over(campaign, began, seconds, executions):
                break
    took = time.monotonic() - began
    row = Row(
        target=target.name,
        executions=campaign.executions,
        per_second=round(campaign.executions / max(took, 1e-3)),
        features=len(campaign.seen),
        found=len(campaign.found),
        findings=len(told),
        cpu_ms=round(campaign.worst.cpu_ms, 1),
        memory_kib=campaign.worst.memory_bytes >> 10,
        rss_grown_kib=peak_rss_kib() - rss_kib,
    )
    return row, campaign


def _is_over(campaign: Campaign, began: float, seconds: float, executions: int) -> bool:
    if executions:
        return campaign.executions >= executions
    return time.monotonic() - began >= seconds


def _pieces_taken_out(data: bytes) -> Iterator[bytes]:
    size = len(data) // 2
    while size:
        for at in range(0, len(data), size):
            yield data[:at] + data[at + size :]
        size //= 2


def shrunk(target: Target, finding: Finding) -> Finding:
    """The same kind of finding from fewer bytes, as far as removing pieces leads."""
    kind = type(finding.__cause__)
    tries = 0
    smaller = True
    while smaller and tries < SHRINK_TRIES_MAX:
        smaller = False
        for data in _pieces_taken_out(finding.data):
            tries += 1
            try:
                execute(target, data)
            except Finding as other:
                if type(other.__cause__) is kind:
                    finding, smaller = other, True
                    break
            if tries >= SHRINK_TRIES_MAX:
                break
    return finding


def report(target: Target, seed: int, executions: int, finding: Finding) -> None:
    """Print a finding and how to run it again; keep its bytes."""
    OUT.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(finding.data).hexdigest()[:12]
    path = OUT / f"{target.name}-{name}.hex"
    path.write_text(finding.data.hex() + "\n", "ascii")
    print(f"\nFINDING (seed {seed}, execution {executions}) {str(finding)[:2_000]}")
    if finding.__cause__ is not None:
        traceback.print_exception(finding.__cause__, limit=-6, file=sys.stdout)
    print(f"again: python -m tests.fuzz --target {target.name} --replay @{path}\n", flush=True)


def replay(target: Target, text: str) -> int:
    """Run one input under all limits."""
    data = bytes.fromhex(Path(text[1:]).read_text("ascii") if text.startswith("@") else text)
    try:
        features = execute(target, data, weigh=True)
    except Finding as finding:
        print(finding)
        traceback.print_exception(finding, file=sys.stdout)
        return 1
    print("\n".join(sorted(features)))
    return 0


def guided(targets: Sequence[Target], seed: int, seconds: float) -> int:
    """Each target under atheris in a process of its own; findings go to build/fuzz/."""
    if importlib.util.find_spec("atheris") is None:
        print("skipped: atheris is not installed (pip install atheris); nothing else needs it")
        return 0
    failed = []
    for target in targets:
        folder = OUT / "guided" / target.name
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.fuzz.guided", target.name, str(seed)]
        done = subprocess.run([*command, str(max(1, int(seconds))), str(folder)], check=False)
        print(f"{target.name}: {sum(1 for _ in folder.iterdir())} inputs, exit {done.returncode}")
        if done.returncode:
            failed.append(target.name)
    print(f"findings in {', '.join(failed)}" if failed else "no findings")
    return 1 if failed else 0


def harvest(target: Target) -> list[bytes]:
    """What guided runs have left for a target."""
    folder = OUT / "guided" / target.name
    return [path.read_bytes() for path in sorted(folder.iterdir())] if folder.exists() else []


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--minutes", type=float, default=1.0, help="for all targets together")
    parser.add_argument("--executions", type=int, default=0, help="of each target, not by time")
    parser.add_argument("--target", default="", help="only those whose names begin so")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="write the corpus anew")
    parser.add_argument("--guided", action="store_true", help="by branch coverage, with atheris")
    parser.add_argument("--replay", default="", metavar="HEX|@FILE")
    return parser.parse_args(arguments)


def _show(row: Row) -> None:
    print(
        f"{row.target:28} {row.executions:10,} {row.per_second:8,} {row.features:8} {row.found:8}"
        f" {row.cpu_ms:8.1f} {row.memory_kib:8,} {row.rss_grown_kib:8,} {row.findings:8}",
        flush=True,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parsed(arguments)
    targets = targets_named(options.target)
    if options.replay:
        return replay(targets[0], options.replay)
    seconds = 60 * options.minutes / len(targets)
    if options.guided:
        return guided(targets, options.seed, seconds)
    heads = ("executions", "per s", "features", "new", "max ms", "max KiB", "RSS KiB", "findings")
    print(
        f"seed {options.seed}\n{'target':28} {heads[0]:>9}", *(f"{head:>8}" for head in heads[1:])
    )
    rows = []
    for target in targets:
        row, campaign = fuzz(target, options.seed, seconds=seconds, executions=options.executions)
        _show(row)
        rows.append(row)
        if options.keep:
            samples = [one.data for one in target.samples(campaign.fresh_dice())]
            corpus.keep(target, samples, [*campaign.found.values(), *harvest(target)])
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "report.json").write_text(
        json.dumps({"seed": options.seed, "targets": [attrs.asdict(row) for row in rows]}, indent=1)
    )
    total, findings = sum(row.executions for row in rows), sum(row.findings for row in rows)
    print(f"{total:,} executions, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
