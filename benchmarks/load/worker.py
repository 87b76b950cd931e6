"""One load in a process of its own: a job on standard input, the measurement on standard output.

`python -m benchmarks.load.worker`. Exit code 0 with the measurement as JSON, else 1 and the reason,
as text, on standard error.
"""

import json
import sys

from confluent_kafka import KafkaException

from benchmarks.load import clients, generator, paced
from benchmarks.load.frames import TargetError
from benchmarks.load.generator import LoadFailed
from benchmarks.load.jobs import (
    ConsumeJob,
    Job,
    Measured,
    PacedJob,
    ProduceJob,
    TailJob,
    job_from_json,
    measured_to_json,
)
from benchmarks.load.login import LoginError
from benchmarks.load.usage import ProcessGone


def carry_out(job: Job) -> Measured:
    if isinstance(job, ProduceJob):
        return clients.produce(job)
    if isinstance(job, PacedJob):
        return paced.produce(job)
    if isinstance(job, ConsumeJob):
        return clients.consume(job)
    if isinstance(job, TailJob):
        return clients.tail(job)
    return generator.run(job)


def main() -> int:
    job = job_from_json(sys.stdin.buffer.read())
    try:
        measured = carry_out(job)
    except (LoadFailed, LoginError, TargetError, ProcessGone, KafkaException) as error:
        print(error, file=sys.stderr)
        return 1
    json.dump(measured_to_json(measured), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
