"""How this process reaches the HTTP port of each node: plainly or with TLS, and as whom.

A node of this machine writes both down in its directory (runtime.http.local): a token, and the
certificate that its port shows. That file is read for every request, because each start of the
node makes a new token. The certificate is compared with the one on disk: it need not have the name
127.0.0.1, and no other program that has taken the port gets the token. For other nodes the command
line says it (cli.clusters.credentials).

One table for the process: a command asks the nodes of one cluster, from many places.
"""

import base64
import http.client
import json
import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import attrs

from runtime.config.fields import Address
from runtime.http.local import NAME

FILE_BYTES_MAX: Final = 64 * 1024


class HttpsAddress(Address):
    """An address whose port speaks TLS."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"https://{super().__str__()}"


@attrs.frozen(kw_only=True)
class Way:
    """`authorization`: the header; "" for none. `certificate`: the only one that is believed."""

    authorization: str = attrs.field(default="", repr=False)
    tls: ssl.SSLContext | None = None
    certificate: Path | None = None

    def connection(self, address: Address, timeout_s: float) -> http.client.HTTPConnection:
        if self.tls is None:
            return http.client.HTTPConnection(address.host, address.port, timeout=timeout_s)
        return _Connection(address, timeout_s, self.tls, self.certificate)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": self.authorization} if self.authorization else {}


PLAIN: Final = Way()
_directories: Final[dict[Address, Path]] = {}
_ways: Final[dict[Address, Way]] = {}


def local_node(address: Address, directory: Path) -> None:
    """A node of this machine, with its data in `directory`, has its HTTP port there."""
    _directories[address] = directory


def remote_nodes(addresses: Iterable[Address], way: Way) -> None:
    """Other nodes, as the user says. What is to speak TLS is never asked without: not an https
    address, with a token of a port that does without; nor a port that shows a certificate."""
    for address in addresses:
        if isinstance(address, HttpsAddress):
            _ways[address] = way if way.tls else attrs.evolve(way, tls=ssl.create_default_context())
        else:
            _ways[address] = way if way.certificate else attrs.evolve(way, tls=None)


def forget() -> None:
    """Of all nodes: what has their addresses now is something else."""
    _directories.clear()
    _ways.clear()


def way_to(address: Address) -> Way:
    directory = _directories.get(address)
    if directory is not None:
        return read(directory / NAME)
    known = _ways.get(address)
    if known is None and isinstance(address, HttpsAddress):
        return Way(tls=ssl.create_default_context())
    return known or PLAIN


def url(address: Address) -> str:
    """For messages."""
    tls = isinstance(address, HttpsAddress) or way_to(address).tls is not None
    return str(address) if isinstance(address, HttpsAddress) else f"http{'s' * tls}://{address}"


def read(path: Path) -> Way:
    """What a node of this machine has written down; without its file it asks nobody."""
    try:
        with path.open("rb") as file:
            value: Any = json.loads(file.read(FILE_BYTES_MAX))
        token, shown = str(value["token"]), value["certificate"]
    except (OSError, ValueError, KeyError, TypeError):
        return PLAIN  # if it asks after all, its answer says what to do
    authorization = f"Bearer {token}" if token else ""
    if shown is None:
        return Way(authorization=authorization)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # _Connection compares
    return Way(authorization=authorization, tls=context, certificate=Path(shown))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class _Connection(http.client.HTTPSConnection):
    """Shows nothing to a port that has another certificate than the expected one."""

    def __init__(
        self, address: Address, timeout_s: float, tls: ssl.SSLContext, certificate: Path | None
    ) -> None:
        super().__init__(address.host, address.port, timeout=timeout_s, context=tls)
        self._certificate = certificate

    def connect(self) -> None:
        super().connect()
        if self._certificate is None:
            return
        pem, end = self._certificate.read_text(), "-----END CERTIFICATE-----"
        first = pem[pem.find("-----BEGIN CERTIFICATE") :].partition(end)[0] + end
        try:
            expected = ssl.PEM_cert_to_DER_cert(first)
        except ValueError:
            raise OSError(0, f"{self._certificate} is no certificate") from None
        if self.sock.getpeercert(True) != expected:
            raise OSError(0, f"it shows another certificate than that of {self._certificate}")
