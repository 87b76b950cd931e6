"""`http.json` in the node's directory: how this machine's administrator reaches the HTTP port.

It has mode 0600 and holds a token that is new with every start of the node, that administers, and
that is accepted from this machine only: whoever can read the directory's files can do more than
that already. The launcher and the command line read it (cluster.access), so that they need no
password for the nodes that they run.
"""

import json
import os
from pathlib import Path
from typing import Final

NAME: Final = "http.json"
OWNER_ONLY: Final = 0o600


def write(directory: Path, *, token: str, certificate: Path | None) -> None:
    """Replace the file. `token` may be "", for a port that asks nobody. `certificate`: what the
    port shows; None: it speaks without TLS.

    Raises:
        OSError: it cannot be written.
    """
    shown = None if certificate is None else str(certificate.absolute())
    value = {"token": token, "certificate": shown}
    draft = directory / f"{NAME}.tmp"
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, OWNER_ONLY), "w", encoding="utf-8") as file:
        json.dump(value, file)
    draft.replace(directory / NAME)


def remove(directory: Path) -> None:
    """For a port that asks nobody and speaks without TLS: there is nothing to know."""
    (directory / NAME).unlink(missing_ok=True)
