"""The decoding helper: every bad input raises the caller's error, and nothing deep reaches the library."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilcast.core.outbox import decode_record
from veilcast.core.publication import NumberedPublication, decode_publication
from veilcast.decoding import (
    DEPTH_MAX,
    JsonDecoder,
    MsgpackDecoder,
    check_json_depth,
    check_msgpack_depth,
    is_closed,
    read_toml,
)
from veilcast.errors import ConfigError, ForgedError, LocalError, MalformedError, TamperedError
from veilcast.foil.foiler import unpack_states
from veilcast.machine import Publication
from veilcast.net import control_protocol

NESTS = [1_000, 1_500, 5_000, 32_000]
HEAD = b"\x93\xc4\x08streamno\x01"
"""A `NumberedPublication` up to its publication."""


def poison(levels: int) -> bytes:
    """A content whose publication has a key that is unknown, and under it a deep nest."""
    return HEAD + b"\x83\xa5pairs\x90\xa4body\xc4\x00\xa1z" + b"\x91" * levels + b"\x90"


@pytest.mark.parametrize("levels", NESTS)
def test_a_deep_nest_in_a_publication_is_malformed(levels: int) -> None:
    with pytest.raises(MalformedError):
        decode_publication(poison(levels))
    with pytest.raises(TamperedError):
        decode_record(b"\x91\x92\xa5topic" + poison(levels))


@pytest.mark.parametrize("levels", NESTS)
def test_a_deep_nest_on_the_control_socket_is_malformed(levels: int) -> None:
    nest = b"\x91" * levels + b"\x90"
    for body in (
        b"\x92\x01\x82\xa1z" + nest + b"\xa4type\xa4Stop",
        b"\x92\x01\x82\xa4type\xa7Publish\xabpublication\x81\xa1z" + nest,
    ):
        with pytest.raises(MalformedError):
            control_protocol._REQUESTS.decode(body)
        with pytest.raises(MalformedError):
            control_protocol._ANSWERS.decode(body)


@pytest.mark.parametrize("levels", NESTS)
def test_a_deep_nest_in_the_state_of_a_generator_is_damage(levels: int) -> None:
    with pytest.raises(TamperedError):
        unpack_states(b"\x91" * levels + b"\x90")


def test_a_publication_with_an_unknown_key_is_malformed() -> None:
    with pytest.raises(MalformedError):
        decode_publication(HEAD + b"\x83\xa5pairs\x90\xa4body\xc4\x00\xa1z\x01")


def test_publications_stored_so_far_are_still_read() -> None:
    """The bytes that were written before unknown keys were refused."""
    stored = HEAD + b"\x82\xa5pairs\x91\x92\xa4temp\x15\xa4body\xc4\x01x"
    assert decode_publication(stored) == NumberedPublication(b"streamno", 1, Publication((("temp", 21),), b"x"))
    assert decode_publication(HEAD + b"\x81\xa5pairs\x90").publication == Publication(())


class Tolerant(msgspec.Struct):
    number: int = 0


class Closed(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    number: int = 0
    words: tuple[str, ...] = ()


class First(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    number: int = 0


class Second(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    number: int = 0


class Chained(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    rest: Chained | None = None


@pytest.mark.parametrize("kind", [Tolerant, Any, msgspec.Raw, list[Any], First | Second, Chained, dict[str, Tolerant]])
def test_a_type_that_lets_the_library_recurse_is_open(kind: Any) -> None:
    assert not is_closed(kind)


@pytest.mark.parametrize("kind", [Closed, First, int | None, dict[str, list[Closed]], Publication, Closed | None])
def test_a_type_that_bounds_the_depth_is_closed(kind: Any) -> None:
    assert is_closed(kind)


class Picky(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        raise RAISED[self.number]


RAISED: list[Exception] = [
    LocalError("x"),
    ForgedError("x"),
    OverflowError(),
    KeyError(),
    MemoryError(),
    RecursionError(),
]


@pytest.mark.parametrize("number", range(6))
def test_every_exception_of_a_struct_becomes_the_error_that_the_caller_named(number: int) -> None:
    data = msgspec.msgpack.encode({"number": number})
    with pytest.raises(MalformedError, match=r"^nothing of ours$"):
        MsgpackDecoder(Picky, MalformedError, "nothing of ours").decode(data)


def test_every_exception_of_a_hook_becomes_the_error_that_the_caller_named() -> None:
    def hook(kind: type, value: Any) -> Any:
        raise ZeroDivisionError

    with pytest.raises(TamperedError, match=r"^damaged$"):
        MsgpackDecoder(complex, TamperedError, "damaged", hook=hook).decode(b"\x01")


def test_more_bytes_than_are_allowed_are_refused() -> None:
    decoder = MsgpackDecoder(bytes, MalformedError, "too long", size_max=4)
    assert decoder.decode(b"\xc4\x02ab") == b"ab"
    with pytest.raises(MalformedError, match="too long"):
        decoder.decode(b"\xc4\x03abc")
    with pytest.raises(ConfigError, match=r"^f is too long: it has more than 4 bytes"):
        JsonDecoder(int, ConfigError, "is too long", size_max=4).decode(b"12345", "f")


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


@pytest.mark.parametrize("pad", [0, 50])
def test_the_depth_that_is_allowed_is_exact(pad: int) -> None:
    packed: MsgpackDecoder[Any] = MsgpackDecoder(Any, MalformedError, "deep")
    spelled: JsonDecoder[Any] = JsonDecoder(Any, MalformedError, "deep")
    for levels, deep in ((DEPTH_MAX - 1, False), (DEPTH_MAX, True)):
        with pytest.raises(MalformedError) if deep else contextlib.nullcontext():
            assert packed.decode(msgspec.msgpack.encode([b"\x91" * pad, nested(levels)]))[1] == nested(levels)
        text = msgspec.json.encode(["[" * pad + '"', nested(levels)])
        with pytest.raises(MalformedError) if deep else contextlib.nullcontext():
            assert spelled.decode(text)[1] == nested(levels)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.binary() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(0, DEPTH_MAX + 8))
def test_the_scan_finds_the_depth_of_the_written_value(value: Any, more: int) -> None:
    for _ in range(more):
        value = [1, value, b"\x91" * 40]
    deep = depth(value) > DEPTH_MAX
    for check, data in ((check_msgpack_depth, msgspec.msgpack.encode(value)),):
        if deep:
            with pytest.raises(ValueError, match="levels"):
                check(data)
        else:
            check(data)


@given(VALUES, st.integers(0, DEPTH_MAX + 8))
def test_the_scan_of_json_agrees_too(value: Any, more: int) -> None:
    for _ in range(more):
        value = [1, value, '[[\\"[{']
    data = msgspec.json.encode(value)
    if depth(value) > DEPTH_MAX:
        with pytest.raises(ValueError, match="levels"):
            check_json_depth(data)
    else:
        check_json_depth(data)


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_are_the_error_that_the_caller_named(data: bytes) -> None:
    for decoder in (
        MsgpackDecoder(Any, MalformedError, "x"),
        MsgpackDecoder(First | Second, MalformedError, "x"),
        JsonDecoder(Any, MalformedError, "x"),
    ):
        try:
            decoder.decode(data)
        except MalformedError:
            continue


@given(st.binary(min_size=1, max_size=8), st.integers(1, 1 << 16))
def test_no_repeated_pattern_exhausts_the_stack_of_the_library(unit: bytes, times: int) -> None:
    """The scan is what stops it, and not the library's own limit: with 3.12 and later that one may come too late."""
    for decoder in (MsgpackDecoder(Any, MalformedError, "x"), MsgpackDecoder(Tolerant, MalformedError, "x")):
        causes: list[BaseException | None] = []
        try:
            decoder.decode((unit * times)[: 1 << 16])
        except MalformedError as error:
            causes.append(error.__cause__)
        assert not any(isinstance(cause, RecursionError) for cause in causes)


@pytest.mark.parametrize(
    "toml",
    [b"a = " + b"[" * 5_000 + b"]" * 5_000, b"\xff", b"a = ", b"a = nan\na = 1", b"a" + b".a" * 2_000 + b" = 1"],
)
def test_a_bad_toml_file_is_an_error_of_its_configuration(toml: bytes) -> None:
    with pytest.raises(ConfigError, match=r"node\.toml: not a TOML file: "):
        read_toml(toml, "node.toml")


def test_a_string_of_json_that_does_not_end_is_read_once() -> None:
    """Quadratic work would take hours here."""
    check_json_depth(b'"' + b'\\"' * 5_000_000 + b"[" * 100)
