"""A real Apache Kafka broker: one node, broker and KRaft controller in one process."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tests.compat.java.jvm import free_port
from tests.compat.java.programs import JVM, built
from tests.compat.side_by_side.peer import Peer
from wire.messages.api_versions import ApiVersionsRequest

CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qk"
START_S_MAX: Final = 300.0
STOP_S_MAX: Final = 20.0


def settings(directory: Path, port: int, controller: int) -> dict[str, object]:
    """As Kafka comes, but for what a single node needs, and what would only cost time. It creates
    no topics by itself: nor do we, and the page says so."""
    internal = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "log.dirs": directory / "data",
        "auto.create.topics.enable": "false",
        "log.retention.ms": -1,  # records of the stories are years old
        "group.initial.rebalance.delay.ms": 100,
        "offsets.topic.num.partitions": 1,
        **{f"{name}.replication.factor": 1 for name in internal},
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.min.isr": 1,
    }


@contextmanager
def broker(directory: Path) -> Iterator[Peer]:
    """Started anew in this folder, and answering."""
    directory.mkdir(parents=True)
    java = (*JVM, built())
    port, controller = free_port(), free_port()
    file = directory / "server.properties"
    lines = settings(directory, port, controller).items()
    file.write_text("".join(f"{name}={value}\n" for name, value in lines))
    output = directory / "output.txt"
    with output.open("w") as out:
        format_it = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
        subprocess.run(format_it, check=True, stdout=out, stderr=out, timeout=START_S_MAX)
        process = subprocess.Popen([*java, "kafka.Kafka", str(file)], stdout=out, stderr=out)
    try:
        yield _answering(Peer("kafka", "127.0.0.1", port), process, output)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S_MAX)
        process.kill()
        process.wait()


def _answering(peer: Peer, process: "subprocess.Popen[bytes]", output: Path) -> Peer:
    deadline = time.monotonic() + START_S_MAX
    while not hasattr(peer.send(ApiVersionsRequest(), 0), "api_keys"):
        assert process.poll() is None, f"the broker ended: {output.read_text()[-3_000:]}"
        assert time.monotonic() < deadline, (
            f"the broker does not start: {output.read_text()[-3_000:]}"
        )
        time.sleep(0.2)
    return peer
