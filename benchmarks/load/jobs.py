"""The orders to a load generator and its reports: values sent through a pipe as JSON.

Every load runs in a process of its own (`worker.py`), so that neither this program's event loop nor
the interpreter lock of another load affects what is measured.
"""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import attrs

from benchmarks.load import usage
from benchmarks.load.histogram import Histogram
from benchmarks.load.samples import SampleFile


@attrs.frozen(kw_only=True)
class ProduceJob:
    """confluent-kafka as fast as possible. Ends after the window, or after `messages` if given."""

    KIND: ClassVar = "produce"
    bootstrap: str
    topic: str
    partitions: int
    message_bytes: int
    idempotent: bool
    warm_up_s: float
    window_s: float
    messages: int = 0
    pids: tuple[int, ...] = ()
    samples: SampleFile | None = None


@attrs.frozen(kw_only=True)
class PacedJob:
    """confluent-kafka in an open loop: a fixed number of messages a second is due."""

    KIND: ClassVar = "paced"
    bootstrap: str
    topic: str
    partitions: int
    message_bytes: int
    idempotent: bool
    rate: float
    warm_up_s: float
    window_s: float
    pids: tuple[int, ...] = ()
    samples: SampleFile | None = None


@attrs.frozen(kw_only=True)
class ConsumeJob:
    """confluent-kafka reads `messages` from the beginning of all partitions, a tenth to warm up."""

    KIND: ClassVar = "consume"
    bootstrap: str
    topic: str
    partitions: int
    messages: int
    seconds_max: float
    pids: tuple[int, ...] = ()
    samples: SampleFile | None = None


@attrs.frozen(kw_only=True)
class TailJob:
    """confluent-kafka reads what comes into all partitions from now on, as fast as it comes."""

    KIND: ClassVar = "tail"
    bootstrap: str
    topic: str
    partitions: int
    warm_up_s: float
    window_s: float
    pids: tuple[int, ...] = ()
    samples: SampleFile | None = None


@attrs.frozen(kw_only=True)
class RequestJob:
    """Raw Produce requests, by default of one record. `rate` 0: closed loop; else arrivals/s."""

    KIND: ClassVar = "requests"
    bootstrap: str
    topic: str
    connections: int
    in_flight: int
    """Closed loop: requests outstanding on each connection."""
    record_bytes: int
    rate: float
    first_node: int
    """Index of the node that gets the first connection; the next ones go round."""
    warm_up_s: float
    window_s: float
    pids: tuple[int, ...] = ()
    samples: SampleFile | None = None
    records: int = 1
    """Records in the one batch of a request."""
    partitions_max: int = 0
    """A connection sends to this many partitions of its node at most; 0: to all."""

    @property
    def request_bytes(self) -> int:
        """Bytes of the records' values."""
        return self.records * self.record_bytes


Job: TypeAlias = ProduceJob | PacedJob | ConsumeJob | TailJob | RequestJob

KINDS: dict[str, type[Job]] = {
    cls.KIND: cls for cls in (ProduceJob, PacedJob, ConsumeJob, TailJob, RequestJob)
}


@attrs.frozen(kw_only=True)
class Measured:
    """One repetition: what was acknowledged (or consumed) inside the window."""

    seconds: float
    count: int
    bytes: int
    usage: usage.Usage
    errors: tuple[str, ...] = ()
    """Why this is not a measurement; empty if it is one."""
    latency_ns: Histogram = attrs.Factory(Histogram)

    @property
    def per_s(self) -> float:
        return self.count / self.seconds

    @property
    def mb_per_s(self) -> float:
        return self.bytes / 1e6 / self.seconds

    @property
    def node_us_per_count(self) -> float:
        """CPU time of all nodes together for each message or request."""
        return sum(self.usage.nodes_s) * 1e6 / max(1, self.count)


def job_to_json(job: Job) -> str:
    return json.dumps({"kind": job.KIND, **attrs.asdict(job)})


def job_from_json(text: str | bytes) -> Job:
    value: dict[str, Any] = json.loads(text)
    kind = KINDS[value.pop("kind")]
    samples = value["samples"]
    value["samples"] = None if samples is None else SampleFile.from_json(samples)
    return kind(**{**value, "pids": tuple(value["pids"])})


def measured_to_json(measured: Measured) -> dict[str, Any]:
    return {
        "seconds": measured.seconds,
        "count": measured.count,
        "bytes": measured.bytes,
        "errors": list(measured.errors),
        "usage": usage.to_json(measured.usage),
        "latency_ns": measured.latency_ns.to_json(),
    }


def measured_from_json(value: Mapping[str, Any]) -> Measured:
    return Measured(
        seconds=value["seconds"],
        count=value["count"],
        bytes=value["bytes"],
        errors=tuple(value["errors"]),
        usage=usage.from_json(value["usage"]),
        latency_ns=Histogram.from_json(value["latency_ns"]),
    )
