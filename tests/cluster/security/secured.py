"""One real node that is as secure as it can be, and clients on the wire that are somebody."""

import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
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

from broker.security.users import user_line
from cluster.health import is_ready
from runtime.config.fields import Address
from tests.certs import Certs
from tests.cluster.security.test_tls import ROOT, free_ports, until
from wire import scram
from wire.apis import APIS, Request, decode_response, encode_request
from wire.error_codes import ErrorCode
from wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

MECHANISM: Final = "SCRAM-SHA-512"
WAIT_S: Final = 20.0
Closed = (ssl.SSLError, ConnectionError)


@attrs.define
class SecuredNode:
    """Its listeners: CLIENTS with passwords, CERTIFICATES with certificates, both with TLS."""

    folder: Path
    admin_password: str
    certs: Certs
    ports: int = attrs.Factory(lambda: free_ports(4))
    process: subprocess.Popen[bytes] | None = None
    more: str = ""
    """Of `[security]`."""
    _wires: "list[Wire]" = attrs.Factory(list)

    @property
    def http(self) -> Address:
        return Address("127.0.0.1", self.ports + 1)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        certificate, key = self.certs.node()
        credential = scram.make_credential(
            scram.ScramMechanism.SHA_512, self.admin_password, os.urandom(16), 4_096
        )
        users = self.folder / "users"
        users.touch(0o600)
        users.write_text(user_line("admin", scram.ScramMechanism.SHA_512, credential) + "\n")
        config = self.folder / "node.toml"
        config.write_text(
            f"""
[node]
id = 1
cluster_id = "secured"
data_dir = "{self.folder / "data"}"
[listen]
peer = "127.0.0.1:{self.ports}"
http = "{self.http}"
[[listeners]]
name = "CLIENTS"
bind = "127.0.0.1:{self.ports + 2}"
protocol = "sasl_ssl"
[[listeners]]
name = "CERTIFICATES"
bind = "127.0.0.1:{self.ports + 3}"
protocol = "ssl"
client_certificates = "required"
[tls]
certificate = "{certificate}"
key = "{key}"
client_authorities = "{self.certs.trusted}"
[security]
sasl_mechanisms = ["{MECHANISM}"]
bootstrap_users_file = "{users}"
authorizer = "acl"
super_users = ["User:admin"]
{self.more}
[groups]
count = 1
replicas = 1
[peers]
1 = "127.0.0.1:{self.ports}"
"""
        )
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "node", "--config", str(config)]
            self.process = subprocess.Popen(command, cwd=ROOT, stderr=log, stdout=log)
        until(lambda: is_ready(self.http), "the node is ready")
        until(self._listens, "the registry has its listeners")

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.ports + 2), 5):
            return True
        return False

    def stop(self) -> None:
        for wire in self._wires:
            wire.close()
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)

    # -- as librdkafka ------------------------------------------------------------------------

    def client(self, name: str, password: str, **more: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.ports + 2}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certs.trusted),
            "sasl.mechanism": MECHANISM,
            "sasl.username": name,
            "sasl.password": password,
            **more,
        }

    @property
    def admin(self) -> AdminClient:
        return AdminClient(self.client("admin", self.admin_password))

    def add_users(self, passwords: Mapping[str, str]) -> None:
        add_users(self.admin, passwords)

    def delete_users(self, *names: str) -> None:
        delete_users(self.admin, *names)

    def allow_everything(self, *names: str) -> None:
        kinds = (
            (ResourceType.TOPIC, "*"),
            (ResourceType.GROUP, "*"),
            (ResourceType.BROKER, "kafka-cluster"),
            (ResourceType.TRANSACTIONAL_ID, "*"),
        )
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        rules = [
            AclBinding(kind, on, literal, f"User:{name}", "*", AclOperation.ALL, allow)
            for name in names
            for kind, on in kinds
        ]
        admin = self.admin
        for future in admin.create_acls(rules).values():
            future.result(30)

    def add_topic(self, name: str) -> None:
        admin = self.admin
        admin.create_topics([NewTopic(name, 1, replication_factor=1)])[name].result(30)

    # -- on the wire --------------------------------------------------------------------------

    def connect(self, files: tuple[Path, Path] | None = None) -> "Wire":
        """With a certificate, to the listener that asks for one."""
        port = self.ports + (2 if files is None else 3)
        plain = socket.create_connection(("127.0.0.1", port), WAIT_S)
        context = self.certs.context_of(files)
        wire = Wire(context.wrap_socket(plain, server_hostname="localhost"))
        self._wires.append(wire)
        return wire

    def logged_in(self, name: str, password: str) -> "Wire":
        wire = self.connect()
        assert wire.log_in(name, password) == ErrorCode.NONE
        return wire


def add_users(admin: AdminClient, passwords: Mapping[str, str]) -> None:
    """Or give them these passwords."""
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    changes: list[Any] = [
        UserScramCredentialUpsertion(name, info, password.encode())
        for name, password in passwords.items()
    ]
    until(lambda: _altered(admin, changes), "the cluster version has risen, and they are users")


def delete_users(admin: AdminClient, *names: str) -> None:
    mechanism = ScramMechanism.SCRAM_SHA_512
    assert _altered(admin, [UserScramCredentialDeletion(name, mechanism) for name in names])


def _altered(admin: AdminClient, changes: list[Any]) -> bool:
    with suppress(Exception):
        for future in admin.alter_user_scram_credentials(changes).values():
            future.result(30)
        return True
    return False


@attrs.define
class Wire:
    """A connection, a frame each way at a time."""

    _socket: ssl.SSLSocket
    _number: int = 0
    seen: list[bytes] = attrs.Factory(list)
    """What the exchange of a log-in sent and got."""

    def ask(self, request: Request, version: int) -> Any:
        """The answer.

        Raises:
            ConnectionError, ssl.SSLError: the node closes the connection instead.
        """
        self._number += 1
        self._socket.sendall(b"".join(encode_request(request, version, self._number, "raw")))
        (size,) = struct.unpack(">i", self._exactly(4))
        key = next(api.key for api in APIS.values() if api.request is type(request))
        return decode_response(key, version, memoryview(self._exactly(size)))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the node closed the connection")
            data += more
        return data

    def log_in(self, name: str, password: str) -> int:
        self.ask(SaslHandshakeRequest(MECHANISM), 1)
        nonce = os.urandom(12).hex().encode()
        exchange = scram.ClientExchange(scram.ScramMechanism.SHA_512, name, password, nonce)
        message: bytes | None = exchange.start()
        while message is not None:
            answer = self.ask(SaslAuthenticateRequest(message), 2)
            self.seen += [message, bytes(answer.auth_bytes)]
            if answer.error_code:
                return int(answer.error_code)
            message = exchange.answer(bytes(answer.auth_bytes))
        return int(ErrorCode.NONE)

    def raw(self, data: bytes) -> bytes:
        """The first byte of what comes back for bytes of one's own."""
        self._socket.sendall(data)
        return self._exactly(1)

    def close(self) -> None:
        self._socket.close()


def new_node(folder: Path, admin_password: str, more: str = "") -> SecuredNode:
    certs = Certs.new(folder / "certs")
    return SecuredNode(folder, admin_password, certs, more=more)
