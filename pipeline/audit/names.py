"""Numbers for keys and processes, because millions of rows are sorted by them.

A number is a hash of the name. That no two names of this history have the same number is not just
likely but checked: names are few.
"""

from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql import functions as F

from pipeline.audit.columns import KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SALTS: Final = range(8)


@attrs.frozen(kw_only=True)
class Names:
    profile: "DataFrame"
    """A table that has all names, and little else."""
    salt: int
    keys: int
    """The number of keys."""

    @classmethod
    def of(cls, profile: "DataFrame") -> "Names":
        for salt in SALTS:
            counted = profile.agg(
                F.count_distinct(*KEY),
                F.count_distinct(_hash(salt, *KEY)),
                F.count_distinct("process"),
                F.count_distinct(_hash(salt, "process")),
            )
            ((keys, logs, processes, actors),) = counted.collect()
            if (keys, processes) == (logs, actors):
                return cls(profile=profile, salt=salt, keys=keys)
        raise AssertionError(f"in {len(SALTS)} ways two names have one hash of 64 bits")

    def log(self) -> "Column":
        """The number of a row's key."""
        return _hash(self.salt, *KEY)

    def shortened(self, rows: "DataFrame") -> "DataFrame":
        """Replaces names by numbers."""
        numbers = {"log": self.log(), "actor": _hash(self.salt, "process")}
        return rows.withColumns(numbers).drop(*KEY, "process")

    def restored(self, rows: "DataFrame") -> "DataFrame":
        """Replaces numbers by names; for few rows."""
        logs = self.profile.select(*KEY).distinct().withColumn("log", self.log())
        named = rows.join(logs, "log").drop("log")
        if "actor" not in rows.columns:
            return named
        actors = self.profile.select("process").distinct()
        actors = actors.withColumn("actor", _hash(self.salt, "process"))
        return named.join(actors, "actor").drop("actor")


def _hash(salt: int, *columns: str) -> "Column":
    return F.xxhash64(F.lit(salt), *columns)
