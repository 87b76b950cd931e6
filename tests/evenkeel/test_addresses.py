"""Addresses of the cluster as users write them."""

import pytest

from evenkeel.config import addresses
from evenkeel.errors import ConfigurationError


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("a:1,b", (("a", 1), ("b", 9092))),
        (["[::1]:7", " c:2 "], (("::1", 7), ("c", 2))),
        ("[fe80::1]", (("fe80::1", 9092),)),
    ],
)
def test_addresses(written: str | list[str], read: tuple[tuple[str, int], ...]) -> None:
    assert addresses(written) == read


@pytest.mark.parametrize("nonsense", ["", ",", "a:b", ":9092", "a:0", "a:70000"])
def test_what_is_no_address(nonsense: str) -> None:
    with pytest.raises(ConfigurationError, match="write host:port"):
        addresses(nonsense)
