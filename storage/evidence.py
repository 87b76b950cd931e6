"""The files of a group whose log differs from its peers', kept from being tidied away.

Links, not copies: it is done at once, and costs what the log would have let go. Once for a group:
what came first is what somebody will want to look at.
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
    """Returns the name of the folder, within the node's directory.

    Raises:
        StorageFailed: the disk fails, or knows no links.
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
    """Segments are of all groups; of checkpoints only the group's own are."""
    checkpoint = checkpoint_name(name)
    of_it = checkpoint is not None and checkpoint.group == group
    return of_it or name.endswith(SEGMENT_SUFFIX) or name == IDENTITY_NAME
