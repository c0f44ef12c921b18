"""Targets with planted bugs, which the fuzzer must find. They have a table of their own."""

from __future__ import annotations

import msgspec

from support.fuzz.fuzz_target import Format, Group, Prepared
from veilcast.errors import MalformedError

GROUP = Group()


class Keyed(msgspec.Struct):
    """Skips unknown fields, however deep they are."""

    number: int = 0


class Pair(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    index: int
    values: list[int]


def _read(data: bytes, kind: type[msgspec.Struct]) -> object:
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError("planted") from error


@GROUP.target("planted-none", "no bug")
def planted_none() -> Prepared:
    return Prepared(lambda data: msgspec.json.encode(data.hex()), (), [b"a"])


@GROUP.target("planted-nest", "a deep unknown field is skipped recursively")
def planted_nest() -> Prepared:
    example = msgspec.msgpack.encode(Keyed(1))
    return Prepared(lambda data: _read(data, Keyed), (MalformedError,), [example], Format.MSGPACK, (b"\x81\xa1z",))


@GROUP.target("planted-boundary", "an index is off by one at the end of a list")
def planted_boundary() -> Prepared:
    def check(data: bytes) -> object:
        pair = _read(data, Pair)
        assert isinstance(pair, Pair)
        if 0 <= pair.index <= len(pair.values):
            return pair.values[pair.index]
        raise MalformedError("out of bounds")

    example = msgspec.msgpack.encode(Pair(0, [1, 2]))
    return Prepared(check, (MalformedError,), [example], Format.MSGPACK)


@GROUP.target("planted-late", "a value deep in a message is divided by")
def planted_late() -> Prepared:
    def check(data: bytes) -> object:
        pair = _read(data, Pair)
        assert isinstance(pair, Pair)
        return sum(100 // value for value in pair.values[1:])

    example = msgspec.msgpack.encode(Pair(0, [1, 2, 3, 4, 5]))
    return Prepared(check, (MalformedError,), [example], Format.MSGPACK)


@GROUP.target("planted-roundtrip", "two encodings of one value are taken")
def planted_roundtrip() -> Prepared:
    def check(data: bytes) -> object:
        pair = _read(data, Pair)
        assert msgspec.msgpack.encode(pair) == data, "two encodings"
        return pair

    example = msgspec.msgpack.encode(Pair(0, [1, 2]))
    return Prepared(check, (MalformedError,), [example], Format.MSGPACK)


@GROUP.target("planted-broken", "cannot be prepared")
def planted_broken() -> Prepared:
    raise OSError("no such target")
