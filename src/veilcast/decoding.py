"""The one place where bytes of other nodes, or of a disk, become values: MessagePack, JSON and TOML.

No other module builds or calls a decoder (`tests/test_decoding_rules.py`). A caller names the type, the error that says
whose fault bad bytes are, and the error's text.

1. `decode` raises that error and no other. Every exception of the library, of a hook or of a `__post_init__` becomes
   it: `DecodeError`, `UnicodeDecodeError`, `RecursionError`, `OverflowError`, `MemoryError`, errors of ours.
2. The size is checked first.
3. The depth is checked before the library parses, so the stack of C cannot overflow in any version of Python. msgspec
   recurses once for each level of a value that it reads as `Any` or skips. It skips the fields that a struct does not
   know, and everything before the tag in a union of structs that are maps. If the type has none of these (`is_closed`),
   the type itself bounds the depth, and nothing is scanned. Otherwise one linear pass over the bytes checks the depth.

An error of a MessagePack decoder never quotes the bytes, which may be secret. An error of a JSON or TOML file says what
is wrong and where, for the person who wrote the file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Generic, TypeAlias, TypeVar, overload

import msgspec
from msgspec import inspect

from veilcast.errors import ConfigError, VeilcastError

T = TypeVar("T")
Hook: TypeAlias = Callable[[type, Any], Any]
"""Makes a value of a type that msgspec does not know, from the value it read. Raises if the value does not fit."""


class MsgpackDecoder(Generic[T]):
    """Reads MessagePack bytes as values of one type."""

    @overload
    def __init__(
        self: MsgpackDecoder[T],
        kind: type[T],
        blame: type[VeilcastError],
        text: str,
        size_max: int = ...,
        hook: Hook | None = ...,
    ) -> None: ...

    @overload
    def __init__(
        self: MsgpackDecoder[Any],
        kind: Any,
        blame: type[VeilcastError],
        text: str,
        size_max: int = ...,
        hook: Hook | None = ...,
    ) -> None: ...

    def __init__(
        self, kind: Any, blame: type[VeilcastError], text: str, size_max: int = 0, hook: Hook | None = None
    ) -> None:
        self.kind, self._blame, self._text = kind, blame, text
        self._size_max = size_max or SIZE_MAX
        self._decoder: msgspec.msgpack.Decoder[T] = msgspec.msgpack.Decoder(kind, dec_hook=hook)

    def decode(self, data: bytes | memoryview) -> T:
        if len(data) > self._size_max:
            raise self._blame(self._text)
        try:
            if len(data) > DEPTH_MAX and not self._closed:
                check_msgpack_depth(data)
            return self._decoder.decode(data)
        except Exception as error:
            raise self._blame(self._text) from error

    @cached_property
    def _closed(self) -> bool:
        return is_closed(self.kind)


class JsonDecoder(Generic[T]):
    """Reads JSON as values of one type. The text of its error begins with `where`, and ends with the defect."""

    @overload
    def __init__(
        self: JsonDecoder[T], kind: type[T], blame: type[VeilcastError], text: str, size_max: int = ...
    ) -> None: ...

    @overload
    def __init__(
        self: JsonDecoder[Any], kind: Any, blame: type[VeilcastError], text: str, size_max: int = ...
    ) -> None: ...

    def __init__(self, kind: Any, blame: type[VeilcastError], text: str, size_max: int = 0) -> None:
        self.kind, self._blame, self._text = kind, blame, text
        self._size_max = size_max or SIZE_MAX
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decode(self, data: bytes | str, where: object = "") -> T:
        value: T = self._read(self._decoder.decode, data, where)
        return value

    def decode_lines(self, data: bytes, where: object = "") -> list[T]:
        """A value for each line."""
        values: list[T] = self._read(self._decoder.decode_lines, data, where)
        return values

    def _read(self, decode: Callable[[bytes | str], Any], data: bytes | str, where: object) -> Any:
        text = f"{where} {self._text}".lstrip()
        if len(data) > self._size_max:
            raise self._blame(f"{text}: it has more than {self._size_max:,} bytes")
        try:
            if len(data) > DEPTH_MAX and not self._closed:
                check_json_depth(data.encode() if isinstance(data, str) else data)
            return decode(data)
        except Exception as error:
            raise self._blame(f"{text}: {error}") from error

    @cached_property
    def _closed(self) -> bool:
        return is_closed(self.kind, tags=False)


def read_toml(data: bytes, where: object) -> dict[str, Any]:
    """Read a TOML file as a table; `msgspec.convert` makes a typed value of it.

    Raises `ConfigError` for other bytes.
    """
    if len(data) > SIZE_MAX:
        raise ConfigError(f"{where}: not a TOML file: it has more than {SIZE_MAX:,} bytes")
    try:
        table = tomllib.loads(data.decode())
        _check_table_depth(table)
    except Exception as error:
        raise ConfigError(f"{where}: not a TOML file: {error}") from error
    return table


def is_closed(kind: Any, *, tags: bool = True) -> bool:
    """True if the type bounds how deep msgspec recurses, whatever the bytes are.

    `tags`: a tag bounds it. In MessagePack it does; in JSON msgspec skips a wrong tag, with everything in it.
    """
    return _is_closed(inspect.type_info(kind), (), tags)


def _is_closed(info: inspect.Type, within: tuple[type, ...], tags: bool) -> bool:
    match info:
        case inspect.StructType(cls=cls, fields=fields, tag=tag):
            if cls in within or not info.forbid_unknown_fields or (tag is not None and not tags):
                return False
            return all(_is_closed(field.type, (*within, cls), tags) for field in fields)
        case inspect.UnionType(types=types):
            maps = sum(isinstance(each, inspect.StructType) and not each.array_like for each in types)
            return maps <= 1 and all(_is_closed(each, within, tags) for each in types)
        case inspect.TupleType(item_types=types):
            return all(_is_closed(each, within, tags) for each in types)
        case inspect.DictType(key_type=key, value_type=value):
            return _is_closed(key, within, tags) and _is_closed(value, within, tags)
        case inspect.CollectionType(item_type=item):
            return _is_closed(item, within, tags)
        case _:
            return isinstance(info, _SCALARS)


def check_msgpack_depth(data: bytes | memoryview) -> None:
    """Raise `ValueError` for MessagePack bytes with more than `DEPTH_MAX` levels. Bytes that end early are fine here.

    One step for each element, not for each byte: strings are skipped by their length.
    """
    at, size, left = 0, len(data), 1
    outer: list[int] = []
    while at < size:
        while not left:
            if not outer:
                return
            left = outer.pop()
        left -= 1
        first = data[at]
        step = _STEP[first]
        if step > 0:
            at += step
            continue
        if step < 0:
            # A string, with its length in the next bytes.
            at += 1 - step + _EXTRA[first] + int.from_bytes(data[at + 1 : at + 1 - step], "big")
            continue
        if first < 0xA0:
            count, at = (first & 0x0F) << (first < 0x90), at + 1
        else:
            width = 2 if first in (0xDC, 0xDE) else 4
            count = int.from_bytes(data[at + 1 : at + 1 + width], "big") << (first >= 0xDE)
            at += 1 + width
        outer.append(left)
        if len(outer) > DEPTH_MAX:
            raise ValueError(f"more than {DEPTH_MAX} levels")
        left = count


def check_json_depth(data: bytes) -> None:
    """Raise `ValueError` for JSON with more than `DEPTH_MAX` levels, in one pass."""
    if data.count(b"[") + data.count(b"{") <= DEPTH_MAX:
        return
    depth = 0
    for token in _JSON_TOKENS.finditer(data):
        match data[token.start()]:
            case 0x5B | 0x7B:
                depth += 1
                if depth > DEPTH_MAX:
                    raise ValueError(f"more than {DEPTH_MAX} levels")
            case 0x5D | 0x7D:
                depth -= 1


def _check_table_depth(table: dict[str, Any]) -> None:
    """A dotted key makes a table for each dot, in a loop of the parser; the code that converts the tables recurses."""
    level: list[Any] = [table]
    for _ in range(DEPTH_MAX):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"more than {DEPTH_MAX} levels")


DEPTH_MAX: Final = 32
"""Levels of arrays and maps. No value of ours has more than about ten."""
SIZE_MAX: Final = 1 << 27
"""Bytes; the bound for callers that have no closer one."""

_SCALARS: Final = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.StrType,
    inspect.BytesType,
    inspect.LiteralType,
    inspect.EnumType,
)
_JSON_TOKENS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|[\[\]{}]', re.DOTALL)


def _step(first: int) -> int:
    """Bytes to the next element; 0 for an array or a map; minus the width of the length for a string."""
    if first <= 0x7F or first >= 0xE0 or first in (0xC0, 0xC1, 0xC2, 0xC3):
        return 1
    if first <= 0x9F:
        return 0
    if first <= 0xBF:
        return 1 + (first & 0x1F)
    return _STEPS[first]


_STEPS: Final = {
    0xC4: -1,
    0xC5: -2,
    0xC6: -4,
    0xC7: -1,
    0xC8: -2,
    0xC9: -4,
    0xD9: -1,
    0xDA: -2,
    0xDB: -4,
    0xCA: 5,
    0xCB: 9,
    0xCC: 2,
    0xCD: 3,
    0xCE: 5,
    0xCF: 9,
    0xD0: 2,
    0xD1: 3,
    0xD2: 5,
    0xD3: 9,
    0xD4: 3,
    0xD5: 4,
    0xD6: 6,
    0xD7: 10,
    0xD8: 18,
    0xDC: 0,
    0xDD: 0,
    0xDE: 0,
    0xDF: 0,
}
_STEP: Final = tuple(map(_step, range(256)))
_EXTRA: Final = tuple(int(first in (0xC7, 0xC8, 0xC9)) for first in range(256))
"""The type of an extension stands between its length and its bytes."""
