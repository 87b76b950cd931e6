"""The files of TLS: what is wrong with them is said in words, and new ones are taken over."""

import os
import ssl
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtensionOID

from runtime.network.tls_context import (
    LOOK_EVERY_S,
    Found,
    Loaded,
    Reloading,
    TlsContexts,
    TlsFiles,
    TlsFilesError,
)
from tests.certs import Certs, now
from tests.runtime.doubles import Recorder

SECOND_NS = 1_000_000_000


@pytest.fixture
def certs(tmp_path: Path) -> Certs:
    made = Certs.new(tmp_path)
    made.node()
    return made


def files(certs: Certs, **others: Path) -> TlsFiles:
    folder = certs.folder
    given = {
        "certificate": folder / "node.crt",
        "key": folder / "node.key",
        "client_authorities": certs.trusted,
    }
    return TlsFiles(**{**given, **others})


def contexts(certs: Certs, recorder: Recorder | None = None, **others: Path) -> TlsContexts:
    journal = (recorder or Recorder()).journal
    return TlsContexts(files(certs, **others), ["none", "required"], journal)


def refusal(certs: Certs, **others: Path) -> str:
    with pytest.raises(TlsFilesError) as caught:
        contexts(certs, **others)
    return str(caught.value)


def test_contexts_are_made_for_each_way_to_ask_for_certificates(certs: Certs) -> None:
    made = contexts(certs)
    assert made.of("none").verify_mode is ssl.CERT_NONE
    required = made.of("required")
    assert required.verify_mode is ssl.CERT_REQUIRED
    assert required.minimum_version is ssl.TLSVersion.TLSv1_2
    assert required.options & ssl.OP_NO_RENEGOTIATION
    assert required.num_tickets == 0
    until = (now().timestamp() + 5 * 86_400, now().timestamp() + 10 * 86_400)
    assert made.authorities_expire_s is not None
    assert abs(made.expires_s - until[0]) < 60
    assert abs(made.authorities_expire_s - until[1]) < 60


def test_a_key_that_others_may_read_is_refused_with_the_cure(certs: Certs) -> None:
    key = certs.folder / "node.key"
    key.chmod(0o640)
    assert refusal(certs) == (
        f"tls.key = {key}: others than its owner may read it (mode 640); chmod 600 {key}"
    )


def test_what_does_not_fit_or_cannot_be_read_is_refused(certs: Certs) -> None:
    _, other_key = certs.node("other")
    assert f"tls.key = {other_key} is not its key" in refusal(certs, key=other_key)
    nowhere = certs.folder / "nowhere"
    for setting in ("certificate", "key", "client_authorities"):
        said = refusal(certs, **{setting: nowhere})
        assert said == f"tls.{setting} = {nowhere}: it cannot be read: No such file or directory"
    garbage = certs.folder / "garbage"
    garbage.write_bytes(os.urandom(100))
    garbage.chmod(0o600)
    assert "holds no PEM certificate" in refusal(certs, certificate=garbage)
    assert "holds no PEM certificate" in refusal(certs, client_authorities=garbage)
    assert "cannot be read as a PEM key" in refusal(certs, key=garbage)


def test_a_key_with_a_password_does_not_wait_for_somebody_at_the_terminal(certs: Certs) -> None:
    from cryptography.hazmat.primitives import serialization

    path = certs.folder / "node.key"
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    path.write_bytes(locked)
    assert "it has a password" in refusal(certs)


def renew(certs: Certs) -> None:
    (certs.folder / "node.crt").unlink()
    (certs.folder / "node.key").unlink()
    certs.node()


def test_new_files_are_taken_over_and_wrong_ones_are_not(certs: Certs) -> None:
    recorder = Recorder()
    made = contexts(certs, recorder)
    first = made.of("none")
    assert made.changed() is None
    renew(certs)
    found = made.changed()
    assert isinstance(found, Loaded)
    made.now_loaded(found)
    second = made.of("none")
    assert second is not first
    (certs.folder / "node.key").write_text("nonsense")
    for _ in range(3):
        made.now_loaded(made.changed())
    assert made.of("none") is second
    assert "tls.key" in made.complaint
    assert len(recorder.said("new TLS files are wrong: the old ones stay")) == 1, "once"
    renew(certs)
    made.now_loaded(made.changed())
    assert made.complaint == ""
    assert made.reloads_total == 2


@pytest.mark.parametrize("odd", ["gone", "extension"])
def test_files_that_libraries_cannot_bear_are_wrong_ones(certs: Certs, odd: str) -> None:
    """A file that goes while the files are read, as a script's `rm` and `cp` do, or a certificate
    with an extension that is none: an exception in the background thread would end the node."""
    recorder = Recorder()

    def check(_files: TlsFiles, certificate: x509.Certificate) -> None:
        if odd == "gone":
            certs.trusted.unlink(missing_ok=True)
        else:
            assert certificate.extensions

    given = files(certs)
    made = TlsContexts(given, ["required"], recorder.journal)
    before = made.of("required")
    made._check = check
    root, key = certs.authority.certificate, certs.authority.key
    issued = (
        x509.CertificateBuilder()
        .subject_name(root.subject)
        .issuer_name(root.subject)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(now())
        .not_valid_after(now() + timedelta(days=1))
        .add_extension(
            x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"none"), False
        )
        .sign(key, hashes.SHA256())
    )
    if odd == "extension":
        given.certificate.write_bytes(issued.public_bytes(serialization.Encoding.PEM))
    else:
        certs.trusted.write_bytes(certs.trusted.read_bytes() + b"\n")
    made.now_loaded(made.changed())
    assert "[tls]: its files cannot be used" in made.complaint
    assert made.of("required") is before


def test_files_are_looked_at_now_and_then_and_at_once_when_asked(certs: Certs) -> None:
    made = contexts(certs)
    submitted = []

    def submit(work, done) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
        submitted.append((work, done))

    def finish() -> Found:
        work, done = submitted.pop()
        found = work()
        done(found)
        return found

    reloading = Reloading(made, submit)
    at = LOOK_EVERY_S * SECOND_NS
    reloading.tick(at)
    reloading.tick(at + SECOND_NS)
    assert len(submitted) == 1, "the first is not done"
    assert finish() is None
    reloading.tick(at + SECOND_NS)
    assert not submitted
    renew(certs)
    reloading.hurry()
    reloading.tick(at + SECOND_NS)
    assert isinstance(finish(), Loaded)
    reloading.tick(at + 2 * SECOND_NS)
    assert not submitted
    reloading.tick(2 * at + SECOND_NS)
    assert finish() is None
