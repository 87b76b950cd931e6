"""The files of an archive: pieces as parquet, their manifests, the checkpoint; on any of Spark's
file systems.

    DIRECTORY/data/piece=raw-00000007/topic=orders/partition=3/part-....parquet
    DIRECTORY/manifest/raw-00000007.json
    DIRECTORY/checkpoint/
    DIRECTORY/replays/NAME/plan.json     the plan of a replay, and a file for each round done

A piece is written first and its manifest last, under a temporary name that is then changed: a piece
without a manifest was not finished, and does not count. No file changes once it has its name.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from pipeline.archive.logic import ArchiveError, Kind, Piece, Span, manifest, read_manifest
from pipeline.archive.transform import spans, sums

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Path: TypeAlias = Any
FileSystem: TypeAlias = Any
"""Java objects."""

ROWS: Final = (
    "key binary, value binary, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
PLACE: Final = "topic string, partition int"
"""From the names of directories, like the piece."""
SUFFIX: Final = ".json"
PIECE: Final = "piece="
PLAN: Final = "plan.json"
ROUND: Final = "round-"


@attrs.frozen
class Archive:
    spark: "SparkSession"
    directory: str

    @property
    def checkpoint(self) -> str:
        return f"{self.directory}/checkpoint"

    # -- pieces ------------------------------------------------------------------------------------

    def pieces(self) -> list[Piece]:
        """All pieces with a manifest, including superseded ones.

        Raises:
            ArchiveError: a manifest cannot be read.
        """
        names = self._names(f"{self.directory}/manifest")
        found = [name for name in names if name.endswith(SUFFIX) and not name.startswith(".")]
        return [
            read_manifest(self._text(f"{self.directory}/manifest/{name}"), name)
            for name in sorted(found)
        ]

    def write(self, rows: "DataFrame", piece: Piece) -> None:
        """Write the rows of a piece over what an earlier attempt left; not its manifest."""
        writer = rows.write.mode("overwrite").option("compression", "zstd")
        writer.partitionBy("topic", "partition").parquet(self._data(piece))

    def commit(self, piece: Piece) -> None:
        """Write the manifest: from here on the piece counts."""
        self._put(f"{self.directory}/manifest", piece.name + SUFFIX, manifest(piece))

    def rows(self, pieces: Sequence[Piece]) -> "DataFrame":
        """The rows of pieces, with the name of its piece in column `piece`.

        Raises:
            ArchiveError: a piece has a manifest but no data.
        """
        filled = [piece for piece in pieces if piece.spans]
        there = self._names(f"{self.directory}/data")
        lost = [piece.name for piece in filled if f"{PIECE}{piece.name}" not in there]
        if lost:
            raise ArchiveError(
                f"data of the archive is missing: {', '.join(lost)} in {self.directory}/data; "
                "restore it, or archive the topics anew into another directory"
            )
        return self._read([self._data(piece) for piece in filled])

    def found(self, piece: Piece) -> tuple[Span, ...]:
        """The spans of a piece that was just written, from reading its data back."""
        return spans(sums(self._read([self._data(piece)]))).get(piece.name, ())

    def _read(self, folders: Sequence[str]) -> "DataFrame":
        schema = f"{ROWS}, piece string, {PLACE}"
        if not folders:
            return self.spark.createDataFrame([], schema)
        reader = self.spark.read.schema(schema).option("basePath", f"{self.directory}/data")
        return reader.parquet(*folders)

    def remove(self, pieces: Iterable[Piece]) -> None:
        """Remove pieces, manifests first: a half-removed piece does not count."""
        for piece in pieces:
            self._delete(f"{self.directory}/manifest/{piece.name}{SUFFIX}")
            self._delete(self._data(piece))

    def remove_strays(self, pieces: Iterable[Piece], following: int) -> None:
        """Remove data without a manifest, left by a job that did not finish. The piece of the next
        micro-batch may be in progress, and stays."""
        kept = {piece.name for piece in pieces} | {
            Piece(Kind.RAW, following, following, "", ()).name
        }
        for name in self._names(f"{self.directory}/data"):
            if name.startswith(PIECE) and name.removeprefix(PIECE) not in kept:
                self._delete(f"{self.directory}/data/{name}")

    def _data(self, piece: Piece) -> str:
        return f"{self.directory}/data/{PIECE}{piece.name}"

    # -- who writes it, who has replayed it --------------------------------------------------------

    def query(self) -> str | None:
        """The id of the query whose checkpoint is in the archive; None before its first start."""
        if "metadata" not in self._names(self.checkpoint):
            return None
        return str(json.loads(self._text(f"{self.checkpoint}/metadata"))["id"])

    def plan(self, replay: str) -> dict[str, Any] | None:
        """The plan of a replay of this name; None if there was none."""
        folder = self._replay(replay)
        if PLAN not in self._names(folder):
            return None
        document: dict[str, Any] = json.loads(self._text(f"{folder}/{PLAN}"))
        return document

    def put_plan(self, replay: str, document: Mapping[str, Any]) -> None:
        self._put(self._replay(replay), PLAN, json.dumps(document, indent=1) + "\n")

    def rounds_done(self, replay: str) -> int:
        """How many rounds of a replay are done; they are done in order."""
        return sum(name.startswith(ROUND) for name in self._names(self._replay(replay)))

    def round_is_done(self, replay: str, number: int) -> None:
        self._put(self._replay(replay), f"{ROUND}{number:08}", "")

    def _replay(self, replay: str) -> str:
        return f"{self.directory}/replays/{replay}"

    # -- files -------------------------------------------------------------------------------------

    def _path(self, name: str) -> tuple[Path, FileSystem]:
        path = self.spark._jvm.org.apache.hadoop.fs.Path(name)
        return path, path.getFileSystem(self.spark._jsc.hadoopConfiguration())

    def _names(self, directory: str) -> list[str]:
        path, files = self._path(directory)
        if not files.exists(path):
            return []
        return [str(found.getPath().getName()) for found in files.listStatus(path)]

    def _text(self, name: str) -> str:
        path, files = self._path(name)
        stream = files.open(path)
        try:
            return str(self.spark._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _put(self, directory: str, name: str, text: str) -> None:
        """Write the file as a whole or not at all."""
        draft, files = self._path(f"{directory}/.{name}.new")
        path, _ = self._path(f"{directory}/{name}")
        stream = files.create(draft, True)
        stream.write(bytearray(text.encode()))
        stream.close()
        if not files.rename(draft, path):
            raise OSError(f"{directory}/.{name}.new could not be renamed to {name}")

    def _delete(self, name: str) -> None:
        path, files = self._path(name)
        files.delete(path, True)
