"""A secure cluster whose secrets are known, driven in every way, and then searched: no password,
key, proof or token is in a log, a metric, /proc, an answer, a command's output or a bundle."""

import base64
import http.client
import json
import re
import socket
import ssl
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cli import main
from cluster import spec, state
from cluster.security.directory import SecurityDirectory, write_once
from runtime.config.fields import Address
from tests.cluster.launcher.test_up_secure import librdkafka, up
from tests.cluster.security.secured import Closed, Wire, add_users, delete_users
from tests.cluster.security.test_sasl import refused
from tests.doses import FULL, ONLY_IN_FULL
from wire.error_codes import ErrorCode
from wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from wire.messages.security import RenewDelegationTokenRequest
from wire.scram import ScramMechanism, salted_password

pytestmark = pytest.mark.cluster

ADMIN, ALICE, LATER = "MARKED-of-admin-1", "MARKED-of-alice-2", "MARKED-of-alice-3"
WRONG, PLAIN, FRAME = "MARKED-wrong-4", "MARKED-plain-5", "MARKED-frame-6"
TOKEN, BEARER = "MARKED-token-7", "MARKED-bearer-8"
COMMANDS: Final = (
    ("status", "--json"),
    ("health", "--json"),
    ("node", "list", "--json"),
    ("balance", "show", "--json"),
    ("cluster", "version", "--json"),
    ("topic", "list", "--json"),
    ("acl", "list", "--json"),
    ("doctor", "--json"),
    ("data", "usage", "--json"),
)
PATHS: Final = ("/status", "/nodes", "/balancer", "/usage", "/metrics", "/readyz", "/console/")


def forms(secret: bytes) -> Iterator[bytes]:
    """As it is, and as programs write bytes."""
    yield secret
    yield secret.hex().encode()
    yield base64.b64encode(secret).rstrip(b"=")


def secrets_of(directory: SecurityDirectory, wires: list[Wire]) -> dict[str, bytes]:
    found = {one: one.encode() for one in (ADMIN, ALICE, LATER, WRONG, PLAIN, FRAME)}
    found |= {one: one.encode() for one in (TOKEN, BEARER)}
    for path in directory.path.glob("*.key"):
        key = serialization.load_pem_private_key(path.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        found[path.name] = key.private_numbers().private_value.to_bytes(32)
        lines = path.read_bytes().splitlines()[1:-1]
        found |= {f"{path.name}:{at}": line for at, line in enumerate(lines)}
    for name, value in re.findall(r"(stored_key|server_key|salt)=([^,\s]+)", read(directory.users)):
        found[name] = base64.b64decode(value)
    found["salted"] = salted_password(ScramMechanism.SHA_512, ADMIN, found.pop("salt"), 4_096)
    for number, wire in enumerate(wires):
        for message in wire.seen:
            proof = re.search(rb"(?:^v|,p)=([A-Za-z0-9+/=]+)", message)
            if proof is not None:
                found[f"proof {number}"] = base64.b64decode(proof[1])
    return found


def read(path: Path) -> str:
    return path.read_text(errors="surrogateescape")


def leaks(places: Mapping[str, bytes], secrets: Mapping[str, bytes]) -> list[str]:
    return [
        f"{name} in {place}"
        for place, data in places.items()
        for name, secret in secrets.items()
        if any(form in data for form in forms(secret))
    ]


def test_a_leak_would_be_found() -> None:
    secrets = {"password": b"MARKED", "key": b"\x00\xffkey"}
    places = {"log": b'{"error": "MARKED"}', "json": b'{"k": "00ff6b6579"}', "ok": b"MARK"}
    assert leaks(places, secrets) == ["password in log", "key in json"]


def drive(folder: Path, node: spec.NodeSpec) -> list[Wire]:
    """Log-ins that are right and wrong, credentials altered, errors, settings described."""
    admin = AdminClient(librdkafka(folder))
    assert librdkafka(folder)["sasl.password"] == ADMIN
    add_users(admin, {"alice": ALICE})
    wires = [connected(folder, node) for _ in range(6)]
    right, wrong, after, in_plain, garbage, tokens = wires
    assert right.log_in("alice", ALICE) == ErrorCode.NONE
    assert wrong.log_in("alice", WRONG) == ErrorCode.SASL_AUTHENTICATION_FAILED
    add_users(admin, {"alice": LATER})
    assert after.log_in("alice", LATER) == ErrorCode.NONE
    with pytest.raises(Closed):
        right.log_in("alice", ALICE)
    in_plain.ask(SaslHandshakeRequest("SCRAM-SHA-512"), 1)
    answer = in_plain.ask(SaslAuthenticateRequest(f"\0alice\0{PLAIN}".encode()), 2)
    assert answer.error_code
    assert PLAIN not in (answer.error_message or "")
    with pytest.raises(Closed):
        garbage.raw(b"\0\0\0\x40" + f"{FRAME:*>64}".encode())
    assert tokens.log_in("admin", ADMIN) == ErrorCode.NONE
    assert tokens.ask(RenewDelegationTokenRequest(TOKEN.encode(), 1), 2).error_code
    refused(librdkafka(folder, **{"sasl.mechanism": "PLAIN", "sasl.password": WRONG}))
    delete_users(admin, "alice")
    connection = http.client.HTTPConnection(*node.http, timeout=10)
    connection.request("GET", "/nowhere", headers={"Authorization": f"Bearer {BEARER}"})
    connection.getresponse().read()
    connection.close()
    return wires


def connected(folder: Path, node: spec.NodeSpec) -> Wire:
    authority = folder / "data" / "security" / "ca.crt"
    context = ssl.create_default_context(cafile=str(authority))
    plain = socket.create_connection(node.kafka, 20)
    return Wire(context.wrap_socket(plain, server_hostname="localhost"))


def places_of(folder: Path, node: spec.NodeSpec, told: str) -> dict[str, bytes]:
    """Everything that is written, or shown to whoever asks."""
    data = folder / "data"
    found = {"what up said": told.encode(), **described(folder)}
    for path in [*data.glob("*.*"), *data.glob("prometheus/*"), *data.glob("security/*.log")]:
        if path.is_file():
            found[path.name] = path.read_bytes()
    now = state.read(data)
    for pid in (now.launcher_pid, now.nodes[1].pid):
        for what in ("cmdline", "environ"):
            found[f"{what} of {pid}"] = Path(f"/proc/{pid}/{what}").read_bytes()
    for path in PATHS:
        found[path] = asked(node.http, path)
    return found


def described(folder: Path) -> dict[str, bytes]:
    """All settings of the node, as DescribeConfigs tells them."""
    admin = AdminClient(librdkafka(folder))
    node = ConfigResource(ConfigResource.Type.BROKER, "1")
    settings = admin.describe_configs([node])[node].result(30)
    text = {name: entry.value for name, entry in settings.items()}
    return {"DescribeConfigs": json.dumps(text).encode()}


def asked(address: Address, path: str) -> bytes:
    connection = http.client.HTTPConnection(*address, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse().read()
    connection.close()
    return answer


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_no_secret_is_anywhere(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    directory = SecurityDirectory(tmp_path / "data" / "security")
    directory.path.mkdir(0o700, parents=True)
    write_once(directory.password, f"{ADMIN}\n")
    options = ("--secure", "-n", "1", "--groups", "1", "--free-ports")
    with up(tmp_path, *options, "--set=security.audit_grants=true") as told:
        node = spec.read(tmp_path / "data").node(1)
        wires = drive(tmp_path, node)
        places = places_of(tmp_path, node, told)
        capfd.readouterr()
        for command in COMMANDS:
            main.run([*command, "--data", str(tmp_path / "data")])
            said = capfd.readouterr()
            places[" ".join(command)] = (said.out + said.err).encode(errors="replace")
        bundle = tmp_path / "bundle.tar.gz"
        main.run(["debug", "bundle", "--to", str(bundle), "--data", str(tmp_path / "data")])
        capfd.readouterr()
    with tarfile.open(bundle) as archive:
        for entry in archive.getmembers():
            file = archive.extractfile(entry)
            assert file is not None
            places[f"bundle: {entry.name}"] = file.read()
    places["node-1.log at the end"] = (tmp_path / "data" / "node-1.log").read_bytes()
    for wire in wires:
        wire.close()
    assert b"User:admin" in places["node-1.audit.log"], "it is the right file"
    assert b"evenkeel_" in places["/metrics"]
    assert b"super_users" in places["bundle: evenkeel-debug/node-1.toml"]
    secrets = secrets_of(directory, wires)
    assert len([name for name in secrets if name.startswith("proof")]) >= 3
    assert leaks(places, secrets) == []
