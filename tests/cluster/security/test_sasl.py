"""A node that asks for passwords, and librdkafka: who gets in, may write, and is cut off."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from cluster.health import is_ready
from runtime.config.fields import Address
from tests.cluster.security.test_tls import ROOT, free_ports, until

pytestmark = pytest.mark.cluster

PASSWORD = "a long one"
TOPIC = "orders"


@attrs.define
class Node:
    folder: Path
    ports: int
    process: subprocess.Popen[bytes] | None = None
    mechanisms: str = '["SCRAM-SHA-512", "SCRAM-SHA-256"]'
    more: str = ""
    """Sections of its configuration."""
    errors: list[KafkaError] = attrs.Factory(list)

    def start(self) -> None:
        command = [sys.executable, "-m", "cli.main", "user", "hash", "admin"]
        line = subprocess.run(
            [*command, "--password-file", "-"],
            input=PASSWORD,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout
        assert PASSWORD not in line
        users = self.folder / "users"
        users.touch(0o600)
        users.write_text(line)
        config = self.folder / "node.toml"
        config.write_text(
            f"""
[node]
id = 1
cluster_id = "sasl"
data_dir = "{self.folder / "data"}"
[listen]
peer = "127.0.0.1:{self.ports}"
http = "127.0.0.1:{self.ports + 1}"
[[listeners]]
name = "CLIENTS"
bind = "127.0.0.1:{self.ports + 2}"
protocol = "sasl_plaintext"
[security]
sasl_mechanisms = {self.mechanisms}
bootstrap_users_file = "{users}"
authorizer = "acl"
super_users = ["User:admin"]
[groups]
count = 2
replicas = 1
[peers]
1 = "127.0.0.1:{self.ports}"
{self.more}"""
        )
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "node", "--config", str(config)]
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log)
        until(lambda: is_ready(Address("127.0.0.1", self.ports + 1)), "the node is ready")
        until(self.listens, "the registry has its listener")

    def listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports + 2), 5):
            return True
        return False

    def client(self, name: str, password: str = PASSWORD, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports + 2}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": password,
            **more,
        }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    made = Node(tmp_path_factory.mktemp("sasl"), free_ports(3))
    try:
        made.start()
        yield made
    finally:
        if made.process is not None:
            made.process.terminate()
            made.process.wait(30)


def refused(settings: dict[str, Any]) -> KafkaError:
    """The first thing that a client with these settings is told."""
    told: list[KafkaError] = []
    client = AdminClient({**settings, "error_cb": told.append})
    until(lambda: client.poll(0.1) or told, "it is refused")
    return told[0]


def test_who_cannot_prove_a_name_gets_nothing(node: Node) -> None:
    wrong = refused(node.client("admin", "another"))
    unknown = refused(node.client("nobody"))
    assert wrong.code() == unknown.code() == KafkaError._AUTHENTICATION
    assert "Authentication failed" in wrong.str()
    assert "Authentication failed" in unknown.str()
    plain = refused(node.client("admin", **{"sasl.mechanism": "PLAIN"}))
    assert "SCRAM-SHA-512" in plain.str(), "it is told what there is"
    silent = refused({"bootstrap.servers": f"127.0.0.1:{node.ports + 2}"})
    assert silent.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    log = (node.folder / "log").read_text()
    assert PASSWORD not in log


def test_a_user_is_made_may_what_rules_allow_and_is_cut_off(node: Node) -> None:
    admin = AdminClient(node.client("admin"))
    topic = NewTopic(TOPIC, 1, replication_factor=1)
    admin.create_topics([topic])[TOPIC].result(30)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8_192)
    change: Any = UserScramCredentialUpsertion("alice", info, b"her own")
    until(lambda: altered(admin, change), "the cluster version has risen, and she is a user")
    errors: list[KafkaError] = []
    alice = Producer(
        node.client("alice", "her own", **{"error_cb": errors.append, "message.timeout.ms": 60_000})
    )
    assert sent(alice) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rule = AclBinding(
        ResourceType.TOPIC,
        TOPIC,
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([rule])[rule].result(30)
    until(lambda: sent(alice) is None, "she may write")
    deletion: Any = UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_512)
    assert altered(admin, deletion)
    began = time.monotonic()
    errors.clear()
    until(lambda: alice.poll(0.05) or errors, "her open connection is closed")
    assert time.monotonic() - began < 20
    until(
        lambda: alice.poll(0.1) or any(one.code() == KafkaError._AUTHENTICATION for one in errors),
        "she does not come in again",
    )


def altered(admin: AdminClient, change: Any) -> bool:
    with suppress(KafkaException):
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(30)
        return True
    return False


def sent(producer: Producer) -> int | None:
    """The code of the error that a record ended with; None if it was written."""
    codes: list[int | None] = []
    try:
        producer.produce(TOPIC, b"x", on_delivery=lambda e, _: codes.append(e and e.code()))
    except KafkaException as error:  # it knows from its last metadata
        producer.poll(0.2)
        return int(error.args[0].code())
    producer.flush(30)
    return codes[0]


def test_others_must_not_read_the_file_of_first_users(node: Node, tmp_path: Path) -> None:
    config = (node.folder / "node.toml").read_text().replace(str(node.folder), str(tmp_path))
    path = tmp_path / "node.toml"
    path.write_text(config)
    (tmp_path / "users").write_text((node.folder / "users").read_text())
    os.chmod(tmp_path / "users", 0o644)
    command = [sys.executable, "-m", "node", "--config", str(path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "chmod 600" in ended.stderr
