"""Patterns of topic names (KIP-848): by RE2, whose time is linear in the pattern and the name.

A pattern comes from a client and is matched on the loop against every topic: a few characters could
stall an engine that backtracks.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

import re2

PATTERNS_KEPT: Final = 1_000
MEMORY_BYTES_MAX: Final = 1024 * 1024
"""Of one compiled pattern; RE2 refuses what would need more."""


def matching(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that the whole of `pattern` means.

    Raises:
        ValueError: if it is no pattern.
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
        raise ValueError(f"{pattern[:100]!r} is no pattern: {error}") from error
