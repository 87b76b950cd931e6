"""Whose certificates of clients are believed, for connections that are open already.

For a new connection OpenSSL decides. When the authorities or the lists of revoked certificates have
changed, open connections are judged here by the chain that OpenSSL had verified: each certificate
is signed by the next, the last by an authority that is still in the file, none has expired or is on
its issuer's list. Other links of a chain (purposes, name constraints) were verified by OpenSSL, and
do not change.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    import datetime

    from cryptography import x509

REVOKED_BYTES_MAX: Final = 16 * 1024 * 1024
CHAIN_MAX: Final = 10
_END: Final = b"-----END X509 CRL-----"


class RevokedError(ValueError):
    """What is wrong with lists of revoked certificates, in words for the operator."""


@attrs.frozen
class Belief:
    authorities: "tuple[x509.Certificate, ...]" = ()
    revoked: "tuple[x509.CertificateRevocationList, ...]" = ()

    def problem(self, chain: Sequence[bytes], now_s: float) -> str:
        """Why a chain that was verified once is not believed now; "" if it is. Some tenths of a
        millisecond: not for the event loop."""
        from cryptography import x509

        links = [_Link(x509.load_der_x509_certificate(one)) for one in chain[:CHAIN_MAX]]
        anchors = [_Link(one) for one in self.authorities]
        link = links[0]
        for _ in range(CHAIN_MAX):
            if link.expires_s <= now_s:
                return "its certificate, or one that it depends on, has expired"
            if link.is_root:
                known = link.certificate in self.authorities
                return "" if known else "the authority of its certificate is no longer believed"
            issuers = [one for one in (*anchors, *links) if link.is_issued_by(one)]
            if not issuers:
                return "the authority of its certificate is no longer believed"
            if any(link.is_on(one) for one in self.revoked):
                return "its certificate was revoked"
            # An authority may have been renewed with the same key: OpenSSL takes the good one, too.
            link = next((one for one in issuers if one.expires_s > now_s), issuers[0])
        return "its certificate has too long a chain"


class _Link:
    """A certificate of a chain."""

    def __init__(self, certificate: "x509.Certificate") -> None:
        self.certificate = certificate

    @property
    def is_root(self) -> bool:
        return self.certificate.issuer == self.certificate.subject

    @property
    def expires_s(self) -> float:
        return self.certificate.not_valid_after_utc.timestamp()

    def is_issued_by(self, other: "_Link") -> bool:
        if self.certificate.issuer != other.certificate.subject:
            return False
        try:
            self.certificate.verify_directly_issued_by(other.certificate)
        except Exception:  # noqa: BLE001  a wrong signature, or a key that cannot sign
            return False
        return True

    def is_on(self, listed: "x509.CertificateRevocationList") -> bool:
        if listed.issuer != self.certificate.issuer:
            return False
        number = self.certificate.serial_number
        return listed.get_revoked_certificate_by_serial_number(number) is not None


def revocations(
    data: bytes, authorities: "Sequence[x509.Certificate]", now: "datetime.datetime"
) -> "tuple[x509.CertificateRevocationList, ...]":
    """The lists of a PEM file. OpenSSL believes nobody whose authority has no list, or an old one.

    Raises:
        RevokedError: a list cannot be read or is of no authority, or an authority has none.
    """
    from cryptography import x509

    try:
        parts = [part + _END for part in data.split(_END)[:-1]]
        lists = [x509.load_pem_x509_crl(part.lstrip()) for part in parts]
    except ValueError as error:
        raise RevokedError("a list of revoked certificates in it cannot be read") from error
    for one in lists:
        if one.next_update_utc is not None and one.next_update_utc <= now:
            raise RevokedError(f"the list of {one.issuer.rfc4514_string()[:200]} is old: make one")
        if one.last_update_utc > now:
            name = one.issuer.rfc4514_string()[:200]
            raise RevokedError(
                f"the list of {name} is not valid yet: until {one.last_update_utc:%Y-%m-%d %H:%M} "
                "UTC nobody with a certificate of it would be let in; clocks may differ"
            )
        if not any(_signed(one, by) for by in authorities):
            name = one.issuer.rfc4514_string()[:200]
            raise RevokedError(f"the list of {name} is signed by none of tls.client_authorities")
    for by in authorities:
        if not any(_signed(one, by) for one in lists):
            name = by.subject.rfc4514_string()[:200]
            raise RevokedError(
                f"there is no list of the authority {name}; without one, nobody with a certificate "
                "of it would be let in: add one, an empty one if nothing is revoked"
            )
    return tuple(lists)


def _signed(one: "x509.CertificateRevocationList", by: "x509.Certificate") -> bool:
    try:
        # A key of another type raises.
        key: Any = by.public_key()
        return one.issuer == by.subject and one.is_signature_valid(key)
    except Exception:  # noqa: BLE001  a key that cannot sign a list
        return False
