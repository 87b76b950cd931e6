"""An answer as a tree of plain values, without what must differ: ids, times, words, sizes.

Lists of structures become mappings by the field that identifies an element: their order is not
compared, except in lists of numbers and words, where it is dropped too. Two elements of one name
are `name` and `name (2)`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import attrs

from tests.broker.batches import contents
from wire.codec.schema import UUID_ZERO, Kind, fields_of
from wire.error_codes import ErrorCode
from wire.messages.fetch import PRIVATE_TAG

Tree = Mapping[str, Any] | str
IDENTITIES: Final = (
    *("name", "topic", "topic_name", "group_id", "key", "resource_name", "group_instance_id"),
    *("instance_id", "partition_index", "partition", "partition_id", "index", "api_key"),
    *("broker_id", "node_id", "batch_index"),
)
TEXTS: Final = {"error_message", "batch_index_error_message", "documentation", "cluster_id"}
"""There or not; no words are words of no characters."""
DRAWN: Final = {"member_id", "leader", "topic_id", "producer_id", "log_dir", "session_id"}
"""Each side draws its own: told is only whether it is the one of the request."""
COUNTED: Final = frozenset(
    {
        "total_bytes",
        "usable_bytes",
        "partition_size",
        "leader_epoch",
        "member_epoch",
        "group_epoch",
        "assignment_epoch",
        "port",
    }
)
"""Only the sign is compared."""
PASSED_OVER: Final = {"throttle_time_ms"}
NOW_MS: Final = 1_750_000_000_000
"""Times from here on are the clock's; the stories write older ones."""


@attrs.frozen
class _Context:
    version: int
    asked: frozenset[object]
    loose: frozenset[str]


def plain(answer: Any, version: int, request: Any, loose: frozenset[str] = frozenset()) -> Tree:
    """`loose`: fields of which only the sign is compared."""
    if isinstance(answer, Enum):
        return str(answer.value)
    if not attrs.has(type(answer)):
        return repr(answer)
    return _struct(answer, _Context(version, frozenset(_words(request)), loose | COUNTED))


def _struct(message: Any, context: _Context) -> dict[str, Any]:
    tree = {}
    for field in fields_of(type(message)):
        spec = field.spec
        ours = spec.tag is not None and spec.tag >= PRIVATE_TAG
        if spec.versions.has(context.version) and field.name not in PASSED_OVER and not ours:
            value = getattr(message, field.name)
            tree[field.name] = _value(field.name, spec.kind, value, context)
    return tree


def _value(name: str, kind: Kind, value: Any, context: _Context) -> Any:
    if value is None or (name in TEXTS and not value):
        return "null"
    if kind is Kind.RECORDS:
        return _records(value)
    if kind is Kind.STRUCT:
        return _struct(value, context)
    if kind is Kind.ARRAY:
        if value and attrs.has(type(value[0])):
            return _named([(_identity(one, context), _struct(one, context)) for one in value])
        return "[" + ", ".join(sorted(_leaf(name, one, context) for one in value)) + "]"
    return _leaf(name, value, context)


def _leaf(name: str, value: Any, context: _Context) -> str:
    if name == "error_code":
        return _error(value)
    if name in TEXTS:
        return "text"
    if name in DRAWN:
        if value in ("", -1, UUID_ZERO) or (name, value) == ("session_id", 0):
            return "none"
        return "the one asked for" if value in context.asked else "some"
    if name in context.loose:
        return str(value) if value < 0 else "some"
    if isinstance(value, int) and value > NOW_MS:
        return "now"
    return value.hex() if isinstance(value, bytes) else repr(value)


def _error(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _records(value: Any) -> str:
    try:
        return str(contents(memoryview(value)))
    except Exception as error:  # noqa: BLE001  what cannot be read is told as such
        return f"unreadable: {error}"


def _identity(one: Any, context: _Context) -> str:
    for name in IDENTITIES:
        value = getattr(one, name, None)
        if value is not None and value != "":
            return str(value)
    topic_id = getattr(one, "topic_id", UUID_ZERO)
    if topic_id != UUID_ZERO:
        return _leaf("topic_id", topic_id, context)
    return ""


def _named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for name, tree in pairs:
        number, label = 1, name
        while label in named:
            number += 1
            label = f"{name} ({number})"
        named[label] = tree
    return named


def _words(value: Any) -> list[object]:
    """Every id that a request names, so that it is compared where the answer repeats it."""
    if attrs.has(type(value)):
        return [
            word for one in attrs.fields(type(value)) for word in _words(getattr(value, one.name))
        ]
    if isinstance(value, list):
        return [word for one in value for word in _words(one)]
    return [value] if isinstance(value, str | bytes | int) else []
