"""Connections under TLS, to a broker with a certificate made for this test."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
import trio

from evenkeel import Admin, ClientConfig, UnreachableError
from tests.evenkeel.peers import PeerStream, scripted
from wire.messages.metadata import MetadataResponse, MetadataResponseBroker


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """One file with a key and a certificate for 127.0.0.1 that signs itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate with")
    made = tmp_path / "broker.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=broker", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(made), "-out", str(tmp_path / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True)
    made.write_text(made.read_text() + (tmp_path / "certificate.pem").read_text())
    return made


async def broker(peer: PeerStream) -> None:
    await peer.greet()
    while True:
        header, _ = await peer.read()
        brokers = [MetadataResponseBroker(1, "127.0.0.1", 1)]
        await peer.answer(header, MetadataResponse(brokers=brokers, cluster_id="secure"))


async def test_only_a_broker_that_is_trusted_is_talked_to(certificate: Path) -> None:
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(certificate)
    trusting = ssl.create_default_context(cafile=str(certificate))
    quick = ClientConfig(operation_timeout_ms=500, tls=ssl.create_default_context())
    async with scripted(broker, served) as (host, port):
        async with Admin(f"{host}:{port}", client=ClientConfig(tls=trusting)) as admin:
            with trio.fail_after(20):
                assert (await admin.describe_cluster()).cluster_id == "secure"
        async with Admin(f"{host}:{port}", client=quick) as admin:
            with pytest.raises(UnreachableError, match="certificate verify failed"):
                await admin.describe_cluster()
        async with Admin(f"{host}:{port}", client=ClientConfig(connect_timeout_ms=300)) as admin:
            with pytest.raises(UnreachableError):
                await admin.describe_cluster()
