"""The placement job as a query of Structured Streaming.

Reports come from the load topic, which is kept for an hour. A new query begins as far back as the
past it considers, so its first micro-batch knows as much as any later one. Keeping the state
(`--checkpoint`) only makes it more exact. Each micro-batch in which a time window has closed ends
in one decision (`publishing`); if it is run again after a crash, it decides the same.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from balancer.registry.load import LOAD_TOPIC
from pipeline.bus import FORMAT
from pipeline.placement.logic import (
    DUPLICATE,
    FAULTS,
    LATE,
    GroupCost,
    Measure,
    Tally,
    Timing,
)
from pipeline.placement.publishing import Decision, Publisher
from pipeline.placement.reading import since_ms
from pipeline.placement.transform import OBSERVED, group_costs, newest
from pipeline.session import LOOK_EVERY_S, Say, say

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

NAME: Final = "placement"
NUMBERED_FROM_S: Final = 1_577_836_800
"""In a write token versions are seconds since 2020: its numbers end at 2^30, 34 years later."""
STOP_S_MAX: Final = 10.0
STOP_LOOK_S: Final = 0.02
DEDUPE: Final = "dedupe"
"""Spark's name for the step that sees each report first, and drops late ones and duplicates."""


@attrs.frozen
class Decisions:
    """The topic of decisions: one record for each version, keyed by the source. Its write token is
    made of both, so a micro-batch that is run again, or another job, adds nothing to it."""

    connection: Mapping[str, str]
    topic: str
    source: str

    def write(self, session: "SparkSession", decision: Decision) -> str:
        """Write a decision; returns what went wrong, or "". The cluster may be unavailable just
        now, and that is no reason to stop computing."""
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        row = session.range(1).select(
            f.lit(self.source).cast("binary").alias("key"),
            f.lit(bytearray(decision.encode())).alias("value"),
        )
        writer = row.coalesce(1).write.format(FORMAT).mode("append").options(**self.connection)
        writer = writer.option("topic", self.topic).option("writeId", f"{NAME} {self.source}")
        number = decision.as_of_ms // 1_000 - NUMBERED_FROM_S
        try:
            writer.option("writeBatch", str(number)).save()
        except PySparkException as error:
            return reason_in(str(error))
        return ""


def reason_in(told: str) -> str:
    """The line of a task's traceback that says what was wrong, if there is one."""
    lines = told.strip().splitlines()
    reasons = [line for line in lines if "Error: " in line and not line.startswith(" ")]
    return (reasons or lines or ["no reason was told"])[-1 if reasons else 0]


@attrs.define(kw_only=True)
class Computation:
    """One query: what it computes, and where its decisions go."""

    timing: Timing
    measure: Measure
    publisher: Publisher
    tell: Callable[[Decision], None]
    """Called with every decision, in order."""
    note: Decisions | None = None
    warn: Say = say
    last: Decision | None = None
    _decided_s: float = attrs.field(init=False, factory=time.monotonic)

    def source(
        self, session: "SparkSession", connection: Mapping[str, str], now_ms: int
    ) -> "DataFrame":
        """Records of the load topic. Records that retention deleted while the job was down are no
        loss: they would be too old."""
        reader = session.readStream.format(FORMAT).options(**connection)
        reader = reader.option("subscribe", LOAD_TOPIC).option("failOnDataLoss", "false")
        reader = reader.option("startingTimestamp", str(since_ms(now_ms, self.timing)))
        return reader.option("startingOffsetsByTimestampStrategy", "latest").load()

    def begin(
        self, source: "DataFrame", checkpoint: str, every_s: float | None
    ) -> "StreamingQuery":
        """Start the query; with `every_s` None it processes what exists now, and ends.

        State made with other time windows must not be mixed with these, so each kind has a
        directory of its own.
        """
        timing = self.timing
        kind = f"{timing.window_s}-{timing.slide_s}-{timing.past_s}-{timing.lateness_s}"
        costs = group_costs(source, timing, self.measure)
        writer = costs.writeStream.queryName(NAME).foreachBatch(self._on_batch)
        place = f"{checkpoint.rstrip('/')}/{kind}-{self.measure}"
        writer = writer.option("checkpointLocation", place)
        if every_s is None:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(every_s * 1_000)} milliseconds").start()

    def _on_batch(self, costs: "DataFrame", batch: int) -> None:
        rows = newest(costs).collect()
        if not rows:
            return
        until_ms, groups = rows[0]
        found = [GroupCost(*one) for one in groups]
        decision = self.publisher.decide(found, until_ms)
        self.last, self._decided_s = decision, time.monotonic()
        self.tell(decision)
        if self.note is not None:
            wrong = self.note.write(costs.sparkSession, decision)
            if wrong:
                self.warn(f"batch {batch}: its decision was not written to the topic: {wrong}")

    def watch(self, query: "StreamingQuery", tell: Say, stop: threading.Event) -> None:
        """Report micro-batches, and silence, until the query ends or `stop` is set.

        Raises:
            StreamingQueryException: if the query has failed.
        """
        seen = -1
        quiet_s = self.publisher.rules.stale_s_max
        told_s = time.monotonic()
        try:
            running = True
            while running:
                running = not query.awaitTermination(LOOK_EVERY_S) and not stop.is_set()
                for progress in query.recentProgress:
                    if progress["batchId"] > seen and progress["numInputRows"]:
                        seen = progress["batchId"]
                        tell(f"batch {seen}: {tally_of(progress)}")
                silent_s = time.monotonic() - max(told_s, self._decided_s)
                if running and silent_s > quiet_s:
                    told_s = time.monotonic()
                    tell(
                        f"nothing to publish for {silent_s:.0f} s: no time window has closed; do "
                        "the nodes report (balancer.load_interval_ms)?"
                    )
        finally:
            end_between_batches(query)


def end_between_batches(query: "StreamingQuery") -> None:
    """Stop the query while no micro-batch is in progress, or after STOP_S_MAX. Spark 4.3 matches
    the error of an interrupted batch function against a pattern on which Java's stack overflows:
    harmless, but a thousand lines in the log."""
    deadline = time.monotonic() + STOP_S_MAX
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(STOP_LOOK_S)
    query.stop()


def tally_of(progress: Mapping[str, Any]) -> Tally:
    """How many records a micro-batch skipped, according to its progress."""
    found = progress["observedMetrics"].get(OBSERVED)
    told = {} if found is None else found.asDict()
    tally = Tally(told.get("records", 0))
    tally.passed_over.update({name: told.get(name, 0) for name in FAULTS})
    for step in progress["stateOperators"]:
        if step["operatorName"] == DEDUPE:
            tally.passed_over[LATE] += step["numRowsDroppedByWatermark"]
            tally.passed_over[DUPLICATE] += step["customMetrics"]["numDroppedDuplicateRows"]
    return tally
