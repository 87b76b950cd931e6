"""`python -m simulator.whole.hunts`: look for the planted bugs; writes their table in the report.

`--only` looks for some and leaves the other rows as they are.
"""

import argparse
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from simulator.whole.hunts.catalogue import HUNTS, NOT_PLANTED
from simulator.whole.hunts.hunting import Hunt, run
from simulator.whole.options import draw

REPORT: Final = Path("docs/mutants.md")
TITLE: Final = "## In worlds of whole nodes"
NICENESS: Final = 12
NAME: Final = re.compile(r"\| [^|]+ \| `([^`]+)` \|")


def look_for(name: str, hunt: Hunt) -> str:
    """Its row."""
    cpu_s = 0.0
    for seed in range(hunt.seeds):
        options = hunt.options(seed)
        verdict = run(options, hunt.mutant)
        cpu_s += verdict.cpu_s
        if verdict.failure and not run(options).failure:
            said = verdict.failure.partition(":")[0]
            return row(hunt, name, f"world {seed + 1}", f"`{said}`", cpu_s)
    if hunt.swarm is not None:
        verdict = run(draw(hunt.swarm), hunt.mutant)
        cpu_s += verdict.cpu_s
        if verdict.failure and not run(draw(hunt.swarm)).failure:
            said = verdict.failure.partition(":")[0]
            return row(hunt, name, f"world {hunt.swarm} of the swarm", f"`{said}`", cpu_s)
    why = hunt.why_not or "no reason is known; more seeds may show it"
    return row(hunt, name, f"**not in {hunt.seeds}**", f"{why}; test: {hunt.elsewhere}", cpu_s)


def row(hunt: Hunt, name: str, seeds: str, found_by: str, cpu_s: float) -> str:
    cells = (hunt.point, f"`{name}`", hunt.mutant.what, seeds, found_by, f"{cpu_s:.1f}")
    return f"| {' | '.join(cells)} |"


def rows_in(text: str) -> dict[str, str]:
    lines = text.partition(TITLE)[2].splitlines()
    return {found[1]: line for line in lines if (found := NAME.match(line)) is not None}


def section(rows: Mapping[str, str]) -> str:
    found = sum("**not in" not in one for one in rows.values())
    lines = [
        TITLE,
        "",
        "Made by `python -m simulator.whole.hunts`. The faults of issues 22 and 23, and those that",
        "worlds have found since, with the fix taken out. Each is looked for in short worlds of",
        "whole nodes that have what it needs (`simulator/whole/hunts/catalogue.py`), seeds 0, 1,",
        "2, ...; it counts as found where a world fails with it and is clean without it. What only",
        "a test shows counts as not found. Some are named by a seed of the swarm, whose longer",
        "worlds showed them first. CPU seconds: of the worlds with the bug.",
        "",
        f"{len(rows)} planted, {found} found; {len(NOT_PLANTED)} kinds are not planted.",
        "",
        "| point | planted bug | what | found by | checker, or why not | CPU s |",
        "|---|---|---|---|---|---|",
        *rows.values(),
        "",
        "Not planted, for whole nodes could not show them:",
        "",
        *(f"- {what}: {why}." for what, why in NOT_PLANTED.items()),
        "",
    ]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.whole.hunts")
    parser.add_argument("--only", nargs="*", choices=sorted(HUNTS), default=[], metavar="BUG")
    arguments = parser.parse_args()
    os.nice(max(0, NICENESS - os.nice(0)))
    text = REPORT.read_text()
    rows = rows_in(text)
    for name in arguments.only or HUNTS:
        rows[name] = look_for(name, HUNTS[name])
        print(rows[name], flush=True)
        known = {one: rows[one] for one in HUNTS if one in rows}
        REPORT.write_text(text.partition(TITLE)[0].rstrip() + "\n\n" + section(known))
    return 0


if __name__ == "__main__":
    sys.exit(main())
