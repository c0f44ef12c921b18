"""Hypothesis strategies for every message type, made from the types' own annotations, so no type is missing."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from veilcast.crypto.certificate import COVER_MAX, NO_LINEAGE, Certificate, CertificateChain, CertificateKind
from veilcast.crypto.hash_chain import LENGTH_MAX, Anchor
from veilcast.wire import encode
from veilcast.wire.base import Message
from veilcast.wire.brokers import Claim, Routing
from veilcast.wire.codec import TYPE_BYTES
from veilcast.wire.mesh import Candidacy
from veilcast.wire.tree import DirectorySignature, ListedNode

SIZES = 40
"""Long fields are drawn short; the bounds themselves have tests of their own."""


def messages() -> st.SearchStrategy[Message]:
    return st.one_of([of_type(kind) for kind in TYPE_BYTES.values()])


def of_type(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{f.name: _field(f.type) for f in msgspec.structs.fields(kind)})


def beyond(hint: Any) -> Iterator[Any]:
    """Values that a field of this type must not hold: each just past one bound, and one of a type no field has."""
    yield 1.5
    hint, meta = _bounds(hint)
    low, high = meta.get("min_length", 0), meta.get("max_length", 0)
    if hint is int:
        yield from (meta["ge"] - 1, meta["le"] + 1)
    elif hint in (bytes, str):
        one = b"n" if hint is bytes else "n"
        yield from (one * length for length in (low - 1, high + 1) if length >= 0)
    elif get_origin(hint) is tuple:
        yield from ((bad,) for bad in beyond(get_args(hint)[0]))
        yield (b"" if _bounds(get_args(hint)[0])[0] is bytes else "n",) * (high + 1)
    elif type(None) in get_args(hint):
        yield from beyond(get_args(hint)[0])


def with_garbage(message: Message, garbage: bytes) -> Iterator[bytes]:
    """The message's bytes with garbage for each of its elements in turn, and as one more at the end of each array."""
    data = encode(message)
    for tree in _plant_garbage(msgspec.msgpack.decode(data[1:]), msgspec.Raw(garbage)):
        yield data[:1] + msgspec.msgpack.encode(tree)


def _plant_garbage(tree: Any, garbage: msgspec.Raw) -> Iterator[Any]:
    yield garbage
    if isinstance(tree, list):
        yield [*tree, garbage]
        for place, element in enumerate(tree):
            for planted in _plant_garbage(element, garbage):
                yield [*tree[:place], planted, *tree[place + 1 :]]


def _bounds(hint: Any) -> tuple[Any, dict[str, Any]]:
    """A type without its annotations, and the bounds that they set."""
    meta: dict[str, Any] = {}
    if hasattr(hint, "__metadata__"):
        for entry in hint.__metadata__:
            meta |= {n: v for n in ("min_length", "max_length", "ge", "le") if (v := getattr(entry, n)) is not None}
        hint = hint.__origin__
    return hint, meta


def _field(hint: Any) -> st.SearchStrategy[Any]:
    hint, meta = _bounds(hint)
    low, high = meta.get("min_length", 0), meta.get("max_length", SIZES)
    high = max(low, min(high, SIZES))
    if hint is bytes:
        return st.binary(min_size=low, max_size=high)
    if hint is str:
        return st.text(min_size=low, max_size=high)
    if hint is bool:
        return st.booleans()
    if hint is int:
        return st.integers(meta["ge"], meta["le"])
    if hint is Anchor:
        return ANCHORS
    if hint is CertificateChain:
        return CHAINS
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return st.sampled_from(list(hint))
    if hint in (ListedNode, DirectorySignature, Routing, Claim):
        return st.builds(hint, **{f.name: _field(f.type) for f in msgspec.structs.fields(hint)})
    if hint is Candidacy:
        return st.builds(Candidacy, CHAINS, st.binary(min_size=32, max_size=32))
    if get_origin(hint) is tuple:
        return st.lists(_field(get_args(hint)[0]), min_size=low, max_size=min(high, 4)).map(tuple)
    options = [arg for arg in get_args(hint) if arg is not type(None)]
    return st.none() | _field(options[0])


_SORTED_EPOCHS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)).map(sorted)
_NO_TOPIC = st.tuples(st.sampled_from(CertificateKind), st.just(NO_LINEAGE), st.just(0))
_A_TOPIC = st.tuples(st.just(CertificateKind.PUBLISHER), st.binary(min_size=16, max_size=16), st.integers(0, COVER_MAX))
CERTIFICATES = st.builds(
    lambda what, subject, scope, epochs, signature: Certificate(
        what[0], subject, scope, epochs[0], epochs[1], what[1], what[2], signature
    ),
    _NO_TOPIC | _A_TOPIC,
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    _SORTED_EPOCHS,
    st.binary(min_size=64, max_size=64),
)
CHAINS = st.builds(CertificateChain, CERTIFICATES, st.none() | CERTIFICATES)
ANCHORS = st.builds(
    Anchor,
    st.binary(min_size=32, max_size=32),
    st.integers(1, LENGTH_MAX),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=64, max_size=64),
)
