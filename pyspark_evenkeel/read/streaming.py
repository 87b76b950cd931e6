"""Streaming queries: from one end to the next, and what happens when a log has changed.

Spark asks for the next end, writes it into the checkpoint, then asks for the tasks between the two;
after a restart it asks for the tasks of the last end again. So everything that a micro-batch
depends on is in its end (`offsets`), and no state is kept here that a new process would not have.

Topics are looked up again regularly: a new partition is read from offset 0 on. A deleted partition,
a topic that was deleted and recreated (recognised by its id, or by a log that ends before what was
read), and a new partition that does not begin at 0 are losses. With failOnDataLoss they end the
query; otherwise they are logged, and the query continues with what there is.

Spark's `commit` comes one micro-batch late and never for the last one: positions are in Spark's
checkpoint, and nothing is committed here.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from typing import Any, Final, NamedTuple

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.errors import GoneError, RefusedError
from pyspark_evenkeel.offsets import (
    Offsets,
    from_json,
    limited,
    nested,
    ranges_between,
    tasks_between,
    to_json,
)
from pyspark_evenkeel.options import SourceOptions
from pyspark_evenkeel.read import planning
from pyspark_evenkeel.read.batch import GOING_ON, read_task, task_partitions
from pyspark_evenkeel.read.columns import Arrow

log = logging.getLogger(__name__)

TOPICS_AGAIN_S: Final = 5.0
"""The greatest age of what is known of topics and partitions. An idle query asks for offsets a
hundred times a second."""
AGAIN_MAX: Final = 10
"""How often the brokers are asked before something counts as lost: a new leader may not know at
once how far its log is readable, nor a lagging node which partitions there are."""
AGAIN_AFTER_S: Final = 0.5

_Json = dict[str, Any]
"""An offset in Spark's form (`Any`: JSON)."""


class _Found(NamedTuple):
    """Offsets, and the ids of their topics if brokers report them."""

    offsets: Mapping[Place, int]
    topic_ids: Mapping[str, bytes]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One `spark.readStream`, in a process of its own on the driver; workers call `read`."""

    def __init__(
        self,
        options: SourceOptions,
        schema: Arrow,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._schema = schema
        self._clock = clock
        self._cluster: Cluster | None = None
        self._initial: _Json | None = None
        self._available_now = False
        self._target: _Found | None = None
        """AvailableNow: where the query ends; None until that is known."""
        self._latest: Mapping[Place, int] | None = None
        self._places: list[Place] = []
        self._places_since: float | None = None
        self._waits_since: float | None = None
        """Since when there have been some records, but too few for a micro-batch."""

    # -- where it begins --------------------------------------------------------------------------

    def initialOffset(self) -> _Json:
        """Where a new query begins. Spark asks twice, and gets the same answer."""
        if self._initial is None:
            found = self._asked((), planning.starts)
            self._initial = to_json(Offsets(found.offsets, initial=True, topic_ids=found.topic_ids))
        return self._initial

    def prepareForTriggerAvailableNow(self) -> None:
        """Note where the logs end now. If a topic is gone, only the first `latestOffset` knows
        whether the query has read from it, and may continue without it."""
        self._available_now = True
        self._places_since = None
        try:
            self._target = self._ends(())
        except RefusedError as error:
            if not planning.is_unknown(error):
                raise

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.offsets_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    # -- the next end -----------------------------------------------------------------------------

    def latestOffset(self, start: _Json, limit: ReadLimit) -> _Json:
        """Where the micro-batch that begins at `start` ends; `start` itself if there is nothing.

        Raises:
            GoneError: if what the query has read, or would have to read, is gone.
        """
        begun = from_json(start)
        ends, topic_ids = self._confirmed_ends(begun)
        begins = self._begins(begun, ends, _replaced(begun, topic_ids))
        base = {place: begins.get(place, begun.next.get(place, 0)) for place in ends}
        ranges = ranges_between(base, ends)
        if self._waits_for_more(sum(one.size for one in ranges)):
            return start
        most = getattr(limit, "max_rows", None)
        if most is None:
            reached = {one.place: one.end for one in ranges}
        else:
            reached = limited(ranges, most)
        following = base | reached
        all_ids = {**begun.topic_ids, **topic_ids}
        ids = {place.topic: all_ids[place.topic] for place in following if place.topic in all_ids}
        if following == begun.next and ids == begun.topic_ids:
            return start
        if begun.initial:
            begins = base
        return to_json(Offsets(following, self._options.cut, begins, topic_ids=ids))

    def _waits_for_more(self, records: int) -> bool:
        """minOffsetsPerTrigger; AvailableNow takes what there is."""
        least = self._options.offsets_per_trigger_min
        if least is None or self._available_now or not 0 < records < least:
            self._waits_since = None
            return False
        if self._waits_since is None:
            self._waits_since = self._clock()
        if self._clock() - self._waits_since < self._options.trigger_delay_s_max:
            return True
        self._waits_since = None
        return False

    def _confirmed_ends(self, begun: Offsets) -> _Found:
        """How far logs reach; a loss only counts if it is reported repeatedly."""
        found = self._target if self._target is not None else self._ends(begun.next)
        for _ in range(AGAIN_MAX):
            ends = found.offsets
            whole = begun.next.keys() <= ends.keys() and not _behind(ends, begun.next)
            if whole and not _replaced(begun, found.topic_ids):
                break
            time.sleep(AGAIN_AFTER_S)
            self._places_since = None
            found = self._ends(begun.next)
        if self._available_now:
            self._target = found
        self._latest = found.offsets
        return found

    def _begins(
        self, begun: Offsets, ends: Mapping[Place, int], replaced: Set[str]
    ) -> dict[Place, int]:
        """Where the micro-batch begins in logs that were recreated.

        Raises:
            GoneError: with failOnDataLoss, if something is lost.
        """
        others = sorted(place for place in begun.next if place.topic in replaced)
        if others:
            why = f"it was read to {begun.next[others[0]]} while another topic had its name"
            self._lost(others, "was deleted and made anew", why)
        if gone := sorted(begun.next.keys() - ends.keys() - set(others)):
            self._lost(gone, "does not exist any more", "what was not yet read of it is lost")
        back = [place for place in _behind(ends, begun.next) if place not in others]
        if back:
            why = f"its log ends at {ends[back[0]]}, and was read to {begun.next[back[0]]}"
            self._lost(back, "was made anew, or cut", why)
        new = [] if begun.initial else sorted(ends.keys() - begun.next.keys())
        back += [place for place in others if place in ends]
        first = planning.begins_of_logs(self._connected(), self._options, new + back)
        if late := [place for place in new if first[place] > 0]:
            self._lost(late, "is new", f"and its log begins at {first[late[0]]} instead of 0")
        return {place: first[place] for place in back}

    def _lost(self, places: list[Place], what: str, why: str) -> None:
        more = f" (and {len(places) - 1} others)" if len(places) > 1 else ""
        error = GoneError(f"{places[0]}{more} {what}", why=why)
        if self._options.fail_on_data_loss:
            raise error
        log.warning("%s: %s; %s", error.what, error.why, GOING_ON)

    def reportLatestOffset(self) -> _Json | None:
        """How far logs reached at the last trigger: Spark's progress report derives the lag from
        it."""
        return None if self._latest is None else nested(self._latest)

    # -- the present state ------------------------------------------------------------------------

    def _ends(self, known: Collection[Place]) -> _Found:
        try:
            return self._asked(known, planning.ends_of_logs)
        except RefusedError as error:
            if not planning.is_unknown(error):
                raise
        self._places_since = None  # a topic has just been deleted
        return self._asked(known, planning.ends_of_logs)

    def _asked(
        self,
        known: Collection[Place],
        ask: Callable[[Cluster, SourceOptions, Collection[Place]], Mapping[Place, int]],
    ) -> _Found:
        """Offsets of the existing partitions, all of the same topics."""
        for _ in range(planning.TURNS_MAX):
            places = self._known_places(known)
            cluster = self._connected()
            topic_ids = planning.topic_ids(cluster, places)
            offsets = ask(cluster, self._options, places)
            if planning.topic_ids(cluster, places) == topic_ids:
                return _Found(offsets, topic_ids)
            self._places_since = None
        raise planning.recreated_meanwhile()

    def _known_places(self, known: Collection[Place]) -> list[Place]:
        now = self._clock()
        if self._places_since is None or now - self._places_since >= TOPICS_AGAIN_S:
            subscription = self._options.subscription
            self._places = planning.places_of(self._connected(), subscription, known)
            self._places_since = now
        return self._places

    def _connected(self) -> Cluster:
        """Connects on demand: the reader is also created where only `read` is called."""
        if self._cluster is None:
            self._cluster = Cluster(self._options.cluster)
        return self._cluster

    # -- tasks ------------------------------------------------------------------------------------

    def partitions(self, start: _Json, end: _Json) -> list[InputPartition]:
        """The tasks of a micro-batch, the same whenever it is run."""
        reached = from_json(end)
        return task_partitions(tasks_between(from_json(start), reached), reached.topic_ids)

    def read(self, partition: InputPartition) -> Iterator[Arrow]:
        return read_task(partition, self._options, self._schema)

    def commit(self, end: _Json) -> None:
        """See above: nothing depends on it."""

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None


def _replaced(begun: Offsets, topic_ids: Mapping[str, bytes]) -> Set[str]:
    """The topics that are not the ones that were read."""
    return {topic for topic, read in begun.topic_ids.items() if topic_ids.get(topic, read) != read}


def _behind(ends: Mapping[Place, int], read: Mapping[Place, int]) -> list[Place]:
    """The logs that end before what has been read."""
    return sorted(place for place in ends if ends[place] < read.get(place, 0))
