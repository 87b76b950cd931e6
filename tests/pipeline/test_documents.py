"""The command lines in the documents are ones that the jobs accept."""

import re
import shlex
from importlib import import_module
from pathlib import Path

import pytest

from pipeline.__main__ import JOBS

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^ *```(?:sh|bash)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
RUN = r"(?:python -m pipeline|evenkeel spark|spark-submit .*?pipeline/__main__\.py)"
START = re.compile(RUN + r" +([a-z-]+)(.*)")


def commands() -> list[tuple[str, list[str]]]:
    """Job and arguments of every command line in the documents."""
    found = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        blocks = [block.replace("\\\n", " ") for block in BLOCK.findall(text)]
        lines = [line for block in blocks for line in block.splitlines()]
        matches = map(START.search, [*lines, *INLINE.findall(BLOCK.sub("", text))])
        found += [(one[1], shlex.split(one[2], comments=True)) for one in matches if one]
    return found


def help_of(job: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as end:
        import_module(JOBS[job]).main(["--help"])
    assert end.value.code in (0, None)
    return capsys.readouterr().out


def test_jobs_in_documents_exist_and_have_these_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = commands()
    assert {"archive", "replay", "report"} <= {job for job, _ in told} <= set(JOBS)
    helps = {job: help_of(job, capsys) for job in JOBS}
    for job, words in told:
        for word in words:
            option = word.partition("=")[0]
            if option.startswith("--"):
                assert re.search(rf"{option}\b", helps[job]), f"{job} {option}"
