"""Patterns of topic names (KIP-848): by RE2, whose time is linear in the pattern and the name.

Clients send patterns, and each is matched on the loop against every topic: with a backtracking
engine, a few characters could stall the node.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2

PATTERNS_KEPT: Final = 1_000
MEMORY_BYTES_MAX: Final = 1024 * 1024
"""For one compiled pattern; RE2 refuses patterns that would need more."""


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that `pattern` matches as a whole.

    Raises:
        ValueError: if it is not a valid pattern.
    """
    compiled = _compiled(pattern)
    return frozenset(name for name in names if compiled.fullmatch(name))


@lru_cache(PATTERNS_KEPT)
def _compiled(pattern: str) -> Any:  # noqa: ANN401  re2 has no types
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise ValueError(f"{pattern[:100]!r} is not a valid pattern: {error}") from error
