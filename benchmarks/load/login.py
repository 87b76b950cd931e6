"""How loads log in to brokers that ask who they are: by the file of `--command-config`.

A load is a process of its own. It gets the path of the file in its environment, and reads the file
itself: no secret is in a job, a command line or a result. The file counts for all brokers of a run.
"""

import os
import socket
import time
from pathlib import Path
from typing import Any, Final

from evenkeel import EvenkeelError, properties
from pyspark_evenkeel.client.opening import open_connection
from pyspark_evenkeel.client.security import (
    Mechanism,
    SecuritySettings,
    security_settings,
    tls_context,
    token_of,
)
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import EvenkeelSparkError

VARIABLE: Final = "BENCHMARKS_COMMAND_CONFIG"
TOKEN_S: Final = 300.0
"""librdkafka asks for a token again when most of this is over."""


class LoginError(RuntimeError):
    """The file cannot be used, or the brokers do not let us in; the message has no secret."""


def use(path: Path | None) -> None:
    """From now on this process, and those that it starts, log in with this file.

    Raises:
        LoginError: if it cannot be used.
    """
    os.environ.pop(VARIABLE, None)
    if path is not None:
        os.environ[VARIABLE] = str(path.absolute())
        try:
            tls_context(security())
        except EvenkeelSparkError as error:
            raise LoginError(f"--command-config {path}: {error}") from error


def security() -> SecuritySettings:
    """Raises:
    LoginError: if the file cannot be used.
    """
    path = os.environ.get(VARIABLE)
    if path is None:
        return SecuritySettings()
    try:
        return security_settings(properties.read(Path(path)))
    except (EvenkeelError, EvenkeelSparkError) as error:
        raise LoginError(f"--command-config {path}: {error}") from error


def for_confluent() -> dict[str, Any]:
    """The same for a client of confluent-kafka, by librdkafka's names; nothing without a file."""
    if VARIABLE not in os.environ:
        return {}
    found = security()
    settings: dict[str, Any] = {
        "security.protocol": found.protocol.value,
        "ssl.ca.location": found.ca_location,
        "ssl.ca.pem": found.ca_text,
        "ssl.certificate.location": found.certificate_location,
        # a file of Java's has the key beside the certificate
        "ssl.key.location": found.key_location or found.certificate_location,
        "ssl.key.password": found.key_password,
        "sasl.mechanism": None if found.mechanism is None else found.mechanism.value,
        "sasl.username": found.username,
        "sasl.password": found.password,
    }
    if found.protocol.has_tls and not found.check_hostname:
        settings["ssl.endpoint.identification.algorithm"] = "none"
    if found.mechanism is Mechanism.OAUTHBEARER:
        settings["oauth_cb"] = lambda _config: (token_of(found), time.time() + TOKEN_S)
    return {name: value for name, value in settings.items() if value is not None}


def connected(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connection on which requests may be sent; with TLS where the file says so.

    Raises:
        OSError: if there is none.
        LoginError: if the broker does not let us in.
    """
    found = security()
    if found == SecuritySettings():
        sock = socket.create_connection((host, port), timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    settings = ClusterSettings(
        bootstrap=address, security=found, connect_ms=max(1, round(timeout_s * 1000))
    )
    try:
        connection = open_connection(host, port, settings, tls_context(found))
    except EvenkeelSparkError as error:
        raise LoginError(str(error)) from error
    taken = connection.detach()
    taken.settimeout(timeout_s)
    return taken
