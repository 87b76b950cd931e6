"""Keeps the files of a group whose log differs from its peers' from being removed.

They are linked, not copied: that is quick, and costs only the space that would have been freed. It
is done once per group: what came first is what somebody will want to look at.
"""

import os
from pathlib import Path
from typing import Final

from paxos.ids import GroupId
from storage.checkpoints import checkpoint_name
from storage.errors import StorageFailed
from storage.format import SEGMENT_SUFFIX
from storage.identity import IDENTITY_NAME

_PREFIX: Final = "evidence-group-"


def evidence_name(group: GroupId) -> str:
    return f"{_PREFIX}{group}"


def keep_evidence(directory: Path, group: GroupId) -> str:
    """Link the files into a folder; returns its name, within the node's directory.

    Raises:
        StorageFailed: the disk fails, or does not support links.
    """
    name = evidence_name(group)
    folder = directory / name
    try:
        if not folder.exists():
            folder.mkdir()
            for file in sorted(directory.iterdir()):
                if file.is_file() and _is_evidence(file.name, group):
                    os.link(file, folder / file.name)
    except OSError as error:
        raise StorageFailed("link", name, error) from error
    return name


def _is_evidence(name: str, group: GroupId) -> bool:
    """All segments, for they hold records of all groups, but only the group's own checkpoints."""
    checkpoint = checkpoint_name(name)
    of_it = checkpoint is not None and checkpoint.group == group
    return of_it or name.endswith(SEGMENT_SUFFIX) or name == IDENTITY_NAME
