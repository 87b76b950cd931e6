"""Who the user is to nodes' HTTP ports: a file, and what is refused of it."""

import argparse
import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from cli.clusters import credentials
from cli.clusters.contexts import Context, ContextError, http_addresses
from cluster import access
from cluster.access import HttpsAddress
from runtime.config.fields import Address
from runtime.http import local

PASSWORD = "sasl.username=ann\nsasl.password=hunter2\n"


def options(path: Path | None) -> argparse.Namespace:
    return argparse.Namespace(command_config=path)


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "some.properties"
        path.touch()
        path.chmod(mode)
        path.write_text(text)
        return path

    return write


def test_an_address_may_say_that_its_port_speaks_tls() -> None:
    plain, secure = http_addresses("10.0.0.1:8092,https://bus.lan:8092")
    assert (type(plain), str(plain)) == (Address, "10.0.0.1:8092")
    assert (type(secure), str(secure)) == (HttpsAddress, "https://bus.lan:8092")
    assert secure == Address("bus.lan", 8092)
    assert access.url(plain) == "http://10.0.0.1:8092"
    assert access.url(secure) == "https://bus.lan:8092"
    with pytest.raises(ContextError, match="expected host:port"):
        http_addresses("https://bus.lan")


def test_a_context_keeps_the_path_of_the_file_and_no_secret(written: Callable[..., Path]) -> None:
    path = written(PASSWORD)
    kept = Context(name="x", http=http_addresses("https://a:1"), command_config=path).to_json()
    assert kept["http"] == ["https://a:1"]
    assert "hunter2" not in json.dumps(kept)


def test_the_same_file_as_for_kafka_and_names_of_http_come_first(
    written: Callable[..., Path],
) -> None:
    (address,) = http_addresses("https://10.9.9.1:8092")
    credentials.use([address], options(written(PASSWORD)), None)
    way = access.way_to(address)
    assert way.headers == {"Authorization": access.basic("ann", "hunter2")}
    assert way.tls is not None
    assert "hunter2" not in repr(way)
    assert access.basic("ann", "hunter2") not in repr(way)
    credentials.use([address], options(written(PASSWORD + "http.username=bob\n")), None)
    assert access.way_to(address).headers == {"Authorization": access.basic("bob", "hunter2")}


def test_a_variable_and_a_context_name_the_file_as_well(
    written: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(PASSWORD)
    (one, other) = http_addresses("https://10.9.9.2:8092,https://10.9.9.3:8092")
    credentials.use([one], options(None), path)
    assert access.way_to(one).authorization
    monkeypatch.setenv(credentials.VARIABLE, str(path))
    credentials.use([other], options(None), None)
    assert access.way_to(other).authorization


def test_what_others_may_read_is_refused_and_a_password_in_the_clear(
    written: Callable[..., Path],
) -> None:
    there, here = http_addresses("10.9.9.4:8092,127.0.0.1:18092")
    with pytest.raises(ContextError, match="chmod 600"):
        credentials.use([there], options(written(PASSWORD, 0o640)), None)
    with pytest.raises(ContextError, match=r"in the clear; write https://10\.9\.9\.4:8092"):
        credentials.use([there], options(written(PASSWORD)), None)
    assert not access.way_to(there).authorization
    credentials.use([here], options(written(PASSWORD)), None)
    assert access.way_to(here).authorization
    allowed = written(f"{PASSWORD}{credentials.IN_THE_CLEAR}=true\n")
    credentials.use([there], options(allowed), None)
    assert access.way_to(there).authorization


def test_a_node_of_this_machine_says_how_to_reach_it(tmp_path: Path) -> None:
    """For every request anew: its next start makes another token."""
    address = Address("127.0.0.1", 28092)
    access.local_node(address, tmp_path)
    assert access.way_to(address) == access.PLAIN
    for token in ("first", "second"):
        local.write(tmp_path, token=token, certificate=None)
        assert (tmp_path / local.NAME).stat().st_mode & 0o777 == 0o600
        assert access.way_to(address).headers == {"Authorization": f"Bearer {token}"}
    local.write(tmp_path, token="", certificate=tmp_path / "node.crt")
    assert access.url(address) == "https://127.0.0.1:28092"
    local.remove(tmp_path)
    assert access.way_to(address) == access.PLAIN


@pytest.mark.parametrize("address", ["https://10.9.9.5:8092", "127.0.0.1:38092"])
@pytest.mark.parametrize("certificate", [None, "node.crt"])
def test_the_token_of_a_file_goes_where_it_is_meant_to_and_never_without_tls(
    written: Callable[..., Path], tmp_path: Path, address: str, certificate: str | None
) -> None:
    """An https address is asked with TLS, also if the file's port does without; a port of which the
    file has a certificate is asked with TLS, also if the address does not say so."""
    shown = None if certificate is None else tmp_path / certificate
    local.write(tmp_path, token="secret", certificate=shown)
    (asked,) = http_addresses(address)
    path = written(f"http.token.file={tmp_path / local.NAME}\n")
    credentials.use([asked], options(path), None)
    way = access.way_to(asked)
    assert way.headers == {"Authorization": "Bearer secret"}
    secure = isinstance(asked, HttpsAddress) or certificate is not None
    assert isinstance(way.connection(asked, 1.0), http.client.HTTPSConnection) == secure
    assert way.certificate == shown
    if secure and shown is None:
        assert way.tls is not None
        assert way.tls.verify_mode is ssl.CERT_REQUIRED
