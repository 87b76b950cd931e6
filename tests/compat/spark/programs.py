"""Spark's own Kafka connector, with the Spark of this environment: its source and its sink.

Maven brings the jars into `target/jars`; pom.xml names the version.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tests.compat.frameworks.rows import EACH, exactly, out_topic, sent_on
from tests.compat.java.jvm import until
from tests.compat.language_rows import MOVES, create, log_of, numbers, write
from tests.compat.languages import Ground, Missing, Program, Row, Running, of, run, started, values

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[2]
JARS: Final = HERE / "target" / "jars"
BUILD_S_MAX: Final = 540.0
STREAM_S: Final = 60
BATCH_S: Final = 90
"""At most: a session alone takes half a minute where nodes work beside it."""
START_MS: Final = 1_700_000_000_000


def jars() -> list[Path]:
    """
    Raises:
        Missing: if there is no Java, no Maven, no Spark, or a jar could not be had.
    """
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} here")
    if find_spec("pyspark") is None:
        raise Missing("pyspark is not installed: pip install '.[spark]'")
    pom = HERE / "pom.xml"
    if not JARS.exists() or JARS.stat().st_mtime < pom.stat().st_mtime:
        shutil.rmtree(JARS, ignore_errors=True)
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        command = ["mvn", "-q", "-B", *goal, "-DincludeScope=runtime"]
        done = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, timeout=BUILD_S_MAX
        )
        if done.returncode != 0:
            raise Missing(f"mvn dependency:copy-dependencies failed: {done.stdout[-600:]}")
        JARS.touch()
    return sorted(JARS.glob("*.jar"))


def connector_version() -> str:
    return (HERE / "pom.xml").read_text().split("<connector.version>")[1].split("<")[0]


def programs(scratch: Path) -> list[Program]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(scratch / "spark"),
    }
    command = (sys.executable, str(HERE / "job.py"), "--jars", ",".join(map(str, jars())))
    name = f"spark-sql-kafka {connector_version()}, Spark {version('pyspark')}"
    return [Program("Spark", name, command, own=ROWS, environment=environment, folder=scratch)]


def sink(program: Program, ground: Ground) -> None:
    create(ground)
    run(program, ground, "kafka", count=500, seconds=BATCH_S)
    assert [value for _, value in log_of(ground.bootstrap, ground.name)] == numbers(500)


def source(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 500)
    assert values(run(program, ground, "read", seconds=BATCH_S), "read") == numbers(500)


def source_by_time(program: Program, ground: Ground) -> None:
    create(ground)
    write(ground, 10, start_ms=START_MS)
    told = run(program, ground, "read", at=START_MS + 4_500, seconds=BATCH_S)
    assert values(told, "read") == numbers(10)[5:]


def ours_to_theirs(program: Program, ground: Ground) -> None:
    """What our sink wrote carries write tokens; their source reads it as any record."""
    create(ground)
    run(program, ground, "evenkeel", count=500, seconds=BATCH_S)
    assert values(run(program, ground, "read", seconds=BATCH_S), "read") == numbers(500)


def _streaming(program: Program, ground: Ground) -> dict[str, object]:
    return {"out": out_topic(ground), "state": ground.scratch / "state", "seconds": STREAM_S}


def _until_running(stream: Running) -> None:
    until(
        lambda: bool(of(stream.events(), "running")),
        lambda: "the stream does not start",
        2 * BATCH_S,
    )


def stream(program: Program, ground: Ground) -> None:
    """Masters move meanwhile: each record once, and in order."""
    create(ground)
    with started(program, ground, "stream", **_streaming(program, ground)) as running:
        _until_running(running)
        for _ in range(MOVES):
            write(ground, EACH)
            ground.faults.move()
        told = running.wait(STREAM_S)
    assert not of(told, "error"), of(told, "error")
    exactly(sent_on(ground), numbers(EACH) * MOVES, "sent on")


def stream_killed(program: Program, ground: Ground) -> None:
    """At least once, as its sink promises."""
    create(ground)
    with started(program, ground, "stream", **_streaming(program, ground)) as running:
        _until_running(running)
        write(ground, EACH)
        ground.faults.kill()
        write(ground, EACH)
        told = running.wait(STREAM_S)
    assert not of(told, "error"), of(told, "error")
    found = Counter(sent_on(ground))
    assert all(found[value] >= 2 for value in numbers(EACH)), found


ROWS: Final[Mapping[str, Row]] = {
    "sink": sink,
    "source": source,
    "source: from a time": source_by_time,
    "source: what our Spark sink wrote": ours_to_theirs,
    "stream: moves": stream,
    "stream: a kill": stream_killed,
}
