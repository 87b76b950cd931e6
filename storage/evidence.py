"""Keeps the files of a group whose log differs from its peers' from being removed.

They are linked, not copied: that is quick, and costs only the space that would have been freed. It
is done once per group: what came first is what somebody will want to look at.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from paxos.ids import GroupId
from storage.checkpoints import checkpoint_name
from storage.errors import StorageFailed
from storage.format import SEGMENT_SUFFIX
from storage.identity import IDENTITY_NAME

_PREFIX: Final = "evidence-group-"
_UNFINISHED: Final = ".part"


def evidence_name(group: GroupId) -> str:
    return f"{_PREFIX}{group}"


def keep_evidence(directory: Path, group: GroupId) -> str:
    """Link the files into a folder; returns its name, within the node's directory.

    The folder gets its name when it is complete. A crash before that leaves a part, which the next
    call completes with what is still there.

    Raises:
        StorageFailed: the disk fails, or does not support links.
    """
    name = evidence_name(group)
    folder, part = directory / name, directory / f"{name}{_UNFINISHED}"
    try:
        if not folder.exists():
            part.mkdir(exist_ok=True)
            for file in sorted(directory.iterdir()):
                if file.is_file() and _is_evidence(file.name, group):
                    with suppress(FileExistsError, FileNotFoundError):  # linked before; or removed
                        os.link(file, part / file.name)
            _sync(part)
            part.rename(folder)
            _sync(directory)
    except OSError as error:
        raise StorageFailed("link", name, error) from error
    return name


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_evidence(name: str, group: GroupId) -> bool:
    """All segments, for they hold records of all groups, but only the group's own checkpoints."""
    checkpoint = checkpoint_name(name)
    of_it = checkpoint is not None and checkpoint.group == group
    return of_it or name.endswith(SEGMENT_SUFFIX) or name == IDENTITY_NAME
