"""What clients notice of a move of a master: the longest silence, as docs/handoff.md defines it.

A *gap* is the longest silence between two acknowledgements (or two messages read) that touches an
interval; a silence that never ended lasts to the interval's end. benchmarks/handoff/figures.py
computes the same from its data in memory, and a test checks both against the same numbers.
"""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MS: Final = 1e6
"""Nanoseconds."""
BLIP_MS: Final = 50.0
"""A silence this long in the redirect interval means that a client backed off."""
INTERVALS: Final = ("quiet", "handover", "redirect")
MOVE: Final = ("run", "load", "move")
KIND: Final = ("run", "commit", "strategy", "producer", "rate", "grace_ms", "side")
"""What moves have in common whose gaps are pooled."""


def silences(samples: "DataFrame") -> "DataFrame":
    """(run, load, side, from_ns, to_ns) of neighbours in time; `to_ns` of the last one is null.

    Only of what was acknowledged or read.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_time = Window.partitionBy("run", "load", "side").orderBy("from_ns")
    return (
        samples.where("ok")
        .select("run", "load", "side", F.col("end_ns").alias("from_ns"))
        .withColumn("to_ns", F.lead("from_ns").over(in_time))
    )


def intervals(moves: "DataFrame") -> "DataFrame":
    """(move, interval, begin, end): the three intervals of each move."""
    from pyspark.sql import functions as F

    three = F.array(
        *(
            F.struct(
                F.lit(name).alias("interval"),
                F.col(f"{name}_from_ns").alias("begin"),
                F.col(f"{name}_to_ns").alias("end"),
            )
            for name in INTERVALS
        )
    )
    return moves.select(*MOVE, F.inline(three))


def gaps(samples: "DataFrame", moves: "DataFrame") -> "DataFrame":
    """A row for each move and side: quiet_ms, handover_ms, redirect_ms, and `blips`, the number of
    silences in the redirect interval during which a client backed off."""
    from pyspark.sql import functions as F

    moved = F.broadcast(moves.select("run", "load").distinct())
    of_moved = samples.join(moved, ["run", "load"], "left_semi")
    sides = F.broadcast(of_moved.select("run", "load", "side").distinct())
    asked = intervals(moves)
    touching = (
        silences(of_moved)
        .join(F.broadcast(asked), ["run", "load"])
        .where(
            # The first answer of all ends no silence; after the last one silence lasts to the end.
            (F.col("from_ns") < F.col("end"))
            & F.coalesce(F.col("to_ns") > F.col("begin"), F.lit(True))
        )
        .withColumn("ms", (F.coalesce("to_ns", "end") - F.col("from_ns")) / MS)
        .groupBy(*MOVE, "side", "interval")
        .agg(
            F.max("ms").alias("longest_ms"),
            F.sum(F.when(F.col("ms") > BLIP_MS, 1).otherwise(0)).alias("blips"),
        )
    )
    silent = (F.col("end") - F.col("begin")) / MS
    each = (
        asked.join(sides, ["run", "load"])
        .join(touching, [*MOVE, "side", "interval"], "left")
        .withColumn("blips", F.coalesce("blips", F.when(silent > BLIP_MS, 1).otherwise(0)))
        .withColumn("longest_ms", F.coalesce("longest_ms", silent))
    )
    by_move = each.groupBy(*MOVE, "side").agg(
        *(
            F.max(F.when(F.col("interval") == name, F.col("longest_ms"))).alias(f"{name}_ms")
            for name in INTERVALS
        ),
        F.max(F.when(F.col("interval") == "redirect", F.col("blips"))).alias("blips"),
    )
    labels = moves.drop(*(f"{name}_{at}_ns" for name in INTERVALS for at in ("from", "to")))
    return by_move.join(F.broadcast(labels), [*MOVE])


def above_usual(of_moves: "DataFrame") -> "DataFrame":
    """Adds `above_ms`: by how much the handover's gap exceeds the usual one, the median of the
    quiet intervals of the same load. Moves of first contact are left out."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    of_load = Window.partitionBy("run", "load", "side")
    usual = F.median("quiet_ms").over(of_load)
    above = F.greatest(F.lit(0.0), F.col("handover_ms") - usual)
    return of_moves.where("not first_contact").withColumn("above_ms", above)
