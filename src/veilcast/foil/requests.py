"""Requests for repeats: what a reader may have missed, sealed for the topic, and always of one size.

Pure. A broker that dies loses what it has acknowledged and not brought on, and what it kept for readers who were away.
Its publishers have it still, and nobody can tell them what is lacking: readers know when they were not connected, and
that is all. So

- whoever has subscribed on a new stream says **again**, with the times for which it may have missed something;
- whoever can hear that on a new stream says **here**, and is told the same.

Take a reader and a publisher who both come back to a broker, in whichever order. If the reader's subscription stood
before the publisher's, the publisher's "here" finds the reader, and its answer finds the publisher; else the reader's
own "again" does. Either way the publisher hears of it at a time when the reader's subscription stands, and what it
then repeats arrives, unless the broker dies again: then both come back once more.

Each time of absence has a name. A publisher that has answered one, and was not parted from its broker since, need not
answer it again; a reader that was parted ten times in ten minutes says all ten, and gets the last one repeated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ForgedError, MalformedError
from veilcast.machine import Entropy
from veilcast.wire.geometry import MOMENT_MAX
from veilcast.wire.padding import pad, unpad

NAME: Final = 8
ABSENCES_MAX: Final = 32

_Moment = Annotated[int, msgspec.Meta(ge=0, le=MOMENT_MAX)]


class Absence(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A time for which a reader may have missed something."""

    name: Annotated[bytes, msgspec.Meta(min_length=NAME, max_length=NAME)]
    since_us: _Moment
    until_us: _Moment


class Absences:
    """Of one session. Bounded: of more than `ABSENCES_MAX` the oldest two become one."""

    def __init__(self, since_us: int, entropy: Entropy) -> None:
        self._entropy = entropy
        self._since_us: int | None = since_us
        self._known: list[Absence] = []

    def __len__(self) -> int:
        return len(self._known)

    def away(self, since_us: int) -> None:
        """Something may be lacking since then, and until we are back."""
        self._since_us = since_us if self._since_us is None else min(self._since_us, since_us)

    def back(self, now: int) -> None:
        since_us = now if self._since_us is None else min(self._since_us, now)
        self._known.append(Absence(self._entropy(NAME), since_us, now))
        self._since_us = None
        if len(self._known) > ABSENCES_MAX:
            one, other, *rest = self._known
            self._known = [Absence(self._entropy(NAME), min(one.since_us, other.since_us), other.until_us), *rest]

    def standing(self, after_us: int) -> list[Absence]:
        """Those of which somebody may still have something: nobody keeps what is older."""
        self._known = [each for each in self._known if each.until_us >= after_us]
        return list(self._known)


def seal_again(keys: TopicKeys, absences: Sequence[Absence], entropy: Entropy) -> bytes:
    """Names are others in each topic: who publishes in two does not see that one reads both."""
    own = [
        Absence(digest(each.name + keys.token, purpose=b"vc/foil-absence", size=NAME), each.since_us, each.until_us)
        for each in absences
    ]
    return seal(_key(keys), pad(_ENCODER.encode(own), _ROOM), context=_AGAIN, entropy=entropy)


def open_again(keys: TopicKeys, payload: bytes) -> list[Absence]:
    """Raises `RemoteError` for what no member of the topic sealed."""
    if len(payload) != SIZE:
        raise ForgedError("not a request")
    absences: list[Absence] = _DECODER.decode(unpad(unseal(_key(keys), payload, context=_AGAIN)))
    return absences


def seal_here(keys: TopicKeys, entropy: Entropy) -> bytes:
    return seal(_key(keys), bytes(_ROOM), context=_HERE, entropy=entropy)


def check_here(keys: TopicKeys, payload: bytes) -> None:
    if len(payload) != SIZE:
        raise ForgedError("not from a publisher")
    unseal(_key(keys), payload, context=_HERE)


def _key(keys: TopicKeys) -> Secret:
    return derive(keys.content, b"vc/foil-again")


_ROOM: Final = 1024
SIZE: Final = _ROOM + OVERHEAD
_AGAIN: Final = b"veilcast/foil-again"
_HERE: Final = b"veilcast/foil-here"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = MsgpackDecoder(
    Annotated[list[Absence], msgspec.Meta(max_length=ABSENCES_MAX)], MalformedError, "not a request", _ROOM
)
