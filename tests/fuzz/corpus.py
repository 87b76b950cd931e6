"""The kept inputs: text, small, one hexadecimal line per input, so that changes can be reviewed.

For each target `corpus/<target>/found.hex` holds inputs that reached something no sample reaches;
`make fuzz ARGS=--keep` writes it anew, smallest inputs first. `bugs.hex` is written by hand: inputs
that were findings once, each under a line that names the bug.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from tests.fuzz.engine import Target, execute

CORPUS: Final = Path(__file__).parent / "corpus"
FOUND: Final = "found.hex"
BUGS: Final = "bugs.hex"
INPUT_KEPT_BYTES_MAX: Final = 1_000
TARGET_KEPT_BYTES_MAX: Final = 6_000
"""Of one target's found.hex, hexadecimal digits and all."""


def read(path: Path) -> list[bytes]:
    """The inputs of a file; none if there is no such file."""
    if not path.exists():
        return []
    lines = path.read_text("ascii").splitlines()
    return [bytes.fromhex(line) for line in lines if not line.startswith("#")]


def kept(target: str) -> list[bytes]:
    """All inputs kept for a target, former bugs first."""
    return [*read(CORPUS / target / BUGS), *read(CORPUS / target / FOUND)]


def _chosen(target: Target, known: Iterable[str], inputs: Iterable[bytes]) -> Iterator[bytes]:
    """The smallest inputs that together show every new feature, within bounds."""
    seen = set(known)
    left = TARGET_KEPT_BYTES_MAX
    for data in sorted(set(inputs), key=lambda one: (len(one), one)):
        line = 2 * len(data) + 1
        if len(data) > INPUT_KEPT_BYTES_MAX or line > left:
            continue
        new = execute(target, data) - seen
        if new:
            seen |= new
            left -= line
            yield data


def keep(target: Target, samples: Iterable[bytes], inputs: Iterable[bytes]) -> int:
    """Write found.hex anew from what was kept and what was found; returns the number of its
    inputs."""
    known: set[str] = set()
    for data in [*samples, *read(CORPUS / target.name / BUGS)]:
        known |= execute(target, data)
    path = CORPUS / target.name / FOUND
    chosen = list(_chosen(target, known, [*read(path), *inputs]))
    if chosen:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{data.hex()}\n" for data in chosen), "ascii")
    return len(chosen)
