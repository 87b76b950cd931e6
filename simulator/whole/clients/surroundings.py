"""What these clients see of their world, beyond what all simulated clients do."""

from typing import Protocol

from simulator.clients.surroundings import Surroundings
from simulator.whole.machine import Lan


class WholeSurroundings(Surroundings, Protocol):
    lan: Lan
    healed_ns: int | None
    """Since when nothing hurts the cluster any more, and all nodes are ready."""
    proofs: dict[int, tuple[int, int, int]]
    """Partition -> id, epoch and next sequence of a producer that was acknowledged there."""
