"""What the rows of sample files mean. The benchmarks write them (benchmarks/load/samples.py).

There are two kinds of file, recognised by name. `*.samples.*` has a row for each request, or for
each look at a client that counts what was acknowledged. `*.moves.*` has a row for each time a
master was moved on purpose. A *load* is one process that measured something, and the times in all
rows of one load are from one clock; a *run* is one call of a command, with as many loads as needed.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

BALANCED: Final = "balanced"
CONCENTRATED: Final = "concentrated"
LAYOUTS: Final = (BALANCED, CONCENTRATED, "moving", "unknown")
NO_LIMITS: Final = "none"
PRODUCE: Final = "produce"
FETCH: Final = "fetch"
SIDES: Final = (PRODUCE, FETCH)


class Column(NamedTuple):
    type: str
    """A type of Spark's SQL."""
    meaning: str
    needed: bool = True
    """Whether a row without a value is refused."""


LOAD: Final[Mapping[str, Column]] = {
    "run": Column("string", "one call of a benchmark command"),
    "load": Column("bigint", "number of the load within the run"),
    "pair": Column("bigint", "which balanced load goes with which concentrated one", needed=False),
    "benchmark": Column("string", "what was measured"),
    "commit": Column("string", "of the checkout; `+`: with changes"),
    "began": Column("string", "when the run began, UTC"),
    "machine": Column("string", "processor, cores, kernel"),
    "limits": Column("string", "what each node was limited to; `none`: nodes share the machine"),
    "layout": Column("string", "of the masters: `balanced`, `concentrated`, `moving`, `unknown`"),
    "nodes": Column("bigint", "nodes of the cluster", needed=False),
    "groups": Column("bigint", "Paxos groups", needed=False),
    "client": Column("string", "what kind of client"),
    "message_bytes": Column("bigint", "size of a message; empty: they differ", needed=False),
    "rate": Column("double", "messages a second intended; 0: the next when one is done"),
    "connections": Column("bigint", "of the client"),
    "in_flight": Column("bigint", "requests outstanding on each, closed loop", needed=False),
    "window_from_ns": Column("bigint", "everything before it is warm-up"),
    "window_to_ns": Column("bigint", "everything after it is the end of the load"),
    "others_share": Column("double", "share of the machine that others took", needed=False),
}  # fmt: skip
"""The same in all rows of a load."""

SAMPLES: Final[Mapping[str, Column]] = {
    **LOAD,
    "side": Column("string", "`produce`: acknowledged; `fetch`: read by a consumer"),
    "connection": Column("bigint", "which one", needed=False),
    "intended_ns": Column("bigint", "when it was due; empty in a closed loop", needed=False),
    "start_ns": Column("bigint", "when it was sent; of a batch: the look before it"),
    "end_ns": Column("bigint", "when the answer, or the message, arrived"),
    "latency_ns": Column("bigint", "intended (else start) to end; empty for a batch", needed=False),
    "records": Column("bigint", "messages acknowledged or read, or that failed"),
    "bytes": Column("bigint", "of their values"),
    "ok": Column("boolean", "false: refused, or its outcome is unknown"),
    "error": Column("string", "why not", needed=False),
}  # fmt: skip

MOVES: Final[Mapping[str, Column]] = {
    "run": Column("string", "as in the samples"),
    "load": Column("bigint", "as in the samples"),
    "commit": Column("string", "as in the samples"),
    "strategy": Column("string", "how the master was handed over (handoff.md)"),
    "producer": Column("string", "`plain` or `idempotent`"),
    "rate": Column("double", "messages a second that were intended"),
    "grace_ms": Column("double", "how long the old master went on forwarding"),
    "move": Column("bigint", "number of the move within the load"),
    "first_contact": Column("boolean", "clients met nodes for the first time; reported apart"),
    "source": Column("bigint", "the node that was master"),
    "target": Column("bigint", "the node that is"),
    "quiet_from_ns": Column("bigint", "the quiet interval before the move begins"),
    "quiet_to_ns": Column("bigint", "... and ends"),
    "handover_from_ns": Column("bigint", "the old master freezes the group"),
    "handover_to_ns": Column("bigint", "a little after the new one acts"),
    "redirect_from_ns": Column("bigint", "clients are sent to the new one"),
    "redirect_to_ns": Column("bigint", "a little after the old one has stopped forwarding"),
    "phases_ms": Column("map<string,double>", "phases as the nodes measured them", needed=False),
}  # fmt: skip

COLUMNS: Final[Mapping[str, Mapping[str, Column]]] = {"samples": SAMPLES, "moves": MOVES}


def ddl(kind: str) -> str:
    """The schema in Spark's SQL."""
    return ", ".join(f"`{name}` {column.type}" for name, column in COLUMNS[kind].items())


def documented(kind: str) -> list[str]:
    """The rows of the table in docs/spark.md."""
    return [
        f"| `{name}` | {column.type} | {column.meaning} |" for name, column in COLUMNS[kind].items()
    ]


if __name__ == "__main__":
    for one in COLUMNS:
        print("\n".join([f"{one}:", *documented(one)]))
