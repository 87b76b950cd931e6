"""The Spark data source and sink of Evenkeel: `spark.read.format("evenkeel")` (docs/spark.md).

Spark imports every package on the path whose name begins with `pyspark_` and takes its
`DefaultSource`. It is created on demand: workers that only read options or offsets need not import
Spark's classes.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark_evenkeel.source import EvenkeelSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        from pyspark_evenkeel.source import EvenkeelSource

        return EvenkeelSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
