"""The Java world: Apache Kafka's own clients, frameworks and tools, all of one version (pom.xml).

Maven builds them into `target/`, once for each state of the sources.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from tests.compat.java import connect, mirror, streams, tools
from tests.compat.language_rows import ROWS
from tests.compat.languages import Ground, Missing, Program, of, run

HERE: Final = Path(__file__).parent
TARGET: Final = HERE / "target"
CLASSPATH: Final = TARGET / "classpath.txt"
JVM: Final = (
    *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
    *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp"),
)
"""Small and soon started: on a machine of two cores, beside three nodes."""
BUILD_S_MAX: Final = 540.0


def built() -> str:
    """The class path of everything; Maven is asked only if a source is newer than what it built.

    Raises:
        Missing: if there is no Java, no Maven, or a library could not be had.
    """
    for tool in ("java", "mvn"):
        if shutil.which(tool) is None:
            raise Missing(f"no {tool} here")
    sources = [HERE / "pom.xml", *(HERE / "src").rglob("*.java")]
    newest = max(source.stat().st_mtime for source in sources)
    if not CLASSPATH.exists() or CLASSPATH.stat().st_mtime < newest:
        asked = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={CLASSPATH}"]
        done = subprocess.run(
            ["mvn", "-q", "-B", *asked],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=BUILD_S_MAX,
        )
        if done.returncode != 0:
            raise Missing(f"mvn {asked[0]} failed: {done.stdout[-600:]}")
        CLASSPATH.touch()
    return f"{TARGET / 'classes'}:{CLASSPATH.read_text().strip()}"


def version() -> str:
    text = (HERE / "pom.xml").read_text()
    return text.split("<kafka.version>")[1].split("<")[0]


def share_refused(program: Program, ground: Ground) -> None:
    (refused,) = of(run(program, ground, "share", seconds=15), "refused")
    assert "UnsupportedVersion" in refused["text"], refused


def programs(scratch: Path) -> list[Program]:
    jvm = (*JVM, built())
    kafka = version()
    ours = (*jvm, "evenkeel.Main")
    return [
        Program(
            "Java",
            f"kafka-clients {kafka}",
            ours,
            shows=tuple(ROWS),
            own={"share groups refused": share_refused},
        ),
        Program("Java", f"Kafka Streams {kafka}", ours, own=streams.ROWS),
        Program("Java", f"Kafka Connect {kafka}", jvm, own=connect.ROWS),
        Program("Java", f"MirrorMaker 2 {kafka}", jvm, own=mirror.ROWS),
        Program("Java", f"Kafka's tools {kafka}", jvm, own=tools.ROWS),
    ]
