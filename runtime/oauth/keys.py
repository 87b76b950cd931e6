"""The keys that tokens are signed with: from a file or a URL, read again in a thread.

A file is read when the node starts, and what is wrong with it then ends it; later it is looked at
every LOOK_EVERY_S. A URL is fetched after the start, then regularly, and soon after a token came
with an unknown key, but never more often than every RETRY_S: strangers must not make us fetch.
Whatever fails, the keys of before stay in use, and the journal and a metric say so.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import attrs

from broker.security.token_keys import KEY_SET_BYTES_MAX, KeysError, KeySet, parse_key_set
from runtime.oauth.fetching import FetchError, fetch
from runtime.system.journal import Journal
from runtime.system.worker import Worker
from storage.disk.threads import Threads

LOOK_EVERY_S: Final = 5
RETRY_S: Final = 10
_S: Final = 1_000_000_000


class Source(Protocol):
    every_s: int
    """When to look again, if nothing asks for it sooner."""
    hurry_s: int
    """And at the earliest, if something does."""

    def read(self) -> KeySet | None:
        """In a thread; None: nothing has changed.

        Raises:
            KeysError: there are no keys to be had.
        """


class File:
    every_s = hurry_s = LOOK_EVERY_S

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: object = None

    def read(self) -> KeySet | None:
        try:
            seen = self._path.stat()
            stamp = seen.st_ino, seen.st_size, seen.st_mtime_ns
            if stamp == self._stamp:
                return None
            with self._path.open("rb") as file:
                found = parse_key_set(file.read(KEY_SET_BYTES_MAX + 1))
        except OSError as error:
            raise KeysError(f"it cannot be read: {error.strerror}") from error
        self._stamp = stamp
        return found


class Url:
    hurry_s = RETRY_S

    def __init__(
        self, url: str, every_s: int, monotonic: Callable[[], float], authorities: Path | None
    ) -> None:
        self.every_s = every_s
        self._url, self._monotonic, self._authorities = url, monotonic, authorities

    def read(self) -> KeySet | None:
        try:
            data = fetch(self._url, KEY_SET_BYTES_MAX, self._monotonic, self._authorities)
        except FetchError as error:
            raise KeysError(str(error)) from error
        return parse_key_set(data)


Found: TypeAlias = KeySet | KeysError | None


class InThread:
    """Runs one job at a time in a thread of its own, whose results `take` delivers."""

    def __init__(self, name: str, threads: Threads) -> None:
        self._worker = Worker(name, lambda: None, threads)
        self._started = False

    def submit(self, work: Callable[[], Found], done: Callable[[Found], None]) -> None:
        if not self._started:
            self._started = True
            self._worker.start()
        self._worker.submit(work, done)

    def take(self) -> None:
        """On the loop."""
        if self._worker.has_done:
            self._worker.take()


@attrs.define(eq=False)
class Keys:
    """A broker.security.token_keys.KeysInUse."""

    source: Source
    journal: Journal
    thread: InThread
    current: KeySet | None = None
    complaint: str = ""
    unknown_total: int = 0
    read_total: int = 0
    failed_total: int = 0
    _looked_boot_ns: int | None = None
    _looks: bool = False
    _soon: bool = False

    def read_now(self) -> None:
        """At the start.

        Raises:
            KeysError: there are no keys.
        """
        self._done(self.source.read())

    def missed(self) -> None:
        self.unknown_total += 1
        self._soon = True

    def hurry(self) -> None:
        """The operator says that they have changed."""
        self._looked_boot_ns = None

    def tick(self, boot_ns: int) -> None:
        """Call it about once a second."""
        self.thread.take()
        if self._looks:
            return
        soon = self._soon or bool(self.complaint)
        wait_s = self.source.hurry_s if soon else self.source.every_s
        last = self._looked_boot_ns
        if last is None or boot_ns - last >= wait_s * _S:
            self._looks, self._soon, self._looked_boot_ns = True, False, boot_ns
            self.thread.submit(self._read, self._done)

    def _read(self) -> Found:
        try:
            return self.source.read()
        except KeysError as error:
            return error
        except Exception as error:  # noqa: BLE001  a bug of ours must not end the node
            return KeysError(f"internal error: {type(error).__name__}")

    def _done(self, found: Found) -> None:
        self._looks = False
        if isinstance(found, KeysError):
            self.failed_total += 1
            if str(found) != self.complaint:
                kept = 0 if self.current is None else len(self.current.keys)
                self.journal.error(
                    "keys of tokens cannot be read: the old ones stay", reason=str(found), kept=kept
                )
            self.complaint = str(found)
            return
        if self.complaint:
            self.journal.info("keys of tokens can be read again")
        self.complaint = ""
        if found is None:
            return
        self.read_total += 1
        if found != self.current:
            self.journal.info(
                "keys of tokens read", keys=len(found.keys), left_out="; ".join(found.left_out[:5])
            )
        self.current = found
