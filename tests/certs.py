"""Certificates for tests, by what `evenkeel cert` makes them with."""

import datetime
import ssl
from pathlib import Path

import attrs

from cluster.certificates import AUTHORITY_CERTIFICATE, Authority


def now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


@attrs.frozen
class Certs:
    """An authority, and files of certificates that it has signed."""

    folder: Path
    authority: Authority

    @classmethod
    def new(cls, folder: Path, name: str = "test authority") -> "Certs":
        authority = Authority.new(name, 10, now())
        authority.write(folder)
        return cls(folder, authority)

    @property
    def trusted(self) -> Path:
        return self.folder / AUTHORITY_CERTIFICATE

    def node(self, stem: str = "node", *, days: int = 5) -> tuple[Path, Path]:
        hosts = ("localhost", "127.0.0.1", "::1")
        return self.authority.issue(stem, hosts, days, now(), of_node=True).write(self.folder, stem)

    def peer(self, stem: str, *names: str, days: int = 5) -> tuple[Path, Path]:
        """Of a node, with these names for other nodes."""
        issued = self.authority.issue(stem, names, days, now(), of_node=True)
        return issued.write(self.folder, stem)

    def client(self, stem: str = "alice", *, days: int = 5) -> tuple[Path, Path]:
        return self.authority.issue(stem, (), days, now()).write(self.folder, stem)

    def context_of(self, files: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """A client's."""
        context = ssl.create_default_context(cafile=str(self.trusted))
        if files is not None:
            context.load_cert_chain(*files)
        return context
