"""The cache in front of the schema compiler: each (class, version) is compiled at its first use.

That takes about half a millisecond; a process that cannot afford it at its first request compiles
the codecs it needs beforehand (`wire.apis.prepare`).
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

from wire.codec.decoding import Decode, make_decoder
from wire.codec.encoding import Encode, make_encoder
from wire.codec.primitives import Buffer

T = TypeVar("T")

_decoders: Final[dict[tuple[type[Any], int, bool], Decode]] = {}
_encoders: Final[dict[tuple[type[Any], int, bool], Encode]] = {}


def decoder(cls: type[T], version: int, flexible: bool) -> Callable[[memoryview, int], T]:
    """A function (view, position) -> message. It raises ProtocolError for malformed bytes, and
    ignores bytes after the message."""
    key = (cls, version, flexible)
    if key not in _decoders:
        _decoders[key] = make_decoder(cls, version, flexible=flexible)
    return _decoders[key]


def encoder(cls: type[T], version: int, flexible: bool) -> Callable[[T, bytearray], list[Buffer]]:
    """A function (message, bytearray to extend) -> chunks; the first chunk is that bytearray."""
    key = (cls, version, flexible)
    if key not in _encoders:
        _encoders[key] = make_encoder(cls, version, flexible=flexible)
    return _encoders[key]
