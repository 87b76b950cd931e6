"""`python -m pipeline replay`: an archive into topics, in offset order, once even over restarts.

The plan is made once and kept in the archive: offsets, in rounds. A round is one write of the sink
under a write token made of the plan's id and the round's number, by one task per destination, in
the order of (source partition, offset). So if a killed round is run again, what it has written is
recognised; and rounds recorded as done are skipped. That holds for the topics that were written to,
so their ids are in the plan.
"""

import hashlib
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from pipeline.archive.check import check_gaps, compare
from pipeline.archive.logic import (
    ArchiveError,
    Piece,
    Place,
    Round,
    Window,
    newest_snapshot,
    pieces_of,
    rounds,
    standing,
)
from pipeline.archive.replay_order import Order, order_of, parser
from pipeline.archive.store import Archive
from pipeline.archive.transform import between_times, to_topics, within
from pipeline.bus import FORMAT, bus_options
from pipeline.session import Say, say, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

HELP: Final = "an archive into topics, in offset order, exactly once even over restarts"
BYTES_MAX: Final = 128 * 1024 * 1024
BUFFER_FACTOR: Final = 2
"""A task holds its share of a round; the sizes we know leave out headers and skew."""
OLD_PARTITION: Final = "_old_partition"


def main(argv: Sequence[str]) -> int:
    """Replay; returns the exit code."""
    options = parser().parse_args(argv)
    order = order_of(options)
    archive = Archive(start("replay", options), options.source.rstrip("/"))
    try:
        replay(archive, order, bus_options(options), say, name=options.name)
    except ArchiveError as error:
        say(f"replay: {error}")
        return 1
    return 0


@attrs.frozen
class Plan:
    """What the archive keeps of a replay, from its first start on."""

    id: str
    """Of its write tokens: a new one for every plan."""
    order: Mapping[str, Any]
    snapshot: str | None
    """The piece with the last rows of all keys that is replayed, if any."""
    rounds: Sequence[Round]
    topic_ids: Mapping[str, str] = attrs.field(factory=dict)
    """Of the topics written to, if brokers report them; plans of older releases have none."""

    def document(self) -> dict[str, Any]:
        """As JSON (`Any`)."""
        return {
            "id": self.id,
            "order": self.order,
            "snapshot": self.snapshot,
            "rounds": [[[*one.place, one.start, one.end] for one in some] for some in self.rounds],
            "topic_ids": dict(self.topic_ids),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> "Plan":
        found = [
            tuple(Window(Place(topic, at), start, end) for topic, at, start, end in windows)
            for windows in document["rounds"]
        ]
        ids = document.get("topic_ids", {})
        return cls(document["id"], document["order"], document["snapshot"], found, ids)


def replay(
    archive: Archive, order: Order, bus: Mapping[str, str], tell: Say, *, name: str | None = None
) -> None:
    """Write what is ordered, or the rest of it.

    Raises:
        ArchiveError: the archive is not whole, or the topics cannot take it.
    """
    told = order.document() | {"bootstrap": bus["kafka.bootstrap.servers"]}
    if name is None:
        name = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    pieces = archive.pieces()
    document = archive.plan(name)
    if document is None:
        plan = _new_plan(archive, pieces, order, bus, told, tell)
        archive.put_plan(name, plan.document())
        done = 0
    else:
        plan, done = Plan.of(document), archive.rounds_done(name)
        if plan.order != told:
            raise ArchiveError(f"replay {name} was begun with other options; use another --name")
        tell(f"replay {name}: {done} of {len(plan.rounds)} rounds are done")
    read = _pieces_to_read(pieces, plan)
    for number, windows in enumerate(plan.rounds[done:], done):
        _check_same(plan, bus, name)
        began = time.monotonic()
        written = _write(archive, read, windows, order, bus, plan.id, number)
        archive.round_is_done(name, number)
        took = time.monotonic() - began
        tell(f"round {number + 1} of {len(plan.rounds)}: {written:,} rows in {took:.1f} s")
    _check_same(plan, bus, name)


def _new_plan(
    archive: Archive,
    pieces: Sequence[Piece],
    order: Order,
    bus: Mapping[str, str],
    told: Mapping[str, Any],
    tell: Say,
) -> Plan:
    whole = standing(pieces)
    snapshot = newest_snapshot(pieces) if order.latest_keys else None
    if order.latest_keys and snapshot is None:
        raise ArchiveError("there is no snapshot of keys: make one with archive --latest-keys")
    read = whole if snapshot is None else [snapshot]
    if snapshot is None:
        check_gaps(_wanted_pieces(whole, order), tell, allow=order.allow_gaps)
    compare(read, archive, fully=False)
    planned = rounds(read, order.wants, rows_max=order.rows_max, bytes_max=BYTES_MAX)
    places = {window.place for windows in planned for window in windows}
    unknown = order.topics.keys() - {span.place.topic for piece in read for span in piece.spans}
    if unknown:
        raise ArchiveError(f"the archive has no topic {', '.join(sorted(unknown))}")
    ids = _check_topics(places, order, bus)
    return Plan(uuid.uuid4().hex, told, None if snapshot is None else snapshot.name, planned, ids)


def _wanted_pieces(pieces: Sequence[Piece], order: Order) -> list[Piece]:
    """Only the spans that are wanted: gaps elsewhere do not matter."""
    return [
        attrs.evolve(piece, spans=tuple(one for one in piece.spans if order.wants(one.place)))
        for piece in pieces
    ]


def _pieces_to_read(pieces: Sequence[Piece], plan: Plan) -> list[Piece]:
    """Pieces may have been merged since the plan was made: only the offsets matter.

    Raises:
        ArchiveError: the snapshot is gone.
    """
    if plan.snapshot is None:
        return standing(pieces)
    found = [piece for piece in pieces if piece.name == plan.snapshot]
    if not found:
        raise ArchiveError(
            f"{plan.snapshot} was partly replayed and then replaced by a newer snapshot: "
            "begin with empty topics and another --name"
        )
    return found


def _check_same(plan: Plan, bus: Mapping[str, str], name: str) -> None:
    """Check that the topics are those that were written to in the rounds already done.

    Raises:
        ArchiveError: with what to do.
    """
    from pyspark_evenkeel.client.cluster import Cluster
    from pyspark_evenkeel.options import parse_sink

    if not plan.topic_ids:
        return
    with Cluster(parse_sink(dict(bus), streaming=False).cluster) as cluster:
        there = cluster.topics(None)
        ids = cluster.topic_ids(plan.topic_ids)
    for topic, known in sorted(plan.topic_ids.items()):
        if topic not in there or ids.get(topic, bytes.fromhex(known)).hex() != known:
            now = "was deleted and made anew" if topic in there else "does not exist any more"
            raise ArchiveError(
                f"topic {topic} {now} since replay {name} began: what was replayed is gone with "
                "it; begin with empty topics and another --name"
            )


def _check_topics(places: set[Place], order: Order, bus: Mapping[str, str]) -> dict[str, str]:
    """Check that the topics exist, have the partitions, and are empty unless that is allowed;
    returns their ids.

    Raises:
        ArchiveError: with what to do.
    """
    from pyspark_evenkeel.client.cluster import EARLIEST, LATEST, Cluster
    from pyspark_evenkeel.client.cluster import Place as BusPlace
    from pyspark_evenkeel.options import parse_sink

    needed: dict[str, int] = {}
    for place in places:
        name = order.topics.get(place.topic, place.topic)
        needed[name] = max(needed.get(name, 0), place.partition + 1)
    with Cluster(parse_sink(dict(bus), streaming=False).cluster) as cluster:
        there = cluster.topics(None)
        ids = {name: topic_id.hex() for name, topic_id in cluster.topic_ids(needed).items()}
        for name, count in sorted(needed.items()):
            if name not in there:
                raise ArchiveError(f"there is no topic {name}: create it, with {count} partitions")
            if there[name] < count and not order.by_key:
                raise ArchiveError(
                    f"topic {name} has {there[name]} partitions, and the rows need {count}: add "
                    "some, or replay with --by-key"
                )
        if order.append:
            return ids
        all_of = [BusPlace(name, number) for name in needed for number in range(there[name])]
        starts = cluster.offsets(dict.fromkeys(all_of, EARLIEST))
        ends = cluster.offsets(dict.fromkeys(all_of, LATEST))
        full = sorted({one.topic for one in all_of if starts[one].offset < ends[one].offset})
        if full:
            raise ArchiveError(
                f"topics that are not empty: {', '.join(full)}; use other names "
                "(--topic OLD=NEW), or allow it with --append"
            )
    return ids


def _write(
    archive: Archive,
    pieces: Sequence[Piece],
    windows: Round,
    order: Order,
    bus: Mapping[str, str],
    write_id: str,
    number: int,
) -> int:
    """Write one round; returns its number of rows."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    from pyspark_evenkeel.by_destination import by_destination

    topics = sorted({window.place.topic for window in windows})
    names = {topic: order.topics.get(topic, topic) for topic in topics}
    rows: DataFrame = within(archive.rows(pieces_of(windows, pieces)), windows)
    rows = to_topics(between_times(rows, order.since_ms, order.until_ms), names)
    rows = rows.withColumn(OLD_PARTITION, f.col("partition"))
    if order.by_key:
        rows = rows.drop("partition")
    counted = Observation()
    rows = rows.observe(counted, f.count(f.lit(1)).alias("rows"))
    options = {"bufferBytes": str(BUFFER_FACTOR * BYTES_MAX), **bus}
    options |= {"writeId": write_id, "writeBatch": str(number)}
    rows, options = by_destination(
        rows, options, order_by=[OLD_PARTITION, "offset"], topics=sorted(set(names.values()))
    )
    rows.write.format(FORMAT).options(**options).mode("append").save()
    return int(counted.get["rows"])
