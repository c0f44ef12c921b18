"""Messages to bytes and back: one type byte, then the fields as a MessagePack array.

Each message has exactly one encoding. Bytes that decode but would be encoded differently are rejected, so bytes and
message identify one another, and nobody can make variants of a message to pass a duplicate check. Hostile bytes raise
`MalformedError` and nothing else. The length is checked before anything is parsed, and every field is bounded by its
type, so time and memory are bounded too.

Bounds are checked where bytes are read, and msgspec does not check them where a message is built. So `encode` decodes
its own bytes before it returns them: a message that no neighbour would accept is our mistake, and never leaves this
machine.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.decoding import MsgpackDecoder
from veilcast.errors import LocalError, MalformedError
from veilcast.wire import brokers, mesh, relay, tree
from veilcast.wire.base import Message
from veilcast.wire.geometry import MESSAGE_MAX


def encode(message: Message) -> bytes:
    """The bytes of a legal message. Raises `LocalError` for one that breaks a bound of its type."""
    try:
        data = _TYPE_BYTE[type(message)] + _ENCODER.encode(message)
        decode(data)
    except (MalformedError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        why = error.__cause__ or error
        raise LocalError(f"{type(message).__name__} cannot be sent: {why}") from error
    return data


def decode(data: bytes) -> Message:
    if not 2 <= len(data) <= MESSAGE_MAX:
        raise MalformedError("a message of impossible length")
    decoder = _DECODERS.get(data[0])
    if decoder is None:
        raise MalformedError("an unknown type of message")
    message = decoder.decode(memoryview(data)[1:])
    if _ENCODER.encode(message) != data[1:]:
        raise MalformedError("not the one encoding of its message")
    return message


TYPE_BYTES: Final[dict[int, type[Message]]] = {
    **mesh.TYPE_BYTES,
    **relay.TYPE_BYTES,
    **tree.TYPE_BYTES,
    **brokers.TYPE_BYTES,
}
"""Every type of message; each mode numbers its own."""

_TYPE_BYTE: Final = {kind: bytes((number,)) for number, kind in TYPE_BYTES.items()}
_DECODERS: Final = {
    number: MsgpackDecoder(kind, MalformedError, "not a message of its type", MESSAGE_MAX)
    for number, kind in TYPE_BYTES.items()
}
_ENCODER: Final = msgspec.msgpack.Encoder()
