"""The two clients' records, and the moves, as files: benchmarks/load/samples.py.

A message has two rows: acknowledged (`produce`), and read by the consumer behind it (`fetch`), both
timed from when it was due by the producer's rate. All times are from one monotonic clock.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.handoff.clients import Follower, Probe
from benchmarks.handoff.figures import Move, Run
from benchmarks.load.samples import (
    FETCH,
    MOVING,
    PRODUCE,
    SampleFolder,
    Samples,
    write_moves,
    write_samples,
)


def keep(
    folder: SampleFolder,
    run: Run,
    probe: Probe,
    follower: Follower,
    *,
    first: Sequence[Move],
    done: Sequence[Move],
    nodes: int,
    groups: int,
) -> None:
    """Write the samples and the moves of one run; its window goes from the first of `done` (or the
    last of `first`, if there is none) to the last answer."""
    kind = "idempotent" if run.idempotent else "plain"
    file = folder.next_load(
        benchmark="handoff",
        layout=MOVING,
        nodes=nodes,
        groups=groups,
        client=f"confluent-kafka producer, {kind}",
        message_bytes=None,
        rate=float(run.rate),
        connections=1,
        in_flight=None,
    )
    samples = samples_of(probe, follower)
    begin = (done or first)[0 if done else -1].quiet.from_ns
    write_samples(file, samples, window_ns=(begin, max(samples.end_ns, default=begin)))
    same = {"strategy": run.strategy, "producer": kind, "grace_ms": float(run.grace_ms)}
    write_moves(file, same, [*_rows(first, 0, True), *_rows(done, len(first), False)])


def samples_of(probe: Probe, follower: Follower) -> Samples:
    samples = Samples()
    for side, seen in ((PRODUCE, probe.acked), (FETCH, follower.got)):
        for at_ns, number in seen:
            due_ns, sent_ns = probe.due_ns[number], probe.sent_ns[number]
            samples.add(side, 0, due_ns, sent_ns, at_ns, len(str(number)))
    for at_ns, _, why in probe.failed:
        samples.add_failure(PRODUCE, at_ns, 1, why)
    unanswered = len(probe.sent_ns) - len(probe.acked) - len(probe.failed)
    if unanswered:
        ended_ns = max(samples.end_ns, default=probe.sent_ns[-1])
        samples.add_failure(PRODUCE, ended_ns, unanswered, "no answer")
    return samples


def _rows(moves: Sequence[Move], begin: int, first_contact: bool) -> Iterator[dict[str, Any]]:
    for number, move in enumerate(moves, begin):
        yield {
            "move": number,
            "first_contact": first_contact,
            "source": move.source,
            "target": move.target,
            "quiet_from_ns": move.quiet.from_ns,
            "quiet_to_ns": move.quiet.to_ns,
            "handover_from_ns": move.handover.from_ns,
            "handover_to_ns": move.handover.to_ns,
            "redirect_from_ns": move.redirect.from_ns,
            "redirect_to_ns": move.redirect.to_ns,
            "phases_ms": dict(move.phases_ms),
        }
