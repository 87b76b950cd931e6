"""Open connections of those who are no longer believed are closed, and no others."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from broker.security.authentication import CutOff
from broker.security.listeners import ClientListener, SecurityProtocol
from broker.security.principal import ANONYMOUS, Principal
from broker.security.session import Stage
from runtime.clients import cut_off
from runtime.clients.clients import Client
from runtime.clients.cut_off import RENEWAL_NS, CutOffs
from runtime.clients.doors import Door
from runtime.network.tls_belief import Belief
from runtime.network.tls_channel import TlsChannel
from runtime.network.tls_context import TlsContexts, TlsFiles, TlsFilesError
from runtime.network.tls_stream import TlsStream
from tests.certs import Certs, now
from tests.runtime.clients.test_clients import Harness
from tests.runtime.clients.test_clients import harness as harness  # a fixture
from tests.runtime.clients.test_doors import come, door, shake

DAY = datetime.timedelta(days=1)


@pytest.fixture
def certs(tmp_path: Path) -> Certs:
    made = Certs.new(tmp_path)
    made.node()
    made.client("alice")
    return made


def crl(by: Certs, *revoked: Path, days: int = 2, since: int = -1) -> bytes:
    """A list, signed by an authority."""
    authority = by.authority
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now() + since * DAY)
        .next_update(now() + days * DAY)
    )
    for path in revoked:
        number = x509.load_pem_x509_certificate(path.read_bytes()).serial_number
        one = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now())
        builder = builder.add_revoked_certificate(one.build())
    signed = builder.sign(authority.key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


@attrs.define(slots=False)
class World:
    """A node's clients, whose files of authorities may change."""

    harness: Harness
    certs: Certs
    door: Door
    wall_s: float = attrs.Factory(lambda: now().timestamp())
    jobs: list[int] = attrs.Factory(list)

    def __attrs_post_init__(self) -> None:
        self.cut_offs = CutOffs(
            self.harness.clients,
            self.contexts,
            self._submit,
            lambda: self.wall_s,
            self.harness.recorder.journal,
        )

    @property
    def contexts(self) -> TlsContexts:
        assert self.door.tls is not None
        return self.door.tls.contexts

    def _submit(self, work: Any, done: Any) -> None:
        verdicts = work()
        self.jobs.append(len(verdicts))
        done(verdicts)

    def joined(self, stem: str = "alice") -> Client:
        """A client that has shown its certificate, and is let in."""
        before = set(self.harness.clients.connections)
        stream = come(self.harness, self._named(stem), self.door)
        shake(self.harness, stream)
        (client,) = set(self.harness.clients.connections) - before
        return client

    def _named(self, stem: str) -> Certs:
        folder = self.certs.folder
        if stem != "alice":  # `come` shows alice's
            for kind in ("crt", "key"):
                (folder / f"alice.{kind}").write_bytes((folder / f"{stem}.{kind}").read_bytes())
        return self.certs

    def reload(self) -> None:
        """As Reloading does."""
        self.contexts.now_loaded(self.contexts.changed())
        assert not self.contexts.complaint, self.contexts.complaint


@pytest.fixture
def world(harness: Harness, certs: Certs) -> World:
    return World(harness, certs, door(harness, certs, "required"))


def test_the_chain_that_was_verified_is_kept(world: World) -> None:
    client = world.joined()
    channel = client.channel
    assert isinstance(channel, TlsChannel)
    assert channel.shown is not None
    own, root = channel.shown.chain
    assert b"alice" in own
    assert x509.load_der_x509_certificate(root) == world.certs.authority.certificate
    assert channel.shown.expires_s > now().timestamp()


def test_a_certificate_that_expires_ends_its_connection(world: World) -> None:
    client = world.joined()
    world.cut_offs.tick(0)
    assert not client.gone
    world.wall_s += 6 * 86_400
    world.cut_offs.tick(0)
    assert client.gone
    assert world.cut_offs.closed == {CutOff.CERTIFICATE: 1}


def test_another_authority_ends_the_connections_of_the_old_one(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client = world.joined()
    other = Certs.new(tmp_path_factory.mktemp("other"), "another authority")
    both = world.certs.trusted.read_bytes() + other.trusted.read_bytes()
    world.certs.trusted.write_bytes(both)
    world.reload()
    assert not client.gone, "the old one is still believed"
    assert world.jobs == [1]
    world.cut_offs.tick(0)
    assert world.jobs == [1], "once for each change of the files"
    world.certs.trusted.write_bytes(other.trusted.read_bytes())
    world.reload()
    assert client.gone
    assert world.cut_offs.closed == {CutOff.CERTIFICATE: 1}


def test_an_authority_of_the_same_name_is_not_the_same(
    world: World, tmp_path_factory: pytest.TempPathFactory
) -> None:
    client = world.joined()
    pretender = Certs.new(tmp_path_factory.mktemp("pretender"))
    world.certs.trusted.write_bytes(pretender.trusted.read_bytes())
    world.reload()
    assert client.gone


def revoking(harness: Harness, certs: Certs, data: bytes) -> World:
    """A node with a list of revoked certificates."""
    (certs.folder / "revoked.pem").write_bytes(data)
    plain = door(harness, certs, "required")
    files = TlsFiles(
        certificate=certs.folder / "node.crt",
        key=certs.folder / "node.key",
        client_authorities=certs.trusted,
        revoked=certs.folder / "revoked.pem",
    )
    contexts = TlsContexts(files, ["required"], harness.recorder.journal)
    assert plain.tls is not None
    return World(
        harness, certs, attrs.evolve(plain, tls=attrs.evolve(plain.tls, contexts=contexts))
    )


def test_a_revoked_certificate_ends_its_connection_and_opens_no_other(
    harness: Harness, certs: Certs
) -> None:
    world = revoking(harness, certs, crl(certs))
    alice = world.joined()
    revoked = (certs.folder / "alice.crt").read_bytes()
    certs.client("bob")
    (certs.folder / "was-alice.crt").write_bytes(revoked)
    (certs.folder / "was-alice.key").write_bytes((certs.folder / "alice.key").read_bytes())
    bob = world.joined("bob")
    (certs.folder / "revoked.pem").write_bytes(crl(certs, certs.folder / "was-alice.crt"))
    world.reload()
    assert alice.gone
    assert not bob.gone
    with pytest.raises(ValueError, match="not enough values"):
        world.joined("was-alice")


def test_lists_that_would_shut_everybody_out_or_in_are_refused(
    harness: Harness, certs: Certs, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Certs.new(tmp_path_factory.mktemp("other"), "another authority")
    for data, why in (
        (b"", "there is no list of the authority"),
        (b"-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "cannot be read"),
        (crl(certs) + crl(other), "signed by none of"),
        (crl(certs, days=0), "is old"),
        (crl(certs, since=1), "is not valid yet"),
    ):
        with pytest.raises(TlsFilesError, match=why):
            revoking(harness, certs, data)


def test_a_list_that_is_not_valid_yet_waits_until_it_is(harness: Harness, certs: Certs) -> None:
    """OpenSSL believes nobody by it: the clock of who made it may be ahead by a second."""
    world = revoking(harness, certs, crl(certs))
    certs.client("bob")
    (certs.folder / "revoked.pem").write_bytes(crl(certs, certs.folder / "bob.crt", since=1))
    world.contexts.now_loaded(world.contexts.changed())
    assert "is not valid yet" in world.contexts.complaint
    assert not world.joined().gone


def test_many_certificates_are_judged_in_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut_off, "BATCH", 2)
    clients = [world.joined()]
    for stem in ("bob", "carol", "dora", "emil"):
        world.certs.client(stem)
        clients.append(world.joined(stem))
    world.certs.trusted.write_bytes(world.certs.trusted.read_bytes() + b"\n")
    world.reload()
    assert world.jobs == [2, 2, 1]
    assert not any(client.gone for client in clients)


def test_who_came_in_by_the_old_files_is_judged_by_the_new(world: World) -> None:
    """The handshake ends after the reload."""
    stream: TlsStream = come(world.harness, world.certs, world.door)
    world.certs.trusted.write_bytes(world.certs.trusted.read_bytes() + b"\n")
    world.reload()
    assert world.jobs == []
    shake(world.harness, stream)
    world.cut_offs.tick(0)
    assert world.jobs == [1]


def test_a_session_that_is_over_ends_its_connection(harness: Harness, certs: Certs) -> None:
    made = door(harness, certs, "optional")
    assert made.tls is not None
    listener = ClientListener("TLS", SecurityProtocol.SASL_SSL)
    world = World(harness, certs, Door(listener, made.tls))
    client = world.joined()
    session = client.connection.session
    assert session is not None
    assert client.connection.certified == Principal("User", "CN=alice")
    assert client.connection.principal == ANONYMOUS, "SASL says who it is"
    session.stage, session.expires_boot_ns = Stage.PROVED, 1_000
    world.cut_offs.tick(999)
    assert not client.gone
    session.stage = Stage.EXCHANGE
    world.cut_offs.tick(1_000 + RENEWAL_NS - 1)
    assert not client.gone, "it authenticates again"
    session.stage = Stage.PROVED
    world.cut_offs.tick(1_000)
    assert client.gone
    assert world.cut_offs.closed == {CutOff.EXPIRED: 1}


def test_chains_that_cannot_be_read_are_not_believed(world: World) -> None:
    chains: Sequence[tuple[bytes, ...]] = [(b"",), (b"x",) * 20]
    verdicts = cut_off._verdicts(world.contexts.belief, tuple(chains), world.wall_s)
    assert all("cannot be judged" in why for why in verdicts.values())


def test_an_authority_that_was_renewed_with_its_key_is_believed_beside_the_old_one(
    certs: Certs,
) -> None:
    """Whoever comes anew is let in by the renewed one, whatever their order in the file."""

    def authority(days: int) -> x509.Certificate:
        root = certs.authority.certificate
        builder = (
            x509.CertificateBuilder()
            .subject_name(root.subject)
            .issuer_name(root.subject)
            .public_key(root.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now() - 5 * DAY)
            .not_valid_after(now() + days * DAY)
        )
        return builder.sign(certs.authority.key, hashes.SHA256())

    der = serialization.Encoding.DER
    own = x509.load_pem_x509_certificate((certs.folder / "alice.crt").read_bytes())
    old, new = authority(-1), authority(9)
    chain = [own.public_bytes(der), new.public_bytes(der)]
    at_s = now().timestamp()
    for authorities in ((old, new), (new, old), (new,)):
        assert Belief(authorities).problem(chain, at_s) == ""
    assert Belief((old,)).problem(chain, at_s) != ""
