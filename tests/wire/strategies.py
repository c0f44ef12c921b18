"""Hypothesis strategies for every message type, made from the types' own annotations, so none can be forgotten."""

from __future__ import annotations

from typing import Any, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from veilcast.crypto.certificate import Certificate, Chain, Kind
from veilcast.crypto.chain import LENGTH_MAX, Anchor
from veilcast.wire.messages import TYPE_BYTES, Message

SIZES = 40
"""Long fields are drawn short; the bounds themselves have tests of their own."""


def messages() -> st.SearchStrategy[Message]:
    return st.one_of([of_type(kind) for kind in TYPE_BYTES.values()])


def of_type(kind: type[Message]) -> st.SearchStrategy[Message]:
    return st.builds(kind, **{f.name: _field(f.type) for f in msgspec.structs.fields(kind)})


def _field(hint: Any) -> st.SearchStrategy[Any]:
    meta: dict[str, Any] = {}
    if hasattr(hint, "__metadata__"):
        for entry in hint.__metadata__:
            meta |= {n: v for n in ("min_length", "max_length", "ge", "le") if (v := getattr(entry, n)) is not None}
        hint = hint.__origin__
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
    if hint is Chain:
        return CHAINS
    if get_origin(hint) is tuple:
        return st.lists(_field(get_args(hint)[0]), min_size=low, max_size=min(high, 4)).map(tuple)
    options = [arg for arg in get_args(hint) if arg is not type(None)]
    return st.none() | _field(options[0])


_SORTED_EPOCHS = st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)).map(sorted)
CERTIFICATES = st.builds(
    lambda kind, subject, scope, epochs, signature: Certificate(kind, subject, scope, epochs[0], epochs[1], signature),
    st.sampled_from(Kind),
    st.binary(min_size=32, max_size=32),
    st.binary(min_size=32, max_size=32),
    _SORTED_EPOCHS,
    st.binary(min_size=64, max_size=64),
)
CHAINS = st.builds(Chain, CERTIFICATES, st.none() | CERTIFICATES)
ANCHORS = st.builds(
    Anchor,
    st.binary(min_size=32, max_size=32),
    st.integers(1, LENGTH_MAX),
    st.integers(0, 2**63 - 1),
    st.binary(min_size=64, max_size=64),
)
