"""Structs to bytes and back, secrets included: how this room's values lie inside files and signatures.

MessagePack with one more type: a `Secret` is written as its bytes. The result is as secret as what went in.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.errors import TamperedError

Plain = TypeVar("Plain", bound=msgspec.Struct)


def to_bytes(value: msgspec.Struct) -> bytes:
    return _ENCODER.encode(value)


def from_bytes(data: bytes, kind: type[Plain]) -> Plain:
    """Parse, or raise `TamperedError`: whoever wrote these bytes was not this program, or another version of it."""
    try:
        return msgspec.msgpack.decode(data, type=kind, dec_hook=_read_secret)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TamperedError(f"not a {kind.__name__} of a known version") from error


def _write_secret(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise TypeError(f"cannot write a {type(value).__name__}")


def _read_secret(kind: type, value: Any) -> Any:
    if kind is Secret and isinstance(value, bytes) and value:
        return Secret(value)
    raise ValueError("not a secret")


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_write_secret)
