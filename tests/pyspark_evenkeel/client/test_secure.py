"""TLS and SASL in front of real nodes: whom we trust, who we are, and what failures say."""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio

from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.client.security import security_settings, tls_context
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import ConfigurationError, SecurityError, UnavailableError
from tests.certificates import Authority, new_authority
from tests.evenkeel.peers import write_by_confluent
from tests.pyspark_evenkeel.client.front import Front, nodes_of, running
from tests.spark.bus import OurBus
from wire.error_codes import ErrorCode
from wire.records.batch import Record, iterate_records
from wire.records.batch_writer import build_batch

pytestmark = pytest.mark.cluster

SECRET = 'pen,c"il=ü'
USERS = {"ann, or=so": SECRET}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
VALUES = [b"%d" % number for number in range(50)]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


def served(certificate: Path, clients: Authority | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    if clients is not None:
        context.load_verify_locations(clients.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def sasl(mechanism: str = "SCRAM-SHA-256", **changes: str) -> dict[str, str]:
    (name, password), *_ = USERS.items()
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": name,
        "sasl.password": password,
    }
    return options | {key.replace("_", "."): value for key, value in changes.items()}


def trusting(authority: Authority, **files: Path) -> dict[str, str]:
    options = {"security.protocol": "SSL", "ssl.ca.location": str(authority.certificate)}
    return options | {f"ssl.{what}.location": str(where) for what, where in files.items()}


async def tells(bootstrap: str, options: Mapping[str, str], topic: str = "") -> list[bytes | None]:
    """Write the values (if any) to a topic with these options; returns what is read back."""
    settings = ClusterSettings(
        bootstrap=bootstrap, security=security_settings(options), retry_ms=300, backoff_max_ms=50
    )

    def run() -> list[bytes | None]:
        with Cluster(settings) as cluster:
            if not topic:
                assert cluster.topics() is not None
                return []
            place = Place(topic, 0)
            produced = cluster.produce(place, build_batch([Record(one) for one in VALUES]))
            assert produced.error is ErrorCode.NONE
            answers = cluster.read(place, produced.base_offset, produced.base_offset + len(VALUES))
            batches = [batch for batches in answers for batch in batches]
            return [record.value for batch in batches for record in iterate_records(batch)]

    return await trio.to_thread.run_sync(run)


# -- TLS ------------------------------------------------------------------------------------------


async def test_both_ends_show_their_certificates(bus: OurBus, authority: Authority) -> None:
    topic = await trio.to_thread.run_sync(partial(bus.create, "tls", 1))
    tls = served(authority.issue("broker"), clients=authority)
    known = trusting(authority, certificate=authority.issue("client", password="locked"))
    async with running(Front(nodes_of(bus), tls)) as front:
        options = known | {"ssl.key.password": "locked"}
        assert await tells(front.bootstrap, options, topic) == VALUES
        with pytest.raises(UnavailableError, match=r"know by TLS who we are: ssl.certificate"):
            await tells(front.bootstrap, trusting(authority))
    for wrong in ({}, {"ssl.key.password": "open"}):
        with pytest.raises(ConfigurationError, match=r"client.pem with its key") as caught:
            await tells(front.bootstrap, known | wrong)
        assert "locked" not in str(caught.value)


async def test_a_broker_that_says_why_it_hangs_up_is_quoted(authority: Authority) -> None:
    """trio's TLS, above, closes without the alert that others send."""
    tls = served(authority.issue("broker"), clients=authority)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def refuse() -> None:
            plain, _ = listening.accept()
            with tls.wrap_socket(plain, True, do_handshake_on_connect=False) as secure:
                with suppress(ssl.SSLError):
                    secure.do_handshake()
                secure.shutdown(socket.SHUT_WR)
                while secure.recv(1000):  # or the alert may be lost in a reset
                    pass

        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, refuse)
            with pytest.raises(SecurityError, match="alert certificate required"):
                await tells(f"127.0.0.1:{listening.getsockname()[1]}", trusting(authority))


async def test_only_who_is_trusted_is_talked_to(
    bus: OurBus, authority: Authority, tmp_path: Path
) -> None:
    nodes = nodes_of(bus)
    async with running(Front(nodes, served(authority.issue("broker")))) as front:
        await tells(front.bootstrap, trusting(authority))
        with pytest.raises(SecurityError, match=r"not trusted.*unable to get local issuer"):
            await tells(front.bootstrap, trusting(new_authority(tmp_path)))
    elsewhere = authority.issue("elsewhere", "kafka.example")
    async with running(Front(nodes, served(elsewhere))) as front:
        with pytest.raises(SecurityError, match=r"not trusted.*not valid for '127.0.0.1'"):
            await tells(front.bootstrap, trusting(authority))
        anywhere = trusting(authority) | {"ssl.endpoint.identification.algorithm": ""}
        await tells(front.bootstrap, anywhere)


async def test_tls_to_a_plain_port_and_the_reverse_are_told(
    bus: OurBus, authority: Authority
) -> None:
    with pytest.raises(SecurityError, match="does not speak TLS: it answers without"):
        await tells(bus.bootstrap, trusting(authority))
    async with running(Front(nodes_of(bus), served(authority.issue("broker")))) as front:
        with pytest.raises(SecurityError, match="speaks TLS, and we do not"):
            await tells(front.bootstrap, {})


def test_files_that_are_not_there_are_told(authority: Authority, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.pem"
    for options in (
        {"ssl.ca.location": str(nowhere)},
        trusting(authority, certificate=nowhere),
        trusting(authority, certificate=authority.certificate, key=nowhere),
    ):
        settings = security_settings({"security.protocol": "SSL", **options})
        with pytest.raises(ConfigurationError, match="No such file"):
            tls_context(settings)


# -- SASL -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_who_we_are(bus: OurBus, mechanism: str) -> None:
    """confluent-kafka is accepted by the same server: it is not merely our idea of SASL."""
    topic = await trio.to_thread.run_sync(partial(bus.create, "sasl", 1))
    async with running(Front(nodes_of(bus), users=USERS)) as front:
        await write_by_confluent(front.bootstrap, [{"topic": topic}], **sasl(mechanism))
        believed = front.logins
        assert believed > 0
        assert await tells(front.bootstrap, sasl(mechanism), topic) == VALUES
        assert front.logins > believed


async def test_sasl_within_tls(bus: OurBus, authority: Authority) -> None:
    tls = served(authority.issue("broker"))
    async with running(Front(nodes_of(bus), tls, USERS)) as front:
        options = trusting(authority) | sasl("PLAIN") | {"security.protocol": "SASL_SSL"}
        await tells(front.bootstrap, options)
        assert front.logins > 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_told_and_not_shown(bus: OurBus, mechanism: str) -> None:
    async with running(Front(nodes_of(bus), users=USERS)) as front:
        with pytest.raises(SecurityError, match=f"with {mechanism} failed.*refuses us") as caught:
            await tells(front.bootstrap, sasl(mechanism, sasl_password="a wrong one"))
        assert front.logins == 0
    assert "a wrong one" not in str(caught.value) + repr(caught.value)


async def test_a_broker_that_does_not_know_our_password_is_not_believed(bus: OurBus) -> None:
    async with running(Front(nodes_of(bus), users=USERS, honest=False)) as front:
        with pytest.raises(SecurityError, match="does not know our password"):
            await tells(front.bootstrap, sasl())


async def test_what_the_broker_does_not_offer_is_told(bus: OurBus) -> None:
    async with running(Front(nodes_of(bus), users=USERS, mechanisms=("PLAIN",))) as front:
        with pytest.raises(SecurityError, match=r"does not know .*SCRAM-SHA-512: it knows PLAIN"):
            await tells(front.bootstrap, sasl("SCRAM-SHA-512"))
        with pytest.raises(UnavailableError, match="it may want authentication"):
            await tells(front.bootstrap, {})
    with pytest.raises(SecurityError, match="does not authenticate clients"):
        await tells(bus.bootstrap, sasl())


async def test_a_session_is_renewed_before_it_ends(bus: OurBus) -> None:
    """KIP-368: by a new connection."""
    async with running(Front(nodes_of(bus), users=USERS, lifetime_ms=1)) as front:
        settings = ClusterSettings(bootstrap=front.bootstrap, security=security_settings(sasl()))

        def ask_for_a_while() -> None:
            with Cluster(settings) as cluster:
                for _ in range(1000):
                    cluster.topics()
                    if front.logins >= 3:
                        return

        await trio.to_thread.run_sync(ask_for_a_while)
        assert front.logins >= 3
