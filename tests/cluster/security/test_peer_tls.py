"""Three real nodes whose links are under mutual TLS, and a running cluster on its way there."""

import json
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from runtime.peers.frames import Kind
from tests.certs import Certs
from tests.cluster.security.test_tls import ROOT, free_ports, produced, until
from tests.doses import FULL, ONLY_IN_FULL
from tests.runtime.doubles import frame
from tests.runtime.links import hello_of

pytestmark = pytest.mark.cluster

NODES = (1, 2, 3)
CLUSTER = "links"
MODES = {"plain": "", "both": "insecure_plain_too = true\n", "tls": "\n"}


@attrs.define
class Cluster:
    folder: Path
    ports: int
    processes: dict[int, "subprocess.Popen[bytes]"] = attrs.Factory(dict)

    def port(self, node: int, which: str) -> int:
        return self.ports + 3 * (node - 1) + ("peer", "http", "kafka").index(which)

    def config(self, node: int, mode: str) -> Path:
        path = self.folder / f"node-{node}.toml"
        tls = (
            f"""[peer_tls]
certificate = "{self.folder}/peer-{node}.crt"
key = "{self.folder}/peer-{node}.key"
authorities = "{self.folder}/ca.crt"
{MODES[mode]}"""
            if MODES[mode]
            else ""
        )
        path.write_text(
            f"""
[node]
id = {node}
cluster_id = "{CLUSTER}"
data_dir = "{self.folder / f"node-{node}"}"
[listen]
peer = "127.0.0.1:{self.port(node, "peer")}"
http = "127.0.0.1:{self.port(node, "http")}"
kafka = "127.0.0.1:{self.port(node, "kafka")}"
{tls}
[groups]
count = 3
replicas = 3
[peers]
{"".join(f'{peer} = "127.0.0.1:{self.port(peer, "peer")}"' + chr(10) for peer in NODES)}
"""
        )
        return path

    def start(self, node: int, mode: str) -> None:
        with (self.folder / f"node-{node}.log").open("ab") as log:
            command = [sys.executable, "-m", "node", "--config", str(self.config(node, mode))]
            self.processes[node] = subprocess.Popen(command, cwd=ROOT, stderr=log)

    def restart(self, node: int, mode: str) -> None:
        self.processes[node].terminate()
        assert self.processes[node].wait(60) == 0
        self.start(node, mode)
        until(lambda: self.ready(node), f"node {node} is ready")

    def asked(self, node: int, path: str) -> str:
        url = f"http://127.0.0.1:{self.port(node, 'http')}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())

    def ready(self, node: int) -> bool:
        with suppress(OSError):
            return self.asked(node, "/readyz") != ""
        return False

    def encrypted(self, node: int) -> dict[int, float]:
        found = re.findall(
            r'^evenkeel_peer_encrypted\{peer="(\d)"\} (\S+)$',
            self.asked(node, "/metrics"),
            re.MULTILINE,
        )
        return {int(peer): float(value) for peer, value in found}

    def all_are(self, value: int) -> bool:
        return all(
            self.encrypted(node) == dict.fromkeys(set(NODES) - {node}, float(value))
            for node in NODES
        )

    @property
    def client(self) -> dict[str, str]:
        ports = (self.port(node, "kafka") for node in NODES)
        return {"bootstrap.servers": ",".join(f"127.0.0.1:{port}" for port in ports)}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    certs = Certs.new(tmp_path)
    for node in NODES:
        certs.peer(f"peer-{node}", f"node-{node}.{CLUSTER}.evenkeel")
    made = Cluster(tmp_path, free_ports(9))
    try:
        yield made
    finally:
        for process in made.processes.values():
            process.terminate()
        for process in made.processes.values():
            process.wait(60)


def begin(cluster: Cluster, mode: str) -> None:
    for node in NODES:
        cluster.start(node, mode)
    for node in NODES:
        until(lambda node=node: cluster.ready(node), f"node {node} is ready")
    admin = AdminClient(cluster.client)
    until(lambda: _nodes(admin) == len(NODES), "all nodes are registered")
    admin.create_topics([NewTopic("t", 6)])["t"].result(30)


def _nodes(admin: AdminClient) -> int:
    with suppress(KafkaException):
        return len(admin.list_topics(timeout=5).brokers)
    return 0


def test_links_are_encrypted_and_a_stranger_is_not_a_node(cluster: Cluster) -> None:
    begin(cluster, "tls")
    assert produced(cluster.client, [b"%d" % n + bytes(10_000) for n in range(100)], "t") == []
    assert cluster.all_are(1)
    status = json.loads(cluster.asked(1, "/status"))["peer_links"]
    assert (status["mode"], status["insecure"]) == ("tls", False)
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", cluster.port(1, "peer")), 5) as stranger:
            hello = hello_of(2, cluster=CLUSTER, incarnation=1_000)
            stranger.sendall(frame(bytes([Kind.HELLO]) + hello.encode()))
            with suppress(ConnectionResetError):
                while stranger.recv(1 << 16):
                    pass
    metrics = cluster.asked(1, "/metrics")
    assert 'evenkeel_tls_expires_timestamp_seconds{of="peer certificate"}' in metrics
    (line,) = re.findall(r"^evenkeel_peer_connections_refused_total (\S+)$", metrics, re.MULTILINE)
    assert float(line) >= 3
    assert "this is no TLS" in (cluster.folder / "node-1.log").read_text()
    assert cluster.all_are(1), "nobody was displaced"


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_running_cluster_is_converted_without_a_failed_record(cluster: Cluster) -> None:
    begin(cluster, "plain")
    assert cluster.all_are(0)
    for mode in ("both", "tls"):
        for node in NODES:
            cluster.restart(node, mode)
            assert produced(cluster.client, [b"%d" % n for n in range(50)], "t") == []
        until(lambda: cluster.all_are(1), f"all links are encrypted ({mode})")
        told = json.loads(cluster.asked(1, "/status"))["peer_links"]
        assert (told["mode"], told["insecure"]) == (mode, mode == "both")
        metrics = cluster.asked(1, "/metrics")
        assert f"\nevenkeel_insecure_listeners {float(mode == 'both')}\n" in metrics
