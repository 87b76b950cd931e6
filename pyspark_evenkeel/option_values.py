"""Parsing single options: their text by name, and what it means.

A parser raises a ValueError that says what is expected; `Given.parsed` adds which option it was and
its value.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

from pyspark_evenkeel.client.cluster import Place
from pyspark_evenkeel.errors import ConfigurationError
from pyspark_evenkeel.offsets import flat
from wire.records.batch import Compression

T = TypeVar("T")
Word = TypeVar("Word", bound=Enum)

PREFIX: Final = "kafka."
CHUNK_BYTES_MIN: Final = 1024
CHUNK_BYTES_MAX: Final = 16 * 1024 * 1024 - 64 * 1024
"""A batch of 16 MiB with its request is the most that our brokers accept."""


def refused(name: str, what: str, advice: str) -> ConfigurationError:
    return ConfigurationError(f"option {name} {what}", advice=advice)


class Given:
    """The options of one query. Names are compared in lower case: Spark's own map of options
    ignores case, but a copy of it, `dict(options)`, does not."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts = {name.lower(): options[name].strip() for name in options}

    @property
    def names(self) -> list[str]:
        return sorted(self._texts)

    def text(self, name: str) -> str | None:
        """None if the option is not given."""
        return self._texts.get(name.lower())

    def client_text(self, name: str) -> str | None:
        """The text of an option for a Kafka client, with or without its prefix."""
        names = [one for one in (name, PREFIX + name) if one in self._texts]
        if len({self._texts[one] for one in names}) > 1:
            raise refused(name, "is given twice, with and without 'kafka.'", "leave one out")
        return self._texts[names[0]] if names else None

    def parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """
        Raises:
            ConfigurationError: if `parse` does not understand it.
        """
        return _parsed(name, self.text(name), parse, default)

    def client_parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """As `parsed`, for an option for a Kafka client."""
        return _parsed(name, self.client_text(name), parse, default)

    def only_one_of(self, *names: str) -> str | None:
        """The one of these that is given; None if none is.

        Raises:
            ConfigurationError: if several are given.
        """
        given = [name for name in names if name.lower() in self._texts]
        if len(given) > 1:
            raise refused(" and ".join(given), "are given together", "leave one")
        return given[0] if given else None


def _parsed(name: str, text: str | None, parse: Callable[[str], T], default: T) -> T:
    if text is None:
        return default
    try:
        return parse(text)
    except ConfigurationError:
        raise
    except ValueError as error:
        raise refused(name, f"is {text!r}", str(error)) from None


# -- parsers --------------------------------------------------------------------------------------


def count(text: str) -> int:
    if not text.isdecimal():
        raise ValueError("a whole number from 0 on is expected")
    return int(text)


def positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise ValueError("a whole number from 1 on is expected")
    return int(text)


def chunk_bytes(text: str) -> int:
    if not CHUNK_BYTES_MIN <= count(text) <= CHUNK_BYTES_MAX:
        raise ValueError(f"{CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} bytes are expected")
    return int(text)


def flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false is expected")
    return text.lower() == "true"


def seconds(text: str) -> float:
    """`15m`, `30s`, `200ms`, `1h`; a bare number is milliseconds, as in Spark."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h)?", text.lower())
    units = {None: 0.001, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    if match is None or not math.isfinite(value := float(match[1]) * units[match[2]]):
        raise ValueError("a time like 15m, 30s or 200ms is expected")
    return value


def boolean(word: str, no: str) -> Callable[[str], bool]:
    """True for this word, False for the other."""

    def parse(text: str) -> bool:
        if text.lower() not in (word, no):
            raise ValueError(f"{word} or {no} is expected")
        return text.lower() == word

    return parse


def partitioner(text: str) -> str:
    if text.lower() != "murmur2":
        raise ValueError("murmur2 is expected, or a column `partition`")
    return text.lower()


def compression(text: str) -> Compression:
    try:
        return Compression[text.upper()]
    except KeyError:
        raise ValueError("none, gzip, snappy, lz4 or zstd is expected") from None


def one_of(words: type[Word]) -> Callable[[str], Word]:
    def parse(text: str) -> Word:
        try:
            return words(text.lower())
        except ValueError:
            expected = " or ".join(str(one.value) for one in words)
            raise ValueError(f"{expected} is expected") from None

    return parse


def topics(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(one.strip() for one in text.split(",") if one.strip()))
    if not names:
        raise ValueError("topic,topic is expected")
    return names


def names(text: str) -> tuple[str, ...]:
    found = tuple(one.strip() for one in text.split(","))
    if not all(found):
        raise ValueError("write column,column")
    return found


def places(text: str) -> frozenset[Place]:
    expected = ValueError('JSON like {"topic": [0, 1]} is expected')
    try:
        document: Any = json.loads(text)  # `Any`: somebody's JSON, looked at below
    except ValueError:
        raise expected from None
    if not isinstance(document, dict) or not document:
        raise expected
    found = set()
    for topic, partitions in document.items():
        if not isinstance(partitions, list) or not partitions:
            raise expected
        for number in partitions:
            if type(number) is not int or number < 0:
                raise expected
            found.add(Place(topic, number))
    return frozenset(found)


def positions(least: int) -> Callable[[str], dict[Place, int]]:
    """A number from `least` on for each of some partitions."""

    def parse(text: str) -> dict[Place, int]:
        try:
            document = json.loads(text)
        except ValueError:
            raise ValueError('JSON like {"topic": {"0": 23}} is expected') from None
        found = flat(document, "it")
        for place, position in found.items():
            if position < least:
                raise ValueError(f"{position} for {place} means nothing")
        return found

    return parse
