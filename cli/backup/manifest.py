"""The manifest of an export: what it holds, and whether it is complete (docs/backups.md, ADR 63).

It is written twice: incomplete before the first record, complete after the last file is synced. A
directory without a complete manifest is never imported.
"""

import json
import os
from pathlib import Path
from typing import Any, Final

import attrs

from cli.clusters.kafka_commands import ClientError

FORMAT: Final = "evenkeel-topic-export"
VERSION: Final = 1
NAME: Final = "manifest.json"
PARTITIONS_MAX: Final = 100_000


class ExportError(ClientError):
    """An export cannot be used, or be continued; the message says why."""


@attrs.define(kw_only=True)
class Part:
    """One partition. `first` and `end` are offsets of the source: where the log began, and the
    first offset that is not exported. `sha256` and the counts are those of the file."""

    partition: int
    first: int
    end: int
    file: str = ""
    bytes: int = 0
    sha256: str = ""
    batches: int = 0
    records: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None
    deleted: list[list[int]] = attrs.Factory(list)
    """Ranges of offsets that the source deleted while it was exported."""


@attrs.define(kw_only=True)
class Manifest:
    topic: str
    topic_id: str
    cluster_id: str
    replication: int
    settings: dict[str, str]
    """Those that differed from the defaults of the source."""
    began: str
    ended: str = ""
    complete: bool = False
    software: str = ""
    parts: list[Part] = attrs.Factory(list)
    groups: dict[str, dict[str, list[Any]]] = attrs.Factory(dict)
    """Consumer group -> partition -> committed offset and metadata."""

    @property
    def records(self) -> int:
        return sum(one.records for one in self.parts)

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.parts)


def file_name(partition: int) -> str:
    """Never taken from the manifest: it could name any file of the machine."""
    return f"partition-{partition:05}.log"


def write(directory: Path, manifest: Manifest) -> None:
    """Replaced in one step: a reader sees the old one or the new one."""
    document = {"format": FORMAT, "version": VERSION, **attrs.asdict(manifest)}
    new = directory / (NAME + ".new")
    with new.open("w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    new.replace(directory / NAME)
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def read(directory: Path) -> Manifest | None:
    """The manifest; None if there is none.

    Raises:
        ExportError: if it is not one of ours, or newer than this program.
    """
    path = directory / NAME
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise ExportError(f"{path} is damaged: {error}") from None
    try:
        if document.pop("format") != FORMAT:
            raise ExportError(f"{path} is not the manifest of an export")
        version = document.pop("version")
        if version != VERSION:
            raise ExportError(f"{path} has version {version}; this program reads {VERSION}")
        parts = [Part(**one) for one in document.pop("parts")]
        manifest = Manifest(**document, parts=parts)
        _check(path, manifest)
    except (AttributeError, KeyError, TypeError) as error:
        raise ExportError(f"{path} is not the manifest of an export: {error}") from None
    return manifest


def _check(path: Path, manifest: Manifest) -> None:
    numbers = [one.partition for one in manifest.parts]
    if not 0 < len(numbers) <= PARTITIONS_MAX or numbers != list(range(len(numbers))):
        raise ExportError(f"{path} is damaged: its partitions are not 0, 1, 2, ...")
    for one in manifest.parts:
        if not 0 <= one.first <= one.end or one.bytes < 0 or one.records < 0:
            raise ExportError(f"{path} is damaged: the numbers of partition {one.partition}")
