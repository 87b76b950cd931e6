"""`python -m pipeline JOB ...`: the jobs on Spark. The same file goes to spark-submit.

A job is a module with `HELP` (one line) and `main(argv) -> exit code`. Its `main` imports what it
needs of Spark, so help starts no JVM, and works without Spark installed.
"""

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final

JOBS: Final[Mapping[str, str]] = {
    "archive": "pipeline.archive.main",
    "archive-check": "pipeline.archive.check",
    "audit": "pipeline.audit.main",
    "placement": "pipeline.placement.main",
    "replay": "pipeline.archive.replay",
    "report": "pipeline.report.main",
}
"""Name of the job -> module."""
ROOMS: Final = (__package__ or "pipeline").removesuffix("pipeline")
"""What precedes a room's name where we are: nothing in a clone, more in the wheel (ADR 59)."""
USAGE: Final = "usage: python -m pipeline JOB [options]; JOB --help has the options"


def usage() -> str:
    """The list of jobs, one line each."""
    width = max(map(len, JOBS), default=0)
    lines = [
        f"  {name:{width}}  {import_module(ROOMS + module).HELP}" for name, module in JOBS.items()
    ]
    return "\n".join([USAGE, "", "jobs:", *lines])


def main(argv: Sequence[str]) -> int:
    """Run a job; returns its exit code. 2: there is no such job."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
        return 0 if argv else 2
    module = JOBS.get(argv[0])
    if module is None:
        print(f"no job named {argv[0]!r}\n\n{usage()}", file=sys.stderr)
        return 2
    code: int = import_module(ROOMS + module).main(argv[1:])
    return code


if __name__ == "__main__":
    if not __package__:  # spark-submit runs the file: imports do not start from our folder
        sys.path[0] = str(Path(__file__).resolve().parent.parent)
    sys.exit(main(sys.argv[1:]))
