"""`format("evenkeel")`: where Spark gets its readers and writers.

Spark creates an instance on the driver and sends it to several processes, so it holds the options
and nothing else. Reading is in `read/`, writing in `write/`.
"""

from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pyspark_evenkeel.errors import ConfigurationError
from pyspark_evenkeel.options import includes_headers, parse_sink, parse_source
from pyspark_evenkeel.read.batch import BatchReader, PushingReader
from pyspark_evenkeel.read.columns import Arrow
from pyspark_evenkeel.read.streaming import StreamReader
from pyspark_evenkeel.write.sink import batch_writer, stream_writer

HEADERS: Final = "headers"
_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
"""The columns of Spark's own Kafka source."""
_ARROW: Final[dict[str, Arrow]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    HEADERS: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}
"""The Arrow types that Spark derives from them, and compares with what it gets."""


def arrow_schema(schema: StructType) -> Arrow:
    """The Arrow schema of rows with these columns.

    Raises:
        ConfigurationError: if a column is not one of ours, or has another type.
    """
    for field in schema:
        ours = COLUMNS.get(field.name)
        if ours != field.dataType:
            expected = ", ".join(f"{name} {one.simpleString()}" for name, one in COLUMNS.items())
            raise ConfigurationError(
                f"there is no column {field.name} {field.dataType.simpleString()}",
                advice=f"choose from {expected}",
            )
    return pa.schema(
        [pa.field(field.name, _ARROW[field.name], nullable=field.nullable) for field in schema]
    )


class EvenkeelSource(DataSource):
    """Topics of Evenkeel, or of any other Kafka, as tables (docs/spark.md)."""

    @classmethod
    def name(cls) -> str:
        return "evenkeel"

    def schema(self) -> StructType:
        """All columns. A user's own schema may name some of them, in any order."""
        headers = includes_headers(self.options)
        names = [name for name in COLUMNS if headers or name != HEADERS]
        return StructType([StructField(name, COLUMNS[name]) for name in names])

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_source(self.options, streaming=False)
        kind = PushingReader if options.pushdown else BatchReader
        return kind(options, arrow_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return StreamReader(parse_source(self.options, streaming=True), arrow_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return batch_writer(schema, parse_sink(self.options, streaming=False), overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return stream_writer(schema, parse_sink(self.options, streaming=True), overwrite)
