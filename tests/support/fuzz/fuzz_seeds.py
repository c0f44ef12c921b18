"""Hostile seeds, made by code: nests, lengths off by one, boundary numbers, invalid text, double keys, cut messages."""

from __future__ import annotations

import msgspec

from support.fuzz.fuzz_script import record
from support.fuzz.fuzz_target import Format, Prepared

DEPTHS = (10, 100, 1_000, 1_500, 30_000)
"""Levels of nests. Python 3.11 gives up at 1,000; C decoders of later versions at some thousands."""

NUMBERS = (0, 1, -1, 127, 128, -32, -33, 255, 256, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, -(1 << 31), 1 << 32)
LARGE = ((1 << 63) - 1, 1 << 63, (1 << 64) - 1, -(1 << 63))
FLOATS = (0.0, -0.0, float("nan"), float("inf"), float("-inf"), 5e-324, 1.7976931348623157e308)
INVALID_UTF8 = (b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\x00b")

EMPTY: tuple[object, ...] = (None, True, False, "", b"", "a", b"a", [], {})

SCALARS = [
    *(msgspec.msgpack.encode(number) for number in (*NUMBERS, *LARGE)),
    *(msgspec.msgpack.encode(number) for number in FLOATS),
    *(msgspec.msgpack.encode(value) for value in EMPTY),
    b"\xca\x7f\xc0\x00\x00",  # NaN in four bytes
    b"\xcf" + bytes(8),  # zero in nine bytes
    *(bytes((0xA0 | len(text),)) + text for text in INVALID_UTF8),
    b"\xc1",  # never used
    b"\xd4\x01\x00",  # extension
    b"\xd6\xff\xff\xff\xff\xff",  # timestamp
    b"\xd7\xff" + b"\xff" * 8,
    b"\xc7\x0c\xff" + b"\xff" * 12,
]
"""MessagePack values at the edges of their types."""

TRUNCATED_HEADS = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]
"""An array, a map, bytes and a text that announce four billion items."""

JSON_TOKENS = [
    "null", "true", "false", "0", "-1", "-0", "1e400", "1e-400", "2147483648", "4294967296", "9223372036854775808",
    "18446744073709551615", "18446744073709551616", "1" * 400, "NaN", "Infinity", "-Infinity", "0.1", '""', '"\\ud800"',
    '"\\u0000"', "[]", "{}", "[", "]", "{", "}", ",", ":", '"a"', '{"a":1,"a":2}', "\ufeff",
]  # fmt: skip
TOML_TOKENS = [
    "true", "false", "0", "-1", "2147483648", "9223372036854775808", "18446744073709551616", "1e400", "nan", "inf",
    "-inf", '""', "''", '"""', "[]", "{}", "[", "]", "[[", "]]", "{", "}", "=", ",", "\n", "#", "a", "a.b", '"a"',
    "1979-05-27", "07:32:00", "1979-05-27T07:32:00Z", "0x7fffffffffffffff", '"\\uD800"', '"\\u0000"', "\ufeff",
]  # fmt: skip


def seeds(prepared: Prepared) -> list[bytes]:
    """All inputs that a target receives before any mutation: valid, cut, and hostile ones."""
    found = [b"", *prepared.examples]
    for example in prepared.examples[:40]:
        found += [example[:-1], example[: len(example) // 2], example[:1], example + b"\0", example + example]
    found += [prefix + inner for inner in hostile(prepared.format) for prefix in prepared.prefixes]
    return list(dict.fromkeys(found))


def hostile(form: Format) -> list[bytes]:
    match form:
        case Format.MSGPACK:
            return [*msgpack_nests(), *SCALARS, *TRUNCATED_HEADS, *_map_seeds()]
        case Format.JSON:
            return [*_text_nests("[", "]"), *_text_nests('{"a":', "}"), *(word.encode() for word in JSON_TOKENS)]
        case Format.TOML:
            keys = [f"a = {word}\n".encode() for word in TOML_TOKENS]
            return [*keys, b"a = 1\na = 2\n", *(b"a = " + nest for nest in _text_nests("[", "]")), *_tables()]
        case Format.SCRIPT:
            return [record(inner, 0) for inner in (b"", *SCALARS)]
        case Format.BYTES:
            return [*(bytes(size) for size in (1, 2, 4, 8, 64)), *(b"\xff" * size for size in (1, 2, 4, 8, 64))]


def msgpack_nests() -> list[bytes]:
    """Arrays in arrays and maps in maps, whole and cut before their middle."""
    shells = (b"\x91", b"\x81\xa1a", b"\xdc\x00\x01", b"\x92\xc0")
    return [shell * depth + tail for shell in shells for depth in DEPTHS for tail in (b"\xc0", b"")]


def _map_seeds() -> list[bytes]:
    """Maps with double keys, keys that cannot be hashed, and keys that are numbers."""
    return [b"\x82\xa1a\x01\xa1a\x02", b"\x81\x90\x01", b"\x81\x80\x01", b"\x81\x01\x01", b"\x81\xc0\xc0"]


def _text_nests(opening: str, closing: str) -> list[bytes]:
    return [(opening * depth + inner).encode() for depth in DEPTHS for inner in ("", "1" + closing * depth)]


def _tables() -> list[bytes]:
    """TOML tables nested by dotted keys and by inline tables.

    The library's time grows with the square of the number of parts of a dotted key: 30,000 parts take many seconds.
    """
    dotted = [("a." * depth + "a = 1\n").encode() for depth in DEPTHS[:-1]]
    headed = [("[" + "a." * depth + "a]\n").encode() for depth in DEPTHS[:-1]]
    inline = [("a = " + "{a = " * depth + "1" + "}" * depth).encode() for depth in DEPTHS]
    return [*dotted, *headed, *inline]
