"""The most expensive requests that fit a frame, for every API: each of their arrays is filled up.

They are made from the schema, so new APIs and fields are included automatically. Array items are
once all equal and once all different: a handler may look them up, sort them, or answer each of them
at length.
"""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import attrs

from tests.broker.requests.test_hostile import REQUESTS, sensible
from tests.cluster.scenery import FULL
from wire.apis import Api, Request, encode_request
from wire.codec.schema import Kind, fields_of

FRAME_BYTES: int = 1024 * 1024
AS_MANY_AS_FIT = 1 << 18
COUNTS = (1_000, 10_000, AS_MANY_AS_FIT) if FULL else (AS_MANY_AS_FIT,)
"""The full dose also has sizes around the usual limits."""


class Dear(NamedTuple):
    name: str
    api: Api
    version: int
    frame: bytes
    """Without its length."""


def dear_requests(name: str, frame_bytes: int = FRAME_BYTES) -> Iterator[Dear]:
    """For the newest version of this API: each of its arrays, with several lengths."""
    (api,) = {api for api, _ in REQUESTS if api.name == name}
    for path in _arrays(sensible(api)):
        for distinct in (False, True):
            seen = 0
            for count in COUNTS:
                dear = _filled(api, max(api.accepted), path, count, distinct, frame_bytes)
                if len(dear.frame) > seen:
                    seen = len(dear.frame)
                    yield dear


def _filled(
    api: Api, version: int, path: tuple[str, ...], count: int, distinct: bool, frame_bytes: int
) -> Dear:
    """As many items as asked for, as far as they fit."""
    few = len(_frame(_grown(sensible(api), path, 64, distinct), version))
    none = len(_frame(_grown(sensible(api), path, 0, distinct), version))
    each = max((few - none) / 64, 0.01) + (4 if distinct else 0)
    fits = min(count, int((frame_bytes - none) / each))
    frame = _frame(_grown(sensible(api), path, fits, distinct), version)
    kind = "different" if distinct else "the same"
    return Dear(f"{api.name} v{version} {'.'.join(path)} {fits} {kind}", api, version, frame)


def _frame(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version, 7, "dear"))[4:]


def _arrays(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for field in attrs.fields(type(value)):
        one = getattr(value, field.name)
        if isinstance(one, list) and one:
            yield (*path, field.name)
            if attrs.has(type(one[0])):
                yield from _arrays(one[0], (*path, field.name))


DEAR_APIS: Final[tuple[str, ...]] = tuple(
    sorted({api.name for api, _ in REQUESTS if next(_arrays(sensible(api)), None)})
)
"""All APIs that have an array."""


def _grown(value: Any, path: tuple[str, ...], count: int, distinct: bool) -> Any:
    """The request with `count` copies of the first item of the array at `path`."""
    items = getattr(value, path[0])
    if len(path) > 1:
        return attrs.evolve(value, **{path[0]: [_grown(items[0], path[1:], count, distinct)]})
    bits = _bits(value, path[0])
    more = [_other(items[0], at % (1 << bits)) if distinct else items[0] for at in range(count)]
    return attrs.evolve(value, **{path[0]: more})


def _bits(value: Any, name: str) -> int:
    """How many different values a plain item of this array can have, as bits."""
    [spec] = [field.spec for field in fields_of(type(value)) if field.name == name]
    return 7 if spec.element is not None and spec.element.kind is Kind.INT8 else 31


def _other(item: Any, at: int) -> Any:
    """An item with different names or ids."""
    if isinstance(item, str):
        return f"{item}{at}"
    if isinstance(item, int):
        return at
    values = {field.name: getattr(item, field.name) for field in attrs.fields(type(item))}
    for kind in (str, int):
        for name, value in values.items():
            if type(value) is kind:
                values[name] = _other(value, at)
                return type(item)(**values)  # attrs.evolve takes three times as long
    return item
