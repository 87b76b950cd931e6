"""The wheel in a folder where the user has modules with the names of our rooms.

Each of the user's modules notes which process imported it: only the user's own program may.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.install.conftest import FILES, MODULES, Installed

READY_S_MAX = 60.0
BOOTSTRAP = "bootstrap servers, for any Kafka client:\n"
CLIENT = """
import os, sys
import trio
import node, paxos, storage, wire
from evenkeel import Admin, Consumer, ConsumerConfig, OffsetReset, Producer

async def main(servers: str) -> None:
    async with Admin(servers) as admin:
        await admin.create_topic("orders", partitions=1)
    async with Producer(servers) as producer:
        await (await producer.send("orders", b"hello"))
    config = ConsumerConfig(group="readers", offset_reset=OffsetReset.EARLIEST)
    async with Consumer(servers, config) as consumer:
        await consumer.subscribe(["orders"])
        async for records in consumer:
            print([record.value for record in records])
            break

trio.run(main, sys.argv[1])
print(*(os.path.relpath(module.__file__) for module in (node, paxos, storage, wire)))
print(os.getpid())
"""


def imported_by(folder: Path, name: str) -> set[int]:
    """The processes that have imported the user's module of this name."""
    notes = (folder / name if name in MODULES else folder) / "imported"
    return set(map(int, notes.read_text().split())) if notes.exists() else set()


@contextmanager
def cluster(installed: Installed, folder: Path, env: dict[str, str]) -> Iterator[str]:
    """`evenkeel up` in the user's folder; gives the bootstrap servers."""
    command = [installed.evenkeel, "up", "-n", "2", "--groups", "1", "--free-ports"]
    up = subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True)
    assert up.stdout is not None
    late = threading.Timer(READY_S_MAX, up.kill)
    late.start()
    try:
        lines = iter(up.stdout.readline, "")
        assert BOOTSTRAP in lines, "it ended before it was ready"
        late.cancel()
        yield next(lines).strip()
        up.send_signal(signal.SIGTERM)
        assert up.wait() == 0
    finally:
        late.cancel()
        up.kill()
        up.communicate()


def commands_of_nodes(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = process.joinpath("cmdline").read_text().split("\0")
        except OSError:
            continue  # it has ended
        if "--config" in words and str(folder / "data") in words[words.index("--config") + 1]:
            found.append(" ".join(words[words.index("-m") : words.index("--config")]))
    return found


@pytest.mark.cluster
def test_servers_and_clients_leave_the_users_modules_alone(
    installed: Installed, theirs: Path
) -> None:
    """The worst case: the user's folder is on PYTHONPATH too."""
    env = {**installed.env, "PYTHONPATH": str(theirs)}
    program = theirs / "program.py"
    program.write_text(CLIENT)
    with cluster(installed, theirs, env) as servers:
        assert commands_of_nodes(theirs) == ["-m evenkeel._internal.node"] * 2
        status = [installed.evenkeel, "status"]
        subprocess.run(status, cwd=theirs, env=env, check=True, capture_output=True)
        ran = subprocess.run(
            [installed.python, str(program), servers],
            cwd=theirs,
            env=env,
            check=True,
            capture_output=True,
            text=True,
        )
    records, modules, process = ran.stdout.splitlines()
    assert records == "[b'hello']"
    assert modules.split() == ["node.py", "paxos.py", "storage/__init__.py", "wire/__init__.py"]
    for name in (*MODULES, *FILES):
        assert imported_by(theirs, name) <= {int(process)}, name
    assert imported_by(theirs, "wire") == {int(process)}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--help"], 0),
        (["config"], 0),
        (["bench", "--help"], 0),
        (["spark"], 0),
        (["node", "start", "--config", "missing.toml"], 2),
    ],
)
def test_commands_import_nothing_of_the_users(
    installed: Installed, theirs: Path, words: list[str], code: int
) -> None:
    env = {**installed.env, "PYTHONPATH": str(theirs)}
    command = [installed.evenkeel, *words]
    ran = subprocess.run(command, cwd=theirs, env=env, check=False, capture_output=True)
    assert ran.returncode == code, ran.stderr
    assert not [name for name in (*MODULES, *FILES) if imported_by(theirs, name)]


def test_the_client_needs_nothing_of_the_server(installed: Installed, theirs: Path) -> None:
    """An application starts without what only nodes need."""
    script = "import sys, evenkeel, wire; print(*sys.modules)"
    ran = subprocess.run(
        [installed.python, "-c", script],
        cwd=theirs,
        env=installed.env,
        check=True,
        capture_output=True,
        text=True,
    )
    loaded = ran.stdout.split()
    rooms = {name.split(".")[2] for name in loaded if name.startswith("evenkeel._internal.")}
    assert rooms == {"wire"}
    assert not {"confluent_kafka", "prometheus_client", "rich", "re2"} & set(loaded)
    assert imported_by(theirs, "wire")


TYPED = """
from evenkeel import Producer, TopicPartition

async def send(producer: Producer) -> int:
    delivery = await producer.send("orders", b"one")
    reveal_type(TopicPartition("orders", 0).partition)
    place = await delivery
    return place.topic
"""


def test_type_checkers_see_the_clients_types(installed: Installed, theirs: Path) -> None:
    """And the user's own `wire` is what they think it is."""
    (theirs / "program.py").write_text(TYPED)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(theirs / "cache")]
    command += ["--python-executable", installed.python, "program.py"]
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    ran = subprocess.run(command, cwd=theirs, env=env, check=False, capture_output=True, text=True)
    said = [line for line in ran.stdout.splitlines() if line.startswith("program.py")]
    assert len(said) == 2, ran.stdout + ran.stderr
    assert 'Revealed type is "builtins.int"' in said[0] or 'Revealed type is "int"' in said[0]
    assert 'Incompatible return value type (got "str", expected "int")' in said[1]
