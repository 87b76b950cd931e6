"""Connections under TLS, to a broker with a certificate made for this test."""

import ssl
from pathlib import Path

import pytest
import trio

from evenkeel import Admin, ClientConfig, UnreachableError
from tests.certificates import new_authority
from tests.evenkeel.peers import PeerStream, scripted
from wire.messages.metadata import MetadataResponse, MetadataResponseBroker


async def broker(peer: PeerStream) -> None:
    await peer.greet()
    while True:
        header, _ = await peer.read()
        brokers = [MetadataResponseBroker(1, "127.0.0.1", 1)]
        await peer.answer(header, MetadataResponse(brokers=brokers, cluster_id="secure"))


async def test_only_a_broker_that_is_trusted_is_talked_to(tmp_path: Path) -> None:
    authority = new_authority(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(authority.issue("broker"))
    trusting = ssl.create_default_context(cafile=authority.certificate)
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
