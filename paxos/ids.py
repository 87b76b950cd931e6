"""Types for identifiers (node, group, slot, ballot, incarnation) and for clock readings.

Glossary: docs/glossary.md. A ballot is a NamedTuple because `<` is on every message's path.
"""

from typing import Final, NamedTuple, NewType

NodeId = NewType("NodeId", int)
GroupId = NewType("GroupId", int)
Slot = NewType("Slot", int)
Epoch = NewType("Epoch", int)
"""How often a group's master has changed: the fencing token, Kafka's leader epoch (an int32)."""
Incarnation = NewType("Incarnation", int)
"""Boot counter of a node, durable before the node says anything (docs/protocol.md, "Model")."""

NOBODY: Final = NodeId(-1)
INCARNATION_ZERO: Final = Incarnation(0)
INCARNATION_MAX: Final = 2**63 - 1
"""What an entry and a data directory can hold; a node that names a higher one lies."""
EPOCH_ZERO: Final = Epoch(0)
SLOT_ZERO: Final = Slot(0)
"""No slot: slots are numbered from 1."""

REGISTRY_GROUP: Final = GroupId(0)


class Ballot(NamedTuple):
    """Round first, node id breaks the tie: no two nodes ever share a ballot."""

    round: int
    node: NodeId


BALLOT_ZERO: Final = Ballot(0, NOBODY)
ROUND_MAX: Final = 1 << 62
"""Counting never gets near it. A higher round is false, and the next would not fit a record."""


class Now(NamedTuple):
    """One reading of a node's two clocks, in nanoseconds, handed to every pure step.

    `wall_ns` is absolute (lease expiries are written in it), `boot_ns` is CLOCK_BOOTTIME (it never
    steps and goes on while the machine sleeps). `trusted` is False while the node's clock is known
    to be off by nearly the configured bound: such a node neither acts nor prepares.
    """

    wall_ns: int
    boot_ns: int
    trusted: bool = True


MS: Final = 1_000_000
"""Nanoseconds in a millisecond."""
