"""`evenkeel cert`: what it makes is enough for TLS with names, and is never overwritten."""

import ssl
import stat
import tomllib
from pathlib import Path

import pytest
from cryptography import x509

from cli import main as cli
from paxos.ids import NodeId
from runtime.config.config import Address, Config
from runtime.config.peer_tls import PeerTlsSection
from runtime.config.sections import ListenSection, NodeSection
from runtime.peers.security import links_of
from tests.runtime.doubles import FakePlane, Recorder


def cert(folder: Path, *words: str) -> int:
    return cli.run(["cert", *words, "--dir", str(folder)])


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    made = tmp_path / "certificates"
    assert cert(made, "init") == 0
    capsys.readouterr()
    return made


def test_keys_are_readable_by_their_owner_only(folder: Path) -> None:
    cert(folder, "node", "node-1", "--host", "localhost")
    cert(folder, "client", "alice")
    for name in ("ca", "node-1", "alice"):
        assert stat.S_IMODE((folder / f"{name}.key").stat().st_mode) == 0o600
        assert (folder / f"{name}.crt").exists()


def test_what_is_printed_is_a_configuration(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cert(folder, "node", "node-1", "--host", "localhost") == 0
    section = tomllib.loads(capsys.readouterr().out)["tls"]
    assert section["key"] == str((folder / "node-1.key").resolve())
    assert cert(folder, "client", "alice") == 0
    out = capsys.readouterr().out
    assert f"ssl.ca.location={(folder / 'ca.crt').resolve()}\n" in out
    assert "security.protocol=ssl\n" in out


@pytest.mark.parametrize(
    ("host", "verified"),
    [("bus.example.com", True), ("10.0.0.1", True), ("::1", True), ("else.example.com", False)],
)
def test_clients_verify_the_names_and_addresses(folder: Path, host: str, verified: bool) -> None:
    hosts = ("bus.example.com", "10.0.0.1", "::1")
    cert(folder, "node", "n", *(word for one in hosts for word in ("--host", one)))
    cert(folder, "client", "alice")
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    server.load_cert_chain(folder / "n.crt", folder / "n.key")
    server.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    client.load_cert_chain(folder / "alice.crt", folder / "alice.key")
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(incoming, outgoing, server_side=True)
    theirs = client.wrap_bio(outgoing, incoming, server_hostname=host)
    done = 0
    try:
        for _ in range(4):
            for side in (theirs, ours):
                try:
                    side.do_handshake()
                    done += 1
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLCertVerificationError:
        assert not verified
        return
    assert verified
    assert done >= 2
    shown = ours.getpeercert()
    assert shown is not None
    assert shown["subject"] == ((("commonName", "alice"),),)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("init",), "is there already: move it away"),
        (("node", "../up", "--host", "h"), "the name is also that of files"),
        (("client", ".hidden"), "the name is also that of files"),
        (("client", "x" * 65), "no name for a certificate"),
    ],
)
def test_what_cannot_be_made_is_refused_in_words(
    folder: Path, words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    assert cert(folder, *words) == 1
    assert complaint in capsys.readouterr().err
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_without_an_authority_nothing_is_signed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cert(tmp_path, "client", "alice") == 1
    assert "evenkeel cert init makes an authority" in capsys.readouterr().err


def test_a_nodes_certificate_proves_which_node_of_which_cluster_it_is(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cert(folder, "node", "n2", "--node", "2", "--cluster", "My_bus.1") == 0
    printed = tomllib.loads(capsys.readouterr().out)
    assert set(printed) == {"peer_tls"}, "without a host it is not for clients"
    section = PeerTlsSection(**{key: Path(value) for key, value in printed["peer_tls"].items()})
    read = x509.load_pem_x509_certificate((folder / "n2.crt").read_bytes())
    names = read.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["node-2.My_bus.1.evenkeel"]
    config = Config(
        node=NodeSection(id=NodeId(2), cluster_id="My_bus.1", data_dir=folder),
        listen=ListenSection(),
        peers={NodeId(2): Address("127.0.0.1", 7092)},
        peer_tls=section,
    )
    assert links_of(config, FakePlane(), Recorder().journal).encrypts
    both = ("--node", "3", "--cluster", "c", "--host", "bus.example.com")
    assert cert(folder, "node", "n3", *both) == 0
    assert set(tomllib.loads(capsys.readouterr().out)) == {"tls", "peer_tls"}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "say what it is for"),
        (("--node", "2"), "--node and --cluster belong together"),
        (("--cluster", "c", "--host", "h"), "--node and --cluster belong together"),
    ],
)
def test_a_name_that_is_half_given_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reason: str
) -> None:
    assert cert(folder, "node", "n", *words) != 0
    assert reason in capsys.readouterr().err
    assert not (folder / "n.key").exists()
