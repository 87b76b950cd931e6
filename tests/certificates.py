"""Certificates for tests, made by the openssl command; without it, the tests that need them
skip."""

import shutil
import subprocess
from pathlib import Path

import attrs
import pytest

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256")


@attrs.frozen
class Authority:
    """Signs certificates; a client that trusts `certificate` trusts these."""

    folder: Path

    @property
    def certificate(self) -> Path:
        return self.folder / "authority.pem"

    def issue(self, name: str, host: str = "127.0.0.1", password: str | None = None) -> Path:
        """One file with a key and a certificate for a host, which is an IP address or a name."""
        kind = "IP" if host.replace(".", "").isdecimal() else "DNS"
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        locked = ("-nodes",) if password is None else ("-passout", f"pass:{password}")
        _openssl(
            *("req", "-x509", *CURVE, *locked, "-days", "2", "-subj", f"/CN={name}"),
            *("-CA", str(self.certificate), "-CAkey", str(self.folder / "authority.key")),
            *("-addext", f"subjectAltName={kind}:{host}"),
            *("-addext", "basicConstraints=critical,CA:FALSE"),
            *("-keyout", str(key), "-out", str(certificate)),
        )
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def new_authority(folder: Path) -> Authority:
    made = Authority(folder)
    _openssl(
        *("req", "-x509", *CURVE, "-nodes", "-days", "2", "-subj", "/CN=authority"),
        *("-keyout", str(folder / "authority.key"), "-out", str(made.certificate)),
    )
    return made


def _openssl(*words: str) -> None:
    found = shutil.which("openssl")
    if found is None:
        pytest.skip("there is no openssl to make a certificate with")
    subprocess.run([found, *words], check=True, capture_output=True)
