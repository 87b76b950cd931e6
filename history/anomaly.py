"""What can be wrong with a history, by name, and the report that collects it.

The names are those of `jepsen.tests.kafka` if it has one (docs/history.md lists where each comes
from). An anomaly has one of three verdicts. *Bad*: no log shows this to anybody. *Allowed*: Kafka's
guarantees do not exclude it here. *Report*: for information only.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import attrs

from history.record import Key, Outcome

EXAMPLES_MAX: Final = 5
"""So many cases of each anomaly are described; the others are only counted."""
DETAIL_CHARS_MAX: Final = 300


class Anomaly(StrEnum):
    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATE = "duplicate"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    LOST_PREFIX = "lost-prefix"
    LOST_MIDDLE = "lost-middle"
    LOST_POSTFIX = "lost-postfix"
    LOST_ON_READER = "lost-on-reader"
    LOST_ON_NODE = "lost-on-node"
    G1A = "G1a"
    UNEXPECTED = "unexpected"
    RECOVERED = "recovered"
    POLL_SKIP = "poll-skip"
    INT_POLL_SKIP = "int-poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    REALTIME_ORDER = "realtime-order"
    REALTIME_LAG = "realtime-lag"
    STALE_OFFSETS = "stale-offsets"
    OFFSETS_BACK = "list-offsets-back"
    COMMITTED_BACK = "committed-back"
    DIVERGED = "diverged"
    TWO_MASTERS = "two-masters"
    STUCK = "stuck"
    REUSED_VALUE = "reused-value"


MEANING: Final[Mapping[Anomaly, str]] = {
    Anomaly.INCONSISTENT_OFFSETS: "one offset of a key was seen with two values",
    Anomaly.DUPLICATE: "one value was seen at two offsets",
    Anomaly.LOST_WRITE: "acknowledged, below the highest offset that was read, and never read",
    Anomaly.UNSEEN: "acknowledged, and not read by the end",
    Anomaly.LOST_PREFIX: "the beginning of a key's log is missing",
    Anomaly.LOST_MIDDLE: "something between the first and the last message read is missing",
    Anomaly.LOST_POSTFIX: "the end of a key's log is missing",
    Anomaly.LOST_ON_READER: "a reader that read to the end did not get it",
    Anomaly.LOST_ON_NODE: "it is missing from one node's copy of the log",
    Anomaly.G1A: "a value whose send certainly failed was read",
    Anomaly.UNEXPECTED: "a value that was never sent was read",
    Anomaly.RECOVERED: "a send of unknown outcome had happened",
    Anomaly.POLL_SKIP: "a reader skipped an offset that exists",
    Anomaly.INT_POLL_SKIP: "the same within one poll",
    Anomaly.NONMONOTONIC_POLL: "a reader went back or repeated itself",
    Anomaly.INT_NONMONOTONIC_POLL: "the same within one poll",
    Anomaly.NONMONOTONIC_SEND: "a later send of one process got a lower offset",
    Anomaly.REALTIME_ORDER: "a send got an offset that is not above one known before it began",
    Anomaly.REALTIME_LAG: "a reader was behind what was already known; the worst case",
    Anomaly.STALE_OFFSETS: "ListOffsets returned an end of a log below an offset known before",
    Anomaly.OFFSETS_BACK: "the first or the last offset of a log went back",
    Anomaly.COMMITTED_BACK: "a consumer group read an offset it had overwritten or not committed",
    Anomaly.DIVERGED: "two replicas' logs differ up to one slot",
    Anomaly.TWO_MASTERS: "two nodes claim one epoch of a Paxos group",
    Anomaly.STUCK: "a process sent after everything was healed, and nothing was acknowledged",
    Anomaly.REUSED_VALUE: "two sends have the same value: the workload is broken",
}


class Verdict(StrEnum):
    BAD = "bad"
    ALLOWED = "allowed"
    REPORT = "report"


@attrs.frozen
class Finding:
    anomaly: Anomaly
    verdict: Verdict
    key: Key
    detail: str

    def __str__(self) -> str:
        return f"{self.anomaly} on {self.key}: {self.detail}"


@attrs.define
class Tally:
    """How often one anomaly was found with one verdict, and the first few cases."""

    count: int = 0
    examples: list[Finding] = attrs.Factory(list)


@attrs.define
class Report:
    """The anomalies of a history by verdict, and figures about it; clean if none is bad."""

    tallies: dict[tuple[Anomaly, Verdict], Tally] = attrs.Factory(dict)
    sent: dict[Outcome, int] = attrs.Factory(lambda: dict.fromkeys(Outcome, 0))
    polled: int = 0
    records: int = 0
    acknowledged_during_faults: int = 0
    worst_lag_ns: int = 0

    def add(self, anomaly: Anomaly, key: Key, detail: str, verdict: Verdict = Verdict.BAD) -> None:
        tally = self.tallies.setdefault((anomaly, verdict), Tally())
        tally.count += 1
        if tally.count <= EXAMPLES_MAX:
            tally.examples.append(Finding(anomaly, verdict, key, detail[:DETAIL_CHARS_MAX]))

    @property
    def clean(self) -> bool:
        return not self.counts

    @property
    def counts(self) -> dict[Anomaly, int]:
        """How often each bad anomaly was found."""
        return self.with_verdict(Verdict.BAD)

    def with_verdict(self, verdict: Verdict) -> dict[Anomaly, int]:
        return {
            anomaly: tally.count for (anomaly, it), tally in self.tallies.items() if it == verdict
        }

    @property
    def findings(self) -> list[Finding]:
        """All examples, bad ones first."""
        return [one for _, _, tally in self._in_order() for one in tally.examples]

    def _in_order(self) -> Iterator[tuple[Anomaly, Verdict, Tally]]:
        for wanted in Verdict:
            for (anomaly, verdict), tally in self.tallies.items():
                if verdict == wanted:
                    yield anomaly, verdict, tally

    def summary(self) -> str:
        """The result for people: one line per anomaly, with its examples below."""
        recovered = self.with_verdict(Verdict.REPORT).get(Anomaly.RECOVERED, 0)
        lines = [
            f"{self.sent[Outcome.OK]:,} acknowledged, {self.sent[Outcome.INFO]:,} unknown "
            f"({recovered:,} of them happened), {self.sent[Outcome.FAIL]:,} failed, "
            f"{self.polled:,} read: {'clean' if self.clean else 'NOT A LOG'}"
        ]
        for anomaly, verdict, tally in self._in_order():
            if verdict == Verdict.REPORT:
                continue
            note = "" if verdict == Verdict.BAD else f" ({verdict})"
            lines.append(f"{tally.count} x {anomaly}{note}: {MEANING[anomaly]}")
            lines += [f"  {one.key}: {one.detail}" for one in tally.examples]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """The result for programs: everything in `summary`, and the reports."""
        return {
            "clean": self.clean,
            "records": self.records,
            "sent": {str(outcome): self.sent[outcome] for outcome in _ENDED},
            "polled": self.polled,
            "acknowledged_during_faults": self.acknowledged_during_faults,
            "worst_lag_ms": self.worst_lag_ns / 1e6,
            "anomalies": [
                {
                    "name": str(anomaly),
                    "verdict": str(verdict),
                    "meaning": MEANING[anomaly],
                    "count": tally.count,
                    "examples": [
                        {"key": list(one.key), "detail": one.detail} for one in tally.examples
                    ],
                }
                for anomaly, verdict, tally in self._in_order()
            ],
        }


_ENDED: Final = (Outcome.OK, Outcome.FAIL, Outcome.INFO)
