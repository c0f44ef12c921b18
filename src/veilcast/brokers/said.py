"""What replicas of a node say to one another about a hop of a key: what one `Spoken` carries.

Pure.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from veilcast.brokers.sharing.flooding import Vouched
from veilcast.brokers.sharing.redistribution import Header, Root
from veilcast.brokers.sharing.scheme import Scheme
from veilcast.crypto.shares import MAX_SHARES
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import MalformedError
from veilcast.wire import geometry as g


class Said(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Of which hop, words, and, of one who is not done, what shows that it has begun."""

    old: Scheme
    new: Scheme
    words: Annotated[tuple[Vouched, ...], msgspec.Meta(max_length=2 * MAX_SHARES)] = ()
    root: Root | None = None
    headers: Annotated[tuple[Header, ...], msgspec.Meta(max_length=MAX_SHARES)] = ()
    stuck: bool = False

    def encode(self) -> bytes:
        return _ENCODER.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Said:
        return _DECODER.decode(data)


def fitting(words: tuple[Vouched, ...]) -> list[tuple[Vouched, ...]]:
    """In as few messages as hold them: no liar may say so much that what others say is not passed on."""
    parts: list[list[Vouched]] = []
    left = 0
    for vouched in words:
        size = len(_ENCODER.encode(vouched))
        if size > left:
            parts.append([])
            left = g.SHARING_MAX - _SAID
        parts[-1].append(vouched)
        left -= size
    return [tuple(part) for part in parts]


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(Said, MalformedError, "not what replicas say to one another")
_SAID: Final = 256
"""More than the rest of what is said takes, where there are words."""
