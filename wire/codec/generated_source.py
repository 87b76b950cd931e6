"""The source of a generated function: its lines, and for each line the field that it handles."""

import itertools
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Collects lines of Python with their indentation, and the objects those lines refer to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.paths: list[str] = []
        self._indent = 0
        self._numbers = itertools.count(1)
        self._namespace: dict[str, object] = {}
        self._structs: dict[tuple[str, str], str] = {}

    def line(self, text: str, path: str = "") -> None:
        self.lines.append("    " * self._indent + text)
        self.paths.append(path)

    @contextmanager
    def block(self, head: str, path: str = "") -> Iterator[None]:
        """A compound statement: `head`, and as its body the lines added inside the `with`."""
        self.line(head, path)
        self._indent += 1
        yield
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        """A new local name."""
        return f"{prefix}{next(self._numbers)}"

    def constant(self, prefix: str, value: object) -> str:
        """A new global name for `value`, for use in generated lines."""
        name = self.fresh(prefix + "_")
        self._namespace[name] = value
        return name

    def named(self, **values: object) -> None:
        self._namespace.update(values)

    def unpacker(self, formats: str) -> tuple[str, int]:
        """The name of `Struct(formats).unpack_from`, and how many bytes it reads."""
        return self._struct_method(formats, "unpack_from")

    def packer(self, formats: str) -> tuple[str, int]:
        return self._struct_method(formats, "pack")

    def _struct_method(self, formats: str, method: str) -> tuple[str, int]:
        compiled = struct.Struct(">" + formats)
        key = (formats, method)
        if key not in self._structs:
            self._structs[key] = self.constant(method, getattr(compiled, method))
        return self._structs[key], compiled.size

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        """Execute the lines, which define `function`, and return it."""
        code = compile("\n".join(self.lines) + "\n", f"<wire codec: {title}>", "exec")
        exec(code, self._namespace)  # noqa: S102  generated from our own schema, never from input
        made = self._namespace[function]
        assert callable(made)
        return made
