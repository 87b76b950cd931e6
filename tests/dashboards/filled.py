"""Replaces the variables of an expression as Grafana does."""

import re
from collections.abc import Mapping
from types import MappingProxyType

EVERYTHING: Mapping[str, str] = MappingProxyType(
    {
        "cluster": "c",
        "node": ".*",
        "group": ".*",
        "consumer_group": ".*",
        "__rate_interval": "1m",
    }
)


def filled(expr: str, values: Mapping[str, str] = EVERYTHING) -> str:
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expr)
