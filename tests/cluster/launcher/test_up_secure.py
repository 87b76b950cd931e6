"""`evenkeel up --secure` as a user types it, and clients that follow its files to the letter."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.security import clients
from evenkeel import properties
from tests.cluster.launcher.test_up import STEP_S, environment, until
from tests.cluster.scenery import QUICK
from tests.compat.group_moves import JARS
from tests.doses import FULL, ONLY_IN_FULL

pytestmark = pytest.mark.cluster

TOPIC = "orders"
PROGRAMS = Path(__file__).parent / "follow_settings"
KAFKAJS = Path(__file__).parents[2] / "compat" / "javascript" / "node_modules" / "kafkajs"
FOLDER = Path("data", "security")


@contextmanager
def up(tmp_path: Path, *options: str) -> Iterator[str]:
    """What a running `evenkeel up` has said up to its welcome's end."""
    command = [sys.executable, "-m", "cli.main", "up", *options, *(f"--set={one}" for one in QUICK)]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        try:
            assert launcher.stdout is not None
            told = ""
            for line in launcher.stdout:
                told += line
                if line.startswith("Ctrl-C stops"):
                    break
            assert "ready: 1 nodes" in told, told
            yield told
            launcher.terminate()
            assert launcher.wait(STEP_S) == 0
        finally:
            launcher.kill()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """A secure cluster; in the full exam it was stopped, and started again without a word about
    security."""
    tmp_path = tmp_path_factory.mktemp("secure")
    with up(tmp_path, "--secure", "-n", "1", "--groups", "1", "--free-ports") as told:
        before = secrets_of(tmp_path)
        written(tmp_path)
        assert before["admin.password"].strip() not in told, "the output may be a log"
        if not FULL:
            yield tmp_path, told
            return
    with up(tmp_path) as told:
        assert secrets_of(tmp_path) == before, "nothing is made anew"
        yield tmp_path, told


def secrets_of(tmp_path: Path) -> dict[str, str]:
    """What was made once."""
    folder = tmp_path / FOLDER
    return {
        one.name: one.read_text()
        for one in folder.iterdir()
        if one.suffix != ".log" and one.is_file()
    }


def librdkafka(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {**properties.read(tmp_path / FOLDER / "clients" / clients.PROPERTIES), **more}


def written(tmp_path: Path) -> None:
    """The topic, and a record by a client that has the file's settings and nothing else."""
    topic = NewTopic(TOPIC, 1, replication_factor=1)
    admin = AdminClient(librdkafka(tmp_path))
    admin.create_topics([topic])[TOPIC].result(30)
    errors: list[KafkaError | None] = []
    producer = Producer(librdkafka(tmp_path))
    producer.produce(TOPIC, b"from librdkafka", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None]


def test_librdkafka_follows_its_file(made: tuple[Path, str]) -> None:
    """What it wrote, in the full exam before a restart, is read."""
    more = {"group.id": "librdkafka", "auto.offset.reset": "earliest"}
    consumer = Consumer(librdkafka(made[0], **more))
    consumer.subscribe([TOPIC])
    record = consumer.poll(30)
    assert record is not None
    assert record.value() == b"from librdkafka"
    consumer.close()


@pytest.mark.parametrize(
    "missing", [["sasl.password", "sasl.username", "sasl.mechanism"], ["ssl.ca.location"]]
)
def test_without_one_of_them_nobody_gets_in(made: tuple[Path, str], missing: list[str]) -> None:
    settings = librdkafka(made[0])
    for name in missing:
        del settings[name]
    if "sasl.password" in missing:
        settings["security.protocol"] = "SSL"
    errors: list[KafkaError] = []
    client = AdminClient({**settings, "error_cb": errors.append})
    until(lambda: bool(client.poll(0.1) or errors))
    with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT|Failed|Local"):
        client.list_topics(timeout=0.5)


def test_files_are_for_their_owner_only(made: tuple[Path, str]) -> None:
    folder = made[0] / FOLDER
    for path in [folder, *folder.rglob("*")]:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o644 if path.suffix == ".crt" else 0o700 if path.is_dir() else 0o600), path
    names = {one.name for one in (folder / "clients").iterdir()}
    assert names == set(clients.FOR_WHOM)


def test_the_welcome_fits_and_names_every_file(made: tuple[Path, str]) -> None:
    told = made[1]
    names = str(made[0])
    welcome = told[told.index("ready:") :].splitlines()
    assert all(len(line) <= 80 for line in welcome if names not in line)
    assert all(name in told for name in clients.FOR_WHOM)
    settings = librdkafka(made[0])
    hidden = {**settings, "sasl.password": clients.NOT_SHOWN}
    for line in clients.lines(hidden).splitlines():
        assert f"  {line}\n" in told


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_the_command_line_says_what_it_cannot_do_or_does_it(made: tuple[Path, str]) -> None:
    """Without options it takes the administrator's file of the cluster in ./data."""
    command = [sys.executable, "-m", "cli.main", "topic", "list", "--json"]
    done = subprocess.run(
        command, cwd=made[0], env=environment(made[0]), capture_output=True, text=True, check=False
    )
    if done.returncode:
        assert "SASL" in done.stderr
    else:
        assert TOPIC in done.stdout


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_kafkajs_follows_its_file(made: tuple[Path, str]) -> None:
    if shutil.which("node") is None or not KAFKAJS.exists():
        pytest.skip("kafkajs is not here (npm ci in tests/compat/javascript)")
    settings = made[0] / FOLDER / "clients" / clients.KAFKAJS
    told = followed(["node", str(PROGRAMS / "kafkajs.cjs"), str(settings), TOPIC])
    assert told == "read\n"


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_java_follows_its_file(made: tuple[Path, str]) -> None:
    jars = [Path.home() / ".m2" / "repository" / jar for jar in JARS]
    if shutil.which("java") is None or not all(map(Path.exists, jars)):
        pytest.skip("Kafka's Java client is not here (mvn dependency:get)")
    settings = made[0] / FOLDER / "clients" / clients.JAVA
    path = os.pathsep.join(map(str, jars))
    program = str(PROGRAMS / "FollowSettings.java")
    assert followed(["java", "-cp", path, program, str(settings), TOPIC]) == "read\n"


def followed(command: list[str]) -> str:
    env = {**os.environ, "KAFKAJS": str(KAFKAJS)}
    done = subprocess.run(
        command, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def test_our_own_spark_source_takes_its_file(made: tuple[Path, str]) -> None:
    from pyspark_evenkeel.client.security import security_settings, tls_context

    file = made[0] / FOLDER / "clients" / clients.EVENKEEL_SPARK
    options = json.loads(file.read_text())
    settings = security_settings(
        {name.removeprefix("kafka."): one for name, one in options.items()}
    )
    assert tls_context(settings) is not None
    assert settings.username == "admin"
    assert settings.password == librdkafka(made[0])["sasl.password"]
