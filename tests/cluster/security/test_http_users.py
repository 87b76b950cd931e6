"""A real node whose HTTP port has TLS and asks who it is: programs, a browser's steps, the command
line, and this machine's administrator."""

import base64
import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cluster import access, health
from runtime.config.fields import Address
from tests.certs import Certs
from tests.cluster.security.test_sasl import altered
from tests.cluster.security.test_tls import ROOT, free_ports, until

pytestmark = pytest.mark.cluster

PASSWORD = "the chief's own"


@attrs.define
class Node:
    folder: Path
    ports: int
    certs: Certs
    process: subprocess.Popen[bytes] | None = None

    @property
    def http(self) -> Address:
        return Address("127.0.0.1", self.ports + 1)

    def start(self) -> None:
        certificate, key = self.certs.node()
        users = self.folder / "users"
        users.touch(0o600)
        users.write_text(self.cli("user", "hash", "chief", "--password-file", "-", told=PASSWORD))
        config = self.folder / "node.toml"
        config.write_text(
            f"""
[node]
id = 1
cluster_id = "http"
data_dir = "{self.folder / "data"}"
raise_after_s = 0
[listen]
kafka = "127.0.0.1:{self.ports + 2}"
peer = "127.0.0.1:{self.ports}"
http = "127.0.0.1:{self.ports + 1}"
[tls]
certificate = "{certificate}"
key = "{key}"
[http]
authentication = "users"
tls = true
administrators = ["User:chief"]
readers = ["User:ann"]
[security]
bootstrap_users_file = "{users}"
[groups]
count = 2
replicas = 1
[peers]
1 = "127.0.0.1:{self.ports}"
"""
        )
        with (self.folder / "log").open("ab") as log:
            command = [sys.executable, "-m", "node", "--config", str(config)]
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log)
        access.local_node(self.http, self.folder / "data")
        until(lambda: health.is_ready(self.http), "the node is ready")

    def cli(self, *words: str, told: str = "", code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cli.main", *words],
            input=told,
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(self.folder)},
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def ask(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        data = None if body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        given |= {} if body is None else {"Content-Type": "application/json"}
        where = f"https://127.0.0.1:{self.http.port}{path}"
        request = urllib.request.Request(where, data, given, method=method)
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self.certs.context_of())
        )
        try:
            with opener.open(request, timeout=20) as answer:
                return answer.status, _decoded(answer.read()), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, _decoded(error.read()), dict(error.headers)


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    folder = tmp_path_factory.mktemp("http")
    made = Node(folder, free_ports(3), Certs.new(folder / "certs"))
    try:
        made.start()
        yield made
    finally:
        if made.process is not None:
            made.process.terminate()
            made.process.wait(30)


def test_nobody_learns_anything_without_a_name(node: Node) -> None:
    assert node.ask("GET", "/livez")[:2] == (200, b"ok\n")
    assert node.ask("GET", "/readyz")[:2] == (200, b"ok\n")
    for path in ("/metrics", "/status", "/console/events", "/secret"):
        assert node.ask("GET", path)[0] == 401
    assert node.ask("GET", "/status", Authorization=basic("chief", "wrong"))[0] == 401
    with pytest.raises(OSError, match=r"without response|reset"):
        urllib.request.urlopen(f"http://{node.http}/status", timeout=10)
    stranger = ssl.create_default_context()
    with pytest.raises(urllib.error.URLError, match="certificate verify failed"):
        urllib.request.urlopen(f"https://{node.http}/livez", timeout=10, context=stranger)


def test_a_program_and_a_browser_come_in(node: Node) -> None:
    status, told, _ = node.ask("GET", "/status", Authorization=basic("chief", PASSWORD))
    assert (status, told["cluster_id"]) == (200, "http")
    _, made, _ = node.ask("POST", "/token", {"user": "chief", "password": PASSWORD})
    bearer = f"Bearer {made['token']}"
    assert node.ask("GET", "/metrics", Authorization=bearer)[0] == 200
    page = {"Origin": f"https://127.0.0.1:{node.http.port}", "X_Evenkeel_Console": "1"}
    body = {"user": "chief", "password": PASSWORD}
    status, told, headers = node.ask("POST", "/login", body, **page)
    assert status == 200
    cookie = headers["Set-Cookie"]
    assert cookie.startswith("__Host-evenkeel-1=")
    assert {"HttpOnly", "SameSite=Strict", "Secure"} <= set(cookie.split("; "))
    page["Cookie"] = cookie.partition(";")[0]
    assert node.ask("POST", "/admin/balancer", {"paused": True}, **page)[0] == 403
    page["X_Evenkeel_CSRF"] = told["csrf"]
    assert node.ask("POST", "/admin/balancer", {"paused": True}, **page)[0] == 200
    assert node.ask("GET", "/console/", **page)[0] == 200


def test_the_command_line_takes_a_file_and_says_what_is_missing(node: Node) -> None:
    where = f"https://{node.http}"
    file = node.folder / "chief.properties"
    file.touch(0o600)
    authority = node.certs.trusted
    file.write_text(f"sasl.username=chief\nsasl.password={PASSWORD}\nssl.ca.location={authority}\n")
    answer = node.cli("status", "--http", where, "--command-config", str(file), "--json")
    assert json.loads(answer[answer.index("{") :])["cluster_id"] == "http"
    node.cli("context", "add", "here", "--http", where, "--command-config", str(file))
    assert "resume" in node.cli("balance", "--context", "here")
    strange = node.folder / "strange.properties"
    strange.write_text(f"ssl.ca.location={authority}\n")
    refused = node.cli("status", "--http", where, "--command-config", str(strange), code=1)
    assert "--command-config" in refused
    file.chmod(0o644)
    refused = node.cli("status", "--http", where, "--command-config", str(file), code=1)
    assert "chmod 600" in refused


def test_this_machine_needs_the_nodes_file_and_no_password(node: Node) -> None:
    file = node.folder / "data" / "http.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert health.call(node.http, "GET", "/status")["cluster_id"] == "http"
    other, _ = node.certs.node("other")
    kept = file.read_text()
    try:
        file.write_text(kept.replace("node.crt", other.name))
        with pytest.raises(health.HealthError, match="another certificate"):
            health.call(node.http, "GET", "/status")
    finally:
        file.write_text(kept)


def test_a_new_password_ends_what_the_old_one_began(node: Node) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{node.ports + 2}"})

    def change(password: bytes) -> None:
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        wanted: Any = UserScramCredentialUpsertion("ann", info, password)
        until(lambda: altered(admin, wanted), "she has this password")

    change(b"first")
    body = {"user": "ann", "password": "first"}
    status, made, _ = node.ask("POST", "/token", body)
    assert (status, made["role"]) == (200, "read")
    bearer = f"Bearer {made['token']}"
    assert node.ask("GET", "/status", Authorization=bearer)[0] == 200
    assert node.ask("POST", "/admin/drain", {"node": 1}, Authorization=bearer)[0] == 403
    change(b"second")
    began = time.monotonic()
    until(lambda: node.ask("GET", "/status", Authorization=bearer)[0] == 401, "it has ended")
    assert time.monotonic() - began < 5
    assert node.ask("POST", "/token", body)[0] == 401


def test_no_secret_is_written_down(node: Node) -> None:
    """Run last: after what the others did."""
    assert node.process is not None
    command = Path(f"/proc/{node.process.pid}/cmdline").read_bytes()
    token = json.loads((node.folder / "data" / "http.json").read_text())["token"]
    _, metrics, _ = node.ask("GET", "/metrics", Authorization=basic("chief", PASSWORD))
    log = (node.folder / "log").read_bytes()
    for secret in (PASSWORD, token, base64.b64encode(PASSWORD.encode()).decode()):
        for place in (command, metrics, log):
            assert secret.encode() not in place
    assert b"wrong password" in log, "the audit log, without a file, is the node's"
