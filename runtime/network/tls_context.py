"""The node's certificate and key, and whose certificates of clients it believes; from PEM files.

The files are read when the node starts: what is wrong with them then ends it, in words. Later they
are looked at every LOOK_EVERY_S in the background thread, and at once after SIGHUP; when they have
changed, new connections get the new ones, and open connections go on with theirs as long as their
certificates are believed (runtime.clients.cut_off). New files that are wrong change nothing: the
old ones are kept, and the journal says why.
"""

import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

if TYPE_CHECKING:
    from cryptography import x509

from runtime.network.tls_belief import REVOKED_BYTES_MAX, Belief, RevokedError, revocations
from runtime.network.tls_stream import in_words
from runtime.system.journal import Journal

LOOK_EVERY_S: Final = 5
FILE_BYTES_MAX: Final = 1024 * 1024
OTHERS_MAY: Final = 0o077
"""The permissions that a key must not have."""
VERIFY: Final = {
    "none": ssl.CERT_NONE,
    "optional": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
DIALS: Final = "dials"
"""The mode of a context for connections that this node opens: it shows its certificate, and the
other side's is required. Whose it is, is for the owner of the connection to check."""
Stamp: TypeAlias = tuple[tuple[int, int, int], ...]
"""Of each file its inode, size and time of change."""


class TlsFilesError(Exception):
    """What is wrong with the files, in words for the operator."""


@attrs.frozen(kw_only=True)
class TlsFiles:
    certificate: Path
    key: Path
    client_authorities: Path | None = None
    """Those of nodes, for links between nodes."""
    revoked: Path | None = None
    section: str = "tls"
    """Where their settings are, for messages to the operator."""
    authorities_name: str = "client_authorities"

    @property
    def _all(self) -> list[tuple[str, Path]]:
        named = [("certificate", self.certificate), ("key", self.key)]
        more = ((self.authorities_name, self.client_authorities), ("revoked", self.revoked))
        return named + [(setting, path) for setting, path in more if path is not None]

    def shown(self, key: str) -> str:
        """How a message about one of the files begins."""
        return f"{self.section}.{key} = {dict(self._all)[key]}"

    def stamp(self) -> Stamp:
        """
        Raises:
            TlsFilesError: one of them cannot be read.
        """
        found = []
        for setting, path in self._all:
            try:
                seen = path.stat()
            except OSError as error:
                raise TlsFilesError(_unreadable(self, setting, error)) from error
            found.append((seen.st_ino, seen.st_size, seen.st_mtime_ns))
        return tuple(found)


@attrs.frozen(kw_only=True)
class Loaded:
    """What the files held when they were read last."""

    stamp: Stamp
    contexts: dict[str, ssl.SSLContext]
    expires_s: int
    """When the first certificate of the node's own chain expires; seconds since 1970."""
    authorities_expire_s: int | None
    """When the last authority of clients expires."""
    belief: "Belief"
    """Whose certificates of clients are believed."""


Found: TypeAlias = "Loaded | TlsFilesError | None"
Check: TypeAlias = Callable[[TlsFiles, "x509.Certificate"], None]
"""Raises TlsFilesError if the node's own certificate is not fit for its use."""
Submit: TypeAlias = Callable[[Callable[[], Found], Callable[[Found], None]], None]
"""Runs the first in another thread, and the second, with its result, on the loop."""


def fits(_files: TlsFiles, _certificate: "x509.Certificate") -> None:
    """Nothing is demanded of the certificate."""


def load(files: TlsFiles, modes: Sequence[str], check: Check = fits) -> Loaded:
    """Read the files, and make a context for each mode: a way to ask clients for certificates, or
    DIALS.

    Raises:
        TlsFilesError: they cannot be read, or do not fit each other.
    """
    try:
        return _load(files, modes, check)
    except TlsFilesError:
        raise
    except Exception as error:
        # Whatever libraries make of somebody's files: one that is gone since it was looked at, an
        # extension that cannot be read. Where files are read again, that must not end the node.
        text = getattr(error, "strerror", None) or str(error)
        why = f"[{files.section}]: its files cannot be used: {type(error).__name__}: {text[:200]}"
        raise TlsFilesError(why) from error


def _load(files: TlsFiles, modes: Sequence[str], check: Check) -> Loaded:
    stamp = files.stamp()
    mode = files.key.stat().st_mode
    if mode & OTHERS_MAY:
        raise TlsFilesError(
            f"{files.shown('key')}: others than its owner may read it (mode {mode & 0o777:o}); "
            f"chmod 600 {files.key}"
        )
    chain = _certificates(files, "certificate", files.certificate)
    if files.client_authorities is None:
        authorities = []
    else:
        authorities = _certificates(files, files.authorities_name, files.client_authorities)
    revoked = () if files.revoked is None else _revocations(files, files.revoked, authorities)
    check(files, chain[0])
    contexts = {one: _context(files, one) for one in modes}
    return Loaded(
        stamp=stamp,
        contexts=contexts,
        expires_s=min(map(_expiry_s, chain)),
        authorities_expire_s=max(map(_expiry_s, authorities)) if authorities else None,
        belief=Belief(tuple(authorities), revoked),
    )


def _context(files: TlsFiles, mode: str) -> ssl.SSLContext:
    dials = mode == DIALS
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT if dials else ssl.PROTOCOL_TLS_SERVER)
    context.check_hostname = False
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A session that is taken up again would bring a certificate that is no longer believed.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
    if not dials:
        context.num_tickets = 0
    try:
        context.load_cert_chain(files.certificate, files.key, password=_no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            text = f"{files.shown('certificate')}: {files.section}.key = {files.key} is not its key"
        else:
            text = f"{files.shown('key')}: it cannot be read as a PEM key: {in_words(error)}"
        raise TlsFilesError(text) from error
    except ValueError as error:
        raise TlsFilesError(f"{files.shown('key')}: {error}") from error
    except OSError as error:
        raise TlsFilesError(_unreadable(files, "key", error)) from error
    if mode != "none":
        assert files.client_authorities is not None, "runtime.config.listeners refuses that"
        try:
            context.load_verify_locations(files.client_authorities)
            if files.revoked is not None:
                context.load_verify_locations(files.revoked)
                context.verify_flags |= ssl.VERIFY_CRL_CHECK_CHAIN
        except ssl.SSLError as error:
            text = f"{files.shown(files.authorities_name)}: {in_words(error)}"
            raise TlsFilesError(text) from error
        context.verify_mode = ssl.CERT_REQUIRED if dials else VERIFY[mode]
    return context


def _no_password() -> str:
    """Called for a key with a password: else the library would ask at the terminal."""
    raise ValueError("it has a password, and a node cannot ask for one; write it without")


def _certificates(files: TlsFiles, setting: str, path: Path) -> "list[x509.Certificate]":
    from cryptography import x509  # only nodes with TLS need it, and it takes 10 MB

    try:
        return x509.load_pem_x509_certificates(_read(files, setting, path, FILE_BYTES_MAX))
    except ValueError as error:
        raise TlsFilesError(f"{files.shown(setting)}: it holds no PEM certificate") from error


def _revocations(
    files: TlsFiles, path: Path, authorities: "Sequence[x509.Certificate]"
) -> "tuple[x509.CertificateRevocationList, ...]":
    try:
        return revocations(
            _read(files, "revoked", path, REVOKED_BYTES_MAX), authorities, datetime.now(UTC)
        )
    except RevokedError as error:
        raise TlsFilesError(f"{files.shown('revoked')}: {error}") from error


def _read(files: TlsFiles, setting: str, path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(most + 1)
    except OSError as error:
        raise TlsFilesError(_unreadable(files, setting, error)) from error
    if len(data) > most:
        raise TlsFilesError(f"{files.shown(setting)}: more than {most} bytes")
    return data


def _expiry_s(certificate: "x509.Certificate") -> int:
    return int(certificate.not_valid_after_utc.astimezone(UTC).timestamp())


def _unreadable(files: TlsFiles, setting: str, error: OSError) -> str:
    return f"{files.shown(setting)}: it cannot be read: {error.strerror}"


class TlsContexts:
    """The contexts in use. `look` and `now_loaded` are called by the loop, `changed` by any
    thread."""

    def __init__(
        self, files: TlsFiles, modes: Sequence[str], journal: Journal, check: Check = fits
    ) -> None:
        """
        Raises:
            TlsFilesError: the files are wrong.
        """
        self._files, self._modes, self._journal = files, tuple(modes), journal
        self._check = check
        self._loaded = load(files, modes, check)
        self._complaint = ""
        self.reloads_total = 0
        self.on_reload: Callable[[], None] = lambda: None

    def of(self, mode: str) -> ssl.SSLContext:
        return self._loaded.contexts[mode]

    @property
    def belief(self) -> Belief:
        return self._loaded.belief

    @property
    def expires_s(self) -> int:
        return self._loaded.expires_s

    @property
    def authorities_expire_s(self) -> int | None:
        return self._loaded.authorities_expire_s

    @property
    def complaint(self) -> str:
        """Why the files as they are now are not in use; "" if they are."""
        return self._complaint

    def changed(self) -> Found:
        """What the files hold, if they have changed since they were loaded. Waits for the disk."""
        try:
            if self._files.stamp() == self._loaded.stamp:
                return None
            return load(self._files, self._modes, self._check)
        except TlsFilesError as error:
            return error

    def now_loaded(self, found: Found) -> None:
        """Take over the result of `changed`: new connections get it."""
        if found is None:
            if self._complaint:
                self._journal.info(
                    "TLS files are as they were when they were loaded", of=self._files.section
                )
            self._complaint = ""
        elif isinstance(found, Loaded):
            self._loaded, self._complaint = found, ""
            self.reloads_total += 1
            section = self._files.section
            self._journal.info("TLS files loaded", of=section, expires_s=found.expires_s)
            self.on_reload()
        elif str(found) != self._complaint:
            self._complaint = str(found)
            self._journal.error("new TLS files are wrong: the old ones stay", reason=str(found))


class Reloading:
    """Looks at the files every LOOK_EVERY_S, with the background worker's help."""

    def __init__(
        self,
        contexts: TlsContexts,
        submit: Submit,
    ) -> None:
        self._contexts, self._submit = contexts, submit
        self._looked_boot_ns = 0
        self._looks = False
        self._at_once = False

    def hurry(self) -> None:
        """Look in the next tick."""
        self._at_once = True

    def tick(self, boot_ns: int) -> None:
        due = self._at_once or boot_ns - self._looked_boot_ns >= LOOK_EVERY_S * 1_000_000_000
        if self._looks or not due:
            return
        self._looks, self._at_once, self._looked_boot_ns = True, False, boot_ns
        self._submit(self._contexts.changed, self._done)

    def _done(self, found: Found) -> None:
        self._looks = False
        self._contexts.now_loaded(found)
