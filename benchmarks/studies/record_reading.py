"""What it costs to read the records of a batch before it is stored: `make reading`.

The same batches with and without: `plain_batch` alone is what a node did before it read records
(docs/adr/0036). They alternate, and the lowest of several rounds counts, so that what other
processes do meanwhile is left out; times are CPU times. The effect on a cluster under load is
measured with whole nodes (docs/benchmarks.md).
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from broker.producers.batch_validation import ON_LOOP_BYTES_MAX
from wire.records.batch import (
    DECOMPRESSED_BYTES_MAX,
    Batch,
    Compression,
    Record,
    parse_header,
    plain_batch,
)
from wire.records.batch_writer import BatchWriter
from wire.records.compression import compress
from wire.records.validation import READABLE, check_records

ROUNDS: Final = 7
SEED: Final = 1
RECORDS_A_ROUND: Final = 20_000
SHAPES: Final = ((1, 100), (1, 1_000), (16, 1_000), (900, 1_000), (100, 100), (2_000, 100))
"""Records in a batch, and bytes of each, half of which do not compress."""


def batches() -> Iterator[tuple[int, int, Compression, memoryview]]:
    chance = Random(SEED)
    for count, size in SHAPES:
        writer = BatchWriter()
        for index in range(count):
            value = chance.randbytes(size // 2) + bytes(size - size // 2)
            writer.append(Record(value, None, 1_700_000_000_000 + index // 10))
        for codec in Compression:
            sealed = writer.seal(compress(writer.payload, codec), compression=codec)
            yield count, size, codec, memoryview(sealed)


def without(data: memoryview) -> None:
    assert plain_batch(data) is not None


def reading(data: memoryview) -> None:
    without(data)
    header = parse_header(data)
    large = len(data) > ON_LOOP_BYTES_MAX
    bytes_max = DECOMPRESSED_BYTES_MAX if large else ON_LOOP_BYTES_MAX
    check_records(Batch(header, data), READABLE, bytes_max=bytes_max)


def microseconds(act: Callable[[memoryview], None], data: memoryview, times: int) -> float:
    began = time.thread_time_ns()
    for _ in range(times):
        act(data)
    return (time.thread_time_ns() - began) / times / 1_000


def measure(rounds: int) -> Iterator[dict[str, object]]:
    for count, size, codec, data in batches():
        times = max(1, RECORDS_A_ROUND // count)
        pairs = [
            (microseconds(without, data, times), microseconds(reading, data, times))
            for _ in range(rounds)
        ]
        before, after = (min(one) for one in zip(*pairs, strict=True))
        yield {
            "records": count,
            "bytes": size,
            "codec": codec.name.lower(),
            "batch_before_us": round(before, 2),
            "batch_reading_us": round(after, 2),
            "record_us": round((after - before) / count, 3),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    for row in measure(arguments.rounds):
        line = json.dumps(row) if arguments.json else "  ".join(f"{k} {v}" for k, v in row.items())
        sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
