"""rsyslog: its output into a topic (omkafka), and its input from one (imkafka)."""

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.compat.language_rows import MOVES, SECONDS, create, log_of, numbers, write
from tests.compat.languages import Ground, Missing, Program, Row

MODULES: Final = Path("/usr/lib/x86_64-linux-gnu/rsyslog")
EACH: Final = 50
OUTPUT: Final = """
module(load="imfile" PollingInterval="1")
module(load="omkafka")
template(name="plain" type="string" string="%msg%")
input(type="imfile" file="{lines}" tag="compat" ruleset="out")
ruleset(name="out") {{
  action(type="omkafka" broker=[{brokers}] topic="{topic}" template="plain"
         resubmitOnFailure="on" keepFailedMessages="on" failedMsgFile="{failed}"
         action.resumeRetryCount="-1" confParam=["compression.codec=snappy"])
}}
"""
INPUT: Final = """
module(load="imkafka")
template(name="plain" type="string" string="%rawmsg%\\n")
input(type="imkafka" broker=[{brokers}] topic="{topic}" consumergroup="{topic}" ruleset="in"
      confParam=["auto.offset.reset=earliest"])
ruleset(name="in") {{
  action(type="omfile" file="{lines}" template="plain")
}}
"""


def program() -> Program:
    if shutil.which("rsyslogd") is None:
        raise Missing("no rsyslogd here (Debian: rsyslog, rsyslog-kafka)")
    for module in ("omkafka.so", "imkafka.so"):
        if not (MODULES / module).exists():
            raise Missing(f"no {module} here (Debian: rsyslog-kafka)")
    said = subprocess.run(["rsyslogd", "-v"], capture_output=True, text=True).stdout
    found = re.search(r"rsyslogd\s+(\S+)", said)
    assert found, said
    return Program("Frameworks", f"rsyslog {found[1]}", ("rsyslogd",), own=ROWS)


@contextmanager
def _running(ground: Ground, settings: str) -> Iterator[Path]:
    """With a file of lines; it is asked to end, and ends when all of them are away."""
    lines = ground.scratch / "lines.txt"
    lines.touch()
    words = {
        "lines": lines,
        "topic": ground.name,
        "failed": ground.scratch / "failed.txt",
        "brokers": ",".join(f'"{one}"' for one in ground.bootstrap.split(",")),
    }
    work = f'global(workDirectory="{ground.scratch}")\n'
    configuration = ground.scratch / "rsyslog.conf"
    configuration.write_text(work + settings.format(**words))
    command = ["rsyslogd", "-n", "-f", str(configuration), "-i", str(ground.scratch / "pid")]
    with (ground.scratch / "rsyslogd.txt").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        yield lines
        assert process.poll() is None, (ground.scratch / "rsyslogd.txt").read_text()[-1_000:]
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _append(lines: Path, first: int) -> None:
    with lines.open("a") as file:
        file.writelines(f"{value}\n" for value in numbers(first + EACH)[first:])


def _until_logged(ground: Ground, count: int) -> list[str]:
    deadline = time.monotonic() + SECONDS
    while True:
        found = [value.strip() for _, value in log_of(ground.bootstrap, ground.name)]
        if len(set(found)) >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def written(program: Program, ground: Ground) -> None:
    create(ground)
    with _running(ground, OUTPUT) as lines:
        _append(lines, 0)
        assert _until_logged(ground, EACH) == numbers(EACH)


def written_under_moves(program: Program, ground: Ground) -> None:
    """Each line once: librdkafka's producer is not idempotent here, as rsyslog sets it up."""
    create(ground)
    with _running(ground, OUTPUT) as lines:
        for number in range(MOVES):
            _append(lines, EACH * number)
            ground.faults.move()
        assert _until_logged(ground, EACH * MOVES) == numbers(EACH * MOVES)


def written_under_a_kill(program: Program, ground: Ground) -> None:
    create(ground)
    with _running(ground, OUTPUT) as lines:
        _append(lines, 0)
        ground.faults.kill()
        _append(lines, EACH)
        found = _until_logged(ground, 2 * EACH)
    assert set(found) == set(numbers(2 * EACH)), f"{len(set(found))} of {2 * EACH} are there"


def _until_read(lines: Path, count: int) -> Counter[str]:
    deadline = time.monotonic() + SECONDS
    while True:
        found = Counter(lines.read_text().split())
        if found.total() >= count or time.monotonic() > deadline:
            return found
        time.sleep(0.5)


def read(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 100)
    with _running(ground, INPUT) as lines:
        assert _until_read(lines, 100) == Counter(numbers(100))


def read_under_moves(program: Program, ground: Ground) -> None:
    create(ground)
    with _running(ground, INPUT) as lines:
        for _ in range(MOVES):
            write(ground, EACH)
            ground.faults.move()
        expected = Counter(numbers(EACH) * MOVES)
        assert _until_read(lines, EACH * MOVES) == expected


ROWS: Final[Mapping[str, Row]] = {
    "lines into a topic": written,
    "lines into a topic: moves": written_under_moves,
    "lines into a topic: a kill": written_under_a_kill,
    "lines from a topic": read,
    "lines from a topic: moves": read_under_moves,
}
