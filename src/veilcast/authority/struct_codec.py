"""Structs to bytes and back: how the values of this room are encoded in files, signatures and messages to other
members.

The encoding is MessagePack behind a magic word and a version, so that no kind of value is ever read as another. A
`Secret` is written as its bytes; the result is as secret as the value.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import VeilcastError

AnyStruct = TypeVar("AnyStruct", bound=msgspec.Struct)


def encode_struct(value: msgspec.Struct) -> bytes:
    return MAGIC_OF[type(value).__name__] + bytes((VERSION,)) + _ENCODER.encode(value)


def decode_struct(data: bytes, kind: type[AnyStruct], blame: type[VeilcastError]) -> AnyStruct:
    """Parse, or raise an error of the class `blame`, which says whose fault it is: that of a damaged file, or of a
    stranger.
    """
    magic = MAGIC_OF[kind.__name__]
    if not data.startswith(magic):
        raise blame(f"not a {kind.__name__.lower()}")
    if data[len(magic) : len(magic) + 1] != bytes((VERSION,)):
        raise blame(f"a {kind.__name__.lower()} of another version than {VERSION}")
    if (kind, blame) not in _DECODERS:
        text = f"not a {kind.__name__.lower()}: damaged, or made by something else"
        _DECODERS[kind, blame] = MsgpackDecoder(kind, blame, text, hook=_read_secret)
    value: AnyStruct = _DECODERS[kind, blame].decode(data[len(magic) + 1 :])
    return value


def _write_secret(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.reveal()
    raise TypeError(f"cannot write a {type(value).__name__}")


def _read_secret(kind: type, value: Any) -> Any:
    if kind is Secret and isinstance(value, bytes) and value:
        return Secret(value)
    raise ValueError("not a secret")


VERSION: Final = 3
MAGIC_OF: Final = {
    "Authority": b"VCau",
    "Keyring": b"VCkr",
    "PendingRequest": b"VCas",
    "Request": b"VCrq",
    "Reply": b"VCre",
    "Bulletin": b"VCbu",
    "TopicRecord": b"VCtr",
}
_DECODERS: Final[dict[tuple[type, type], MsgpackDecoder[Any]]] = {}
_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_write_secret)
