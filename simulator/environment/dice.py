"""A world's randomness: one root seed, split by name; a draw in one place shifts no other."""

import random
from typing import TypeVar

T = TypeVar("T")


def dice(seed: int, *names: object) -> random.Random:
    """An independent stream for these names, the same in every process (strings go through SHA)."""
    return random.Random("/".join(str(name) for name in (seed, *names)))


def between(stream: random.Random, low: int, high: int) -> int:
    """Uniform in low..high, both included; integers keep time exact."""
    return low + int(stream.random() * (high - low + 1))


def exponential(stream: random.Random, mean: int) -> int:
    return int(stream.expovariate(1.0) * mean)
