"""What a client is said to have noticed of a fault."""

from pathlib import Path

from tests.compat import counts
from tests.compat.counts import Counts
from tests.compat.languages import Event


def events(name: str, *numbered: tuple[int, int]) -> list[Event]:
    return [{"event": name, "value": f"{number:06}", "at": at} for number, at in numbered]


def test_what_is_lost_twice_and_out_of_order() -> None:
    wrote = [*events("acked", (0, 0), (1, 10), (2, 510), (3, 520)), {"event": "error", "text": "x"}]
    read = [
        {"event": "rebalance", "partitions": [0]},
        *events("read", (0, 5), (2, 905), (2, 910)),
        {"event": "rebalance", "partitions": [0]},
    ]
    told = Counts.of(wrote, read, ["000000", "000002", "000001", "000002"])
    assert told == Counts(
        acknowledged=4,
        lost=1,
        stored_twice=1,
        out_of_order=1,
        errors=1,
        pause_of_acks=500,
        read_twice=1,
        rebalances=1,
        pause_of_reads=900,
    )


def test_a_quiet_run_counts_nothing(tmp_path: Path) -> None:
    """A program that does not tell when leaves the pauses out."""
    wrote: list[Event] = [{"event": "acked", "value": "000000"}]
    read: list[Event] = [{"event": "rebalance"}, {"event": "read", "value": "000000"}]
    assert counts.cells(tmp_path) == ""
    Counts.of(wrote, read, ["000000"]).keep(tmp_path)
    assert counts.cells(tmp_path) == "1 | 0 | 0 | 0 | 0 |  | 0 | 0 | "
