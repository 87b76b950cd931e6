"""An authority of one's own and certificates from it: enough for TLS in a cluster, and no more.

Elliptic curves (P-256): a signature is ten times cheaper than RSA's, and it is made on the node's
event loop. Keys are files that only their owner reads, and are never overwritten.
"""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

OWNER_ONLY: Final = 0o600
EVERYBODY_READS: Final = 0o644
EARLIER: Final = datetime.timedelta(minutes=5)
"""Certificates begin this long ago: clocks of other machines may be behind."""
AUTHORITY_CERTIFICATE: Final = "ca.crt"
AUTHORITY_KEY: Final = "ca.key"


class CertificateProblem(Exception):
    """Why a certificate cannot be made, in words."""


@attrs.frozen
class Authority:
    """Signs certificates. Whoever has its key can be any node and any client."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def new(cls, name: str, days: int, now: datetime.datetime) -> "Authority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = _subject(name)
        made = (
            _begun(subject, subject, key, days, now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(made, key)

    @classmethod
    def read(cls, folder: Path) -> "Authority":
        """
        Raises:
            CertificateProblem: it is not there, or not what `new` makes.
        """
        path = folder / AUTHORITY_CERTIFICATE
        try:
            certificate = x509.load_pem_x509_certificate(path.read_bytes())
            path = folder / AUTHORITY_KEY
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        except OSError as error:
            text = f"{path}: {error.strerror}; evenkeel cert init makes an authority"
            raise CertificateProblem(text) from error
        except (ValueError, TypeError) as error:
            raise CertificateProblem(f"{path}: it is no PEM file without a password") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateProblem(f"{path}: it is no key of an elliptic curve")
        if certificate.public_key() != key.public_key():
            raise CertificateProblem(f"{path}: it is not the key of {AUTHORITY_CERTIFICATE}")
        return cls(certificate, key)

    def write(self, folder: Path) -> tuple[Path, Path]:
        """
        Raises:
            CertificateProblem: there is one already, or it cannot be written.
        """
        return _written(folder, Path(AUTHORITY_CERTIFICATE).stem, self.certificate, self.key)

    def issue(
        self,
        name: str,
        hosts: Sequence[str],
        days: int,
        now: datetime.datetime,
        *,
        of_node: bool = False,
    ) -> "Issued":
        """A certificate for a client, or (`of_node`) for a node that is reached by `hosts`: names
        and IP addresses."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if of_node:
            uses.append(ExtendedKeyUsageOID.SERVER_AUTH)
        made = (
            _begun(_subject(name), self.certificate.subject, key, days, now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = [_general_name(host) for host in hosts]
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return Issued(made.sign(self.key, hashes.SHA256()), key)


@attrs.frozen
class Issued:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def write(self, folder: Path, stem: str) -> tuple[Path, Path]:
        """Write `stem`.crt and `stem`.key.

        Raises:
            CertificateProblem: one is there already, or cannot be written.
        """
        return _written(folder, stem, self.certificate, self.key)


def _subject(name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise CertificateProblem(f"{name!r} is no name for a certificate: {error}") from error


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: int,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + datetime.timedelta(days=days)) - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise CertificateProblem(f"{host!r} is no name of a host: {error}") from error


def _written(
    folder: Path, stem: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> tuple[Path, Path]:
    pem = serialization.Encoding.PEM
    certificate_path, key_path = folder / f"{stem}.crt", folder / f"{stem}.key"
    plain = serialization.NoEncryption()
    encoded = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _create(key_path, encoded, OWNER_ONLY)
        _create(certificate_path, certificate.public_bytes(pem), EVERYBODY_READS)
    except FileExistsError as error:
        raise CertificateProblem(f"{error.filename} is there already: move it away") from error
    except OSError as error:
        raise CertificateProblem(f"{error.filename}: {error.strerror}") from error
    return certificate_path, key_path


def _create(path: Path, data: bytes, mode: int) -> None:
    """Never overwrite: a key that is lost cannot be made again."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
