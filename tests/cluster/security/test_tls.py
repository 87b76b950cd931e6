"""Two nodes with a TLS listener beside a plain one, real clients, certificates of every kind."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from cluster.spec import FREE_PORTS, is_free
from evenkeel import Admin, ClientConfig
from runtime.config.fields import Address
from tests.certs import Certs, now

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[3]
NODES = (1, 2)
GIVE_UP_S = 60.0
TOPIC = "secret"


def free_ports(count: int) -> int:
    """The first of so many adjacent ports on which nobody listens."""
    start = FREE_PORTS.start + (os.getpid() * 41) % (len(FREE_PORTS) - count)
    for port in range(start, FREE_PORTS.stop - count):
        if all(is_free(Address("127.0.0.1", port + k)) for k in range(count)):
            return port
    raise AssertionError("no free ports")


@attrs.define
class Cluster:
    folder: Path
    certs: Certs
    ports: int
    processes: dict[int, subprocess.Popen[bytes]] = attrs.Factory(dict)

    def port(self, node: int, which: str) -> int:
        return self.ports + 4 * (node - 1) + ("peer", "http", "plain", "tls").index(which)

    def bootstrap(self, which: str) -> str:
        return ",".join(f"localhost:{self.port(node, which)}" for node in NODES)

    def config(self, node: int) -> Path:
        path = self.folder / f"node-{node}.toml"
        path.write_text(
            f"""
[node]
id = {node}
cluster_id = "tls"
data_dir = "{self.folder / f"node-{node}"}"
[listen]
peer = "127.0.0.1:{self.port(node, "peer")}"
http = "127.0.0.1:{self.port(node, "http")}"
[[listeners]]
name = "PLAINTEXT"
bind = "127.0.0.1:{self.port(node, "plain")}"
protocol = "plaintext"
[[listeners]]
name = "TLS"
bind = "127.0.0.1:{self.port(node, "tls")}"
advertised = "localhost:{self.port(node, "tls")}"
protocol = "ssl"
client_certificates = "required"
[tls]
certificate = "{self.folder / "node.crt"}"
key = "{self.folder / "node.key"}"
client_authorities = "{self.certs.trusted}"
[groups]
count = 4
replicas = 2
[peers]
{"".join(f'{peer} = "127.0.0.1:{self.port(peer, "peer")}"' + chr(10) for peer in NODES)}
"""
        )
        return path

    def start(self, node: int) -> None:
        with (self.folder / f"node-{node}.log").open("ab") as log:
            command = [sys.executable, "-m", "node", "--config", str(self.config(node))]
            self.processes[node] = subprocess.Popen(command, cwd=ROOT, stderr=log)

    def log(self, node: int) -> str:
        return (self.folder / f"node-{node}.log").read_text()

    def asked(self, node: int, path: str) -> str:
        url = f"http://127.0.0.1:{self.port(node, 'http')}{path}"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return str(answer.read().decode())

    def ready(self, node: int) -> bool:
        with suppress(OSError):
            return self.asked(node, "/readyz") != ""
        return False

    def client(self, which: str = "tls", files: tuple[Path, Path] | None = None) -> dict[str, Any]:
        """Settings of librdkafka."""
        common: dict[str, Any] = {"bootstrap.servers": self.bootstrap(which)}
        if which == "plain":
            return common
        common |= {"security.protocol": "ssl", "ssl.ca.location": str(self.certs.trusted)}
        if files is not None:
            common |= {
                "ssl.certificate.location": str(files[0]),
                "ssl.key.location": str(files[1]),
            }
        return common

    def alice(self) -> dict[str, Any]:
        folder = self.folder
        return self.client(files=(folder / "alice.crt", folder / "alice.key"))


def until(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + GIVE_UP_S
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"it does not happen: {what}"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("tls")
    certs = Certs.new(folder)
    certs.node()
    certs.client("alice")
    made = Cluster(folder, certs, free_ports(8))
    try:
        for node in NODES:
            made.start(node)
        for node in NODES:
            until(lambda node=node: made.ready(node), f"node {node} is ready")
        admin = AdminClient(made.alice())
        until(lambda: listeners_are_known(admin), "the registry has the TLS listeners")
        admin.create_topics([NewTopic(TOPIC, 8)])[TOPIC].result(30)
        yield made
    finally:
        for process in made.processes.values():
            process.terminate()
        for process in made.processes.values():
            process.wait(30)


def listeners_are_known(admin: AdminClient) -> bool:
    with suppress(KafkaException):
        return len(admin.list_topics(timeout=5).brokers) == len(NODES)
    return False


def produced(settings: dict[str, Any], values: list[bytes], topic: str = TOPIC) -> list[KafkaError]:
    """Send the values; returns the errors."""
    errors: list[KafkaError] = []
    producer = Producer(
        {**settings, "enable.idempotence": True, "message.timeout.ms": 20_000, "linger.ms": 2}
    )
    for value in values:
        producer.produce(
            topic, value, on_delivery=lambda error, _message: error and errors.append(error)
        )
    assert producer.flush(30) == 0
    return errors


def consumed(settings: dict[str, Any], count: int, group: str) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    values: list[bytes] = []
    deadline = time.monotonic() + GIVE_UP_S
    try:
        while len(values) < count:
            assert time.monotonic() < deadline, f"{len(values)} of {count} records came"
            message = consumer.poll(0.5)
            if message is not None and not message.error():
                values.append(message.value())
    finally:
        consumer.close()
    return values


def test_records_pass_with_mutual_tls_and_each_listener_names_its_own_addresses(
    cluster: Cluster,
) -> None:
    values = [b"%d " % number + bytes(30_000) for number in range(300)]
    assert produced(cluster.alice(), values) == []
    assert sorted(consumed(cluster.alice(), len(values), "readers")) == sorted(values)
    for which, settings in (("tls", cluster.alice()), ("plain", cluster.client("plain"))):
        brokers = AdminClient(settings).list_topics(timeout=10).brokers
        assert {one.port for one in brokers.values()} == {cluster.port(n, which) for n in NODES}
    assert {one.host for one in brokers.values()} == {"127.0.0.1"}, "those of the plain one"


def test_our_own_client_and_the_command_line_come_in(cluster: Cluster, tmp_path: Path) -> None:
    folder = cluster.folder
    properties = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(cluster.certs.trusted),
        "ssl.certificate.location": str(folder / "alice.crt"),
        "ssl.key.location": str(folder / "alice.key"),
    }
    config = ClientConfig.from_properties(properties)

    async def described() -> set[int]:
        async with Admin(cluster.bootstrap("tls"), client=config) as admin:
            return {one.port for one in (await admin.describe_cluster()).nodes}

    assert trio.run(described) == {cluster.port(node, "tls") for node in NODES}
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    command = [sys.executable, "-m", "cli.main", "topic", "list", "--json"]
    where = ["--bootstrap", cluster.bootstrap("tls"), "--command-config", str(path)]
    done = subprocess.run([*command, *where], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert TOPIC in done.stdout


def refused(settings: dict[str, Any]) -> bool:
    """Whether such a client gets no answer."""
    try:
        AdminClient({**settings, "socket.timeout.ms": 2_000, "log_level": 0}).list_topics(timeout=3)
    except KafkaException:
        return True
    return False


def test_who_proves_nothing_is_refused_and_the_log_says_why(
    cluster: Cluster, tmp_path: Path
) -> None:
    assert refused(cluster.client()), "no certificate"
    strangers = Certs.new(tmp_path / "strangers")
    mallory = cluster.client(files=strangers.client("mallory"))
    assert refused(mallory), "another authority's"
    late = cluster.certs.authority.issue("late", (), -1, now()).write(tmp_path, "late")
    assert refused(cluster.client(files=late)), "expired"
    assert refused({**cluster.alice(), "ssl.ca.location": str(strangers.trusted)}), (
        "a client may too"
    )
    plain = {"bootstrap.servers": cluster.bootstrap("tls")}
    assert refused(plain), "no TLS"
    encrypted = {**cluster.alice(), "bootstrap.servers": cluster.bootstrap("plain")}
    assert refused(encrypted), "TLS where there is none"
    assert not refused(cluster.alice()), "and the nodes have not suffered"
    said = "".join(cluster.log(node) for node in NODES)
    for reason in (
        "the client has shown no certificate",
        "certificate is refused",
        "this is no TLS",
    ):
        assert reason in said, reason


def test_status_metrics_and_health_tell_of_listeners_and_certificates(cluster: Cluster) -> None:
    told = json.loads(cluster.asked(1, "/status"))["listeners"]
    assert [(one["name"], one["protocol"], one["insecure"]) for one in told] == [
        ("PLAINTEXT", "plaintext", False),
        ("TLS", "ssl", False),
    ]
    metrics = cluster.asked(1, "/metrics")
    expires = metric(metrics, 'evenkeel_tls_expires_timestamp_seconds{of="certificate"}')
    assert abs(expires - time.time() - 5 * 86_400) < 3_600
    assert metric(metrics, "evenkeel_insecure_listeners") == 0
    assert metric(metrics, "evenkeel_tls_handshakes_total") > 0
    assert metric(metrics, "evenkeel_tls_handshakes_failed_total") >= 0


def metric(text: str, name: str) -> float:
    (line,) = [one for one in text.splitlines() if one.startswith(f"{name} ")]
    return float(line.split()[-1])


def test_new_files_are_taken_over_under_load_and_wrong_ones_are_not(cluster: Cluster) -> None:
    """No record is lost and no connection closed; a new connection gets the new certificate."""
    values = [b"reload %d" % number for number in range(2_000)]
    producer = Producer({**cluster.alice(), "linger.ms": 1, "message.timeout.ms": 20_000})
    errors: list[Any] = []
    before = serial(cluster, 1)
    for number, value in enumerate(values):
        producer.produce(TOPIC, value, on_delivery=lambda error, _m: error and errors.append(error))
        producer.poll(0.002)
        if number == 500:
            renew(cluster)
            for process in cluster.processes.values():
                process.send_signal(signal.SIGHUP)
    until(lambda: serial(cluster, 1) != before, "the new certificate is shown")
    assert producer.flush(30) == 0
    assert errors == []
    renewed = serial(cluster, 1)
    (cluster.folder / "node.key").write_text("no key any more")
    until(lambda: metric(cluster.asked(1, "/metrics"), "evenkeel_tls_files_refused"), "it is said")
    assert "new TLS files are wrong" in cluster.log(1)
    assert serial(cluster, 1) == renewed
    renew(cluster)
    until(lambda: serial(cluster, 1) != renewed, "right files are taken over without a signal")


def renew(cluster: Cluster) -> None:
    """As an operator does it: write the new files beside the old ones and move them over."""
    fresh = cluster.folder / f"fresh-{time.monotonic_ns()}"
    hosts = ("localhost", "127.0.0.1")
    issued = cluster.certs.authority.issue("node", hosts, 5, now(), of_node=True)
    certificate, key = issued.write(fresh, "node")
    key.rename(cluster.folder / "node.key")
    certificate.rename(cluster.folder / "node.crt")


def serial(cluster: Cluster, node: int) -> str:
    folder = cluster.folder
    context = cluster.certs.context_of((folder / "alice.crt", folder / "alice.key"))
    with (
        socket.create_connection(("127.0.0.1", cluster.port(node, "tls")), 5) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as tls,
    ):
        shown = tls.getpeercert()
        assert shown is not None
        return str(shown["serialNumber"])


def test_masters_move_under_tls_and_no_record_is_lost(cluster: Cluster) -> None:
    """Hints name the TLS listener: a client that was told the plain one would lose its way."""
    producer = Producer({**cluster.alice(), "linger.ms": 1, "message.timeout.ms": 30_000})
    errors: list[Any] = []

    def send(count: int) -> None:
        for number in range(count):
            producer.produce(
                TOPIC, b"move %d" % number, on_delivery=lambda e, _m: e and errors.append(e)
            )
            producer.poll(0.003)

    send(200)
    cluster.processes[2].terminate()  # it hands over its masters first
    send(200)
    assert cluster.processes[2].wait(30) == 0
    cluster.start(2)
    until(lambda: cluster.ready(2), "node 2 is back")
    send(200)
    assert producer.flush(30) == 0
    assert errors == []


def test_the_raw_protocol_versions_are_those_that_are_allowed(cluster: Cluster) -> None:
    folder = cluster.folder
    for newest in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = cluster.certs.context_of((folder / "alice.crt", folder / "alice.key"))
        context.maximum_version = newest
        with (
            socket.create_connection(("127.0.0.1", cluster.port(1, "tls")), 5) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as tls,
        ):
            assert tls.version() == newest.name.replace("_", ".")
