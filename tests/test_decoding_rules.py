"""The rules of decoding, executed: one module builds decoders, and their types forbid unknown fields."""

from __future__ import annotations

import ast
import gc
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from veilcast import decoding
from veilcast.authority import struct_codec
from veilcast.decoding import DEPTH_MAX, JsonDecoder, MsgpackDecoder, is_closed
from veilcast.errors import TamperedError

SOURCE = Path(decoding.__file__).parent
MODULES = sorted(SOURCE.rglob("*.py"))
ALLOWED = {"encode", "Encoder", "format"}
"""The names of the library's modules that other files may use: those that write."""
CODECS = ("msgspec.msgpack", "msgspec.json", "msgspec.toml", "msgspec.yaml")
READERS = ("json.loads", "json.load", "json.decoder", "json.JSONDecoder", "tomllib", "pickle", "marshal", "shelve")


def breaches(source: str) -> list[str]:
    """Every name in a module that stands for a decoder of a library."""
    tree = ast.parse(source)
    names: dict[str, str] = {}
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                found += _judge(alias.name) if alias.name not in CODECS or alias.asname is None else []
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                names[alias.asname or alias.name] = path
                found += [] if path in CODECS else _judge(path)
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if id(node) not in inner:
            head, _, rest = _dotted(node).partition(".")
            if head in names:
                found += _judge(names[head] + (f".{rest}" if rest else ""))
    return found


def _dotted(node: ast.AST) -> str:
    """The dotted name; None if it is not a chain of names, such as an attribute of a returned value."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _judge(path: str) -> list[str]:
    if any(path == reader or path.startswith(f"{reader}.") for reader in READERS):
        return [path]
    for codec in CODECS:
        if path == codec or (path.startswith(f"{codec}.") and path.split(".")[2] not in ALLOWED):
            return [path]
    return []


def test_only_one_module_decodes() -> None:
    found = {str(path.relative_to(SOURCE)): breaches(path.read_text()) for path in MODULES}
    assert [name for name, calls in found.items() if calls] == ["decoding.py"], f"use veilcast.decoding: {found}"


@pytest.mark.parametrize(
    "breach",
    [
        "import msgspec\nd = msgspec.msgpack.Decoder(int)",
        "import msgspec\nd = msgspec.msgpack.decode(b'')",
        "import msgspec\nd = msgspec.json.decode(b'')",
        "import msgspec\nd: msgspec.json.Decoder[int]",
        "import msgspec\nd = msgspec.toml.decode(b'')",
        "import msgspec\nd = msgspec.yaml.decode(b'')",
        "import msgspec as m\nd = m.msgpack.decode(b'')",
        "from msgspec import msgpack\nd = msgpack.decode(b'')",
        "from msgspec import json as j\nd = j.Decoder(int)",
        "from msgspec.msgpack import Decoder",
        "import msgspec.msgpack as mp\nd = mp.decode(b'')",
        "import msgspec\ncodec = msgspec.msgpack\nd = codec.decode(b'')",
        "import json\nd = json.loads('')",
        "import json as j\nd = j.load(f)",
        "from json import loads",
        "from json import JSONDecoder as D",
        "import tomllib",
        "from tomllib import loads",
        "import pickle",
        "from marshal import loads",
        "def f():\n  import json\n  return json.loads('')",
    ],
)
def test_the_rule_catches_each_planted_decoder(breach: str) -> None:
    assert breaches(breach)


@pytest.mark.parametrize(
    "fine",
    [
        "import msgspec\ne = msgspec.msgpack.Encoder()\nx = msgspec.json.encode(1)",
        "import json\nx = json.dumps(1)",
        "import msgspec\nx = msgspec.convert({}, int)",
        "x = data.decode()",
        "from msgspec import Meta, field",
        "import msgspec\nx = msgspec.json.format(b'')",
    ],
)
def test_the_rule_accepts_code_that_writes(fine: str) -> None:
    assert breaches(fine) == []


def decoders() -> list[MsgpackDecoder[Any] | JsonDecoder[Any]]:
    """All that any module holds, with those that the authority makes when it first reads a kind of file."""
    for path in MODULES:
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        importlib.import_module(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    found = [each for each in gc.get_objects() if isinstance(each, MsgpackDecoder | JsonDecoder)]
    return [each for each in found if _is_ours(each.kind)]


def _is_ours(kind: Any) -> bool:
    """Other tests make decoders of types of their own."""
    return all(struct.cls.__module__.startswith("veilcast.") for struct in structs(inspect.type_info(kind)))


def structs(info: inspect.Type, seen: tuple[type, ...] = ()) -> Iterator[inspect.StructType]:
    """Every struct that a value of this type can contain."""
    match info:
        case inspect.StructType(cls=cls, fields=fields):
            yield info
            if cls not in seen:
                for field in fields:
                    yield from structs(field.type, (*seen, cls))
        case inspect.UnionType(types=types) | inspect.TupleType(item_types=types):
            for each in types:
                yield from structs(each, seen)
        case inspect.DictType(key_type=key, value_type=value):
            yield from structs(key, seen)
            yield from structs(value, seen)
        case inspect.CollectionType(item_type=item):
            yield from structs(item, seen)


def tolerant(kind: Any) -> set[str]:
    """The structs of a type that take unknown fields."""
    return {struct.cls.__name__ for struct in structs(inspect.type_info(kind)) if not struct.forbid_unknown_fields}


def test_no_struct_that_arrives_or_is_stored_takes_unknown_fields() -> None:
    found = decoders()
    assert len(found) > 60
    assert {name for each in found for name in tolerant(each.kind)} == set()


class _Tolerant(msgspec.Struct):
    number: int


class _Holder(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    inner: dict[str, tuple[_Tolerant, ...]] | None


def test_the_rule_finds_a_planted_struct_that_takes_unknown_fields() -> None:
    assert tolerant(list[_Holder]) == {"_Tolerant"}


def test_kinds_of_authority_files_are_among_those_that_are_looked_at() -> None:
    from veilcast.authority import bulletin, issuer, keyring, request, topic_record

    kinds = {"Authority": issuer, "Keyring": keyring, "PendingRequest": request, "Request": request, "Reply": request}
    kinds |= {"Bulletin": bulletin, "TopicRecord": topic_record}
    assert kinds.keys() == struct_codec.MAGIC_OF.keys()
    for name, module in kinds.items():
        assert tolerant(getattr(module, name)) == set()


def test_where_nothing_is_scanned_the_library_cannot_be_made_to_recurse() -> None:
    """Deep nests stand in the place of elements. `RecursionError` of the bare library would show that it went in."""
    closed = [each for each in decoders() if isinstance(each, MsgpackDecoder) and is_closed(each.kind)]
    assert len(closed) > 50
    nest = b"\x91" * 5_000 + b"\x90"
    for each in closed:
        for data in _with_nests(nest):
            with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
                each._decoder.decode(data)


def _with_nests(nest: bytes) -> Iterator[bytes]:
    yield nest
    for count in range(1, 16):
        for first in (b"\x01", b"\xa0", b"\xc4\x20" + bytes(32), b"\xc4\x08" + bytes(8), b"\xc0"):
            yield bytes((0x90 + count,)) + first + nest
            yield bytes((0x90 + count,)) + first * (count - 1) + nest
    yield b"\x81\xa1z" + nest
    yield b"\x81" + nest
    yield b"\x82\xa4type\xa1z\xa1z" + nest


class _Tagged(msgspec.Struct, tag=True, forbid_unknown_fields=True):
    number: int


class _Listed(msgspec.Struct, tag=True, array_like=True, forbid_unknown_fields=True):
    number: int


@pytest.mark.parametrize(("kind", "data"), [(_Tagged, b'{"type":'), (_Tagged | None, b'{"type":'), (_Listed, b"")])
def test_json_with_a_nest_in_the_place_of_a_tag_does_not_reach_the_library(kind: Any, data: bytes) -> None:
    """The library skips what stands there, to say where the wrong tag is, and recurses."""
    nest = data + b"[" * 5_000
    with pytest.raises(RecursionError):
        msgspec.json.decode(nest, type=kind)
    with pytest.raises(TamperedError, match="levels"):
        JsonDecoder(kind, TamperedError, "no value").decode(nest)


def test_the_same_nests_reach_the_library_where_it_is_not_closed() -> None:
    """The control: the test above notices a type that is closed by mistake."""
    nest = b"\x91" * 5_000 + b"\x90"
    with pytest.raises(RecursionError):
        msgspec.msgpack.decode(b"\x81\xa1z" + nest, type=_Tolerant)
    assert DEPTH_MAX < 100
