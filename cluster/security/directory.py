"""The directory `security` of a secure cluster on this machine: made once, and kept.

    ca.crt, ca.key               an authority of the cluster's own
    node-1.crt, node-1.key       node 1's certificate, for 127.0.0.1 and localhost
    users                        first users, as salted keys (security.bootstrap_users_file)
    admin.password               the password of the first administrator, made at random
    node-1.audit.log             what node 1 denied (security.audit_log)
    clients/                     settings for clients, written anew at every start (clients.py)

The directory and every file with a secret are for their owner only. What is there is never
overwritten: neither a key nor a password that is lost can be made again. A node's certificate also
has the DNS name `node-1.CLUSTER-ID.evenkeel`, which says which node of which cluster it is: links
between nodes can go by it (ADR 66).
"""

import datetime
import errno
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import attrs

from broker.security.users import MECHANISM_NAMES, user_line
from cluster.certificates import AUTHORITY_CERTIFICATE, OWNER_ONLY, Authority, CertificateProblem
from wire.scram import ITERATIONS_MIN, make_credential

ADMINISTRATOR: Final = "admin"
MECHANISM: Final = "SCRAM-SHA-512"
OWNER_ENTERS: Final = 0o700
DAYS: Final = 3650
"""Certificates last as long as their authority: all of this stays on one machine."""
PASSWORD_BYTES: Final = 24
PASSWORD_CHARS_MAX: Final = 1_000
SALT_BYTES: Final = 16
OF_NODES: Final = ".evenkeel"
"""The ending of names of nodes, which no host has."""
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@attrs.frozen
class SecurityDirectory:
    """Where it all is; `make` makes what is missing."""

    path: Path

    @property
    def authority(self) -> Path:
        return self.path / AUTHORITY_CERTIFICATE

    @property
    def users(self) -> Path:
        return self.path / "users"

    @property
    def password(self) -> Path:
        return self.path / f"{ADMINISTRATOR}.password"

    @property
    def clients(self) -> Path:
        return self.path / "clients"

    def certificate(self, node_id: int) -> Path:
        return self.path / f"node-{node_id}.crt"

    def key(self, node_id: int) -> Path:
        return self.path / f"node-{node_id}.key"

    def audit_log(self, node_id: int) -> Path:
        return self.path / f"node-{node_id}.audit.log"

    def make(self, cluster_id: str, hosts: Sequence[tuple[int, str]]) -> bool:
        """Make what is missing for these nodes, with the host that each listens on; return whether
        the administrator's password was made.

        Raises:
            CertificateProblem: a file is missing that cannot be made again, or cannot be written.
            OSError: the directory cannot be written.
        """
        for folder in (self.path, self.clients):
            folder.mkdir(mode=OWNER_ENTERS, parents=True, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC)
        if not self.authority.exists():
            Authority.new(f"Evenkeel {cluster_id}", DAYS, now).write(self.path)
        missing = [(node, host) for node, host in hosts if not self.certificate(node).exists()]
        if missing:  # else its key may be elsewhere
            authority = Authority.read(self.path)
            for node, host in missing:
                name = f"node-{node}.{cluster_id}"
                names = list(dict.fromkeys((*LOCAL_NAMES, host, f"{name}{OF_NODES}")))
                issued = authority.issue(name, names, DAYS, now, of_node=True)
                issued.write(self.path, f"node-{node}")
        return self._first_user()

    def _first_user(self) -> bool:
        """The password first: without it the keys would be of no use."""
        if self.users.exists():
            return False
        if not self.password.exists():
            write_once(self.password, f"{secrets.token_urlsafe(PASSWORD_BYTES)}\n")
        password = self.known_password()
        if not password:
            raise CertificateProblem(f"{self.password} is empty: write a password into it")
        mechanism = MECHANISM_NAMES[MECHANISM]
        salt = os.urandom(SALT_BYTES)
        credential = make_credential(mechanism, password, salt, ITERATIONS_MIN)
        write_once(self.users, f"{user_line(ADMINISTRATOR, mechanism, credential)}\n")
        return True

    def known_password(self) -> str:
        """The administrator's; "" if its file is gone: then somebody keeps it elsewhere."""
        try:
            with self.password.open(encoding="utf-8") as file:
                return file.readline(PASSWORD_CHARS_MAX).rstrip("\n")
        except FileNotFoundError:
            return ""


def write_once(path: Path, text: str) -> None:
    """A new file for its owner only. (The launcher of a directory is alone: cluster.state.)

    Raises:
        OSError: it is there already, or cannot be written.
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    write_anew(path, text)


def write_anew(path: Path, text: str) -> None:
    """A file for its owner only, in place of the one that is there. Whole or not at all: it must
    not be taken for one that a crash has left half written.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    opened = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    with os.fdopen(opened, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
