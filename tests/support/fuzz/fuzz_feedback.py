"""Coverage for parsers that are compiled: the outcome of a parse chooses one of many small instrumented functions.

msgspec decodes in C, which the fuzzer does not see: a decoder looks the same for all inputs, so the corpus never grows.
The text of an error shows where and why the decoder stopped ("Expected `int`, got `str` - at `$[1][...]`"), and the
shape of a value shows which branches it took. Each text and each shape picks one of `EDGES` functions; each function is
an edge.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

EDGES = 1024


def count_refusal(error: Exception) -> None:
    """Count the error text of a refused input."""
    cause = error.__cause__
    text = f"{type(error).__name__}{error}{type(cause).__name__}{cause}"
    _hit(_NUMBER.sub("#", text[:400]))


def count_shape(result: Any) -> None:
    """Count the shape of a parsed value."""
    if result is not None:
        _hit(_shape(result, 4))


def use(instrument: Callable[[Callable[[], None]], Callable[[], None]]) -> None:
    """Let a fuzzer instrument the edges."""
    _EDGES[:] = [instrument(edge) for edge in _EDGES]


def _hit(text: str) -> None:
    _EDGES[zlib.crc32(text.encode("utf-8", "replace")) % EDGES]()


def _shape(value: Any, depth: int) -> str:
    """Types and magnitudes without values: two messages that differ in a key have the same shape."""
    kind = type(value)
    if kind is int:
        return f"i{value.bit_length() // 8}{'-' * (value < 0)}"
    if kind in (bytes, str):
        return f"{kind.__name__}{len(value).bit_length()}"
    if depth and isinstance(value, msgspec.Struct):
        inner = [_shape(getattr(value, name), depth - 1) for name in value.__struct_fields__]
        return f"{kind.__name__}({','.join(inner)})"
    if depth and kind in (tuple, list):
        inner = [_shape(each, depth - 1) for each in value[:4]]
        return f"{len(value).bit_length()}[{','.join(inner)}]"
    return kind.__name__


def _make() -> list[Callable[[], None]]:
    made: dict[str, Any] = {}
    # One function each from its own text: a shared code object would be one edge.
    exec("".join(f"def edge{number}():\n    return None\n" for number in range(EDGES)), made)
    return [made[f"edge{number}"] for number in range(EDGES)]


_NUMBER = re.compile(r"[0-9]+")
_EDGES = _make()
