"""One shared key for many publications, and what each of them is sealed with (P4, "Adaptations").

Pure; randomness is handed in. Bringing a key over is dear, so a publisher brings one over for a bulk: so many messages
or so many bytes. Inside a bulk the key goes forward by hashing, one step a publication, so a subscriber's state that is
taken later opens nothing that was sealed before; what is skipped is kept for stragglers, so many at most. A shared key
is a scalar, which can be dealt and redistributed; for `paper`, which splits bytes, it is its 32 bytes.

In `paper` a publication is sealed with a key that comes from the shared one alone. In `hardened` it comes from the
shared key and the topic's content key, which the authority gives to members for an epoch: brokers that get hold of a
majority of shares at some hop, by any means, still read nothing, and a subscriber whose grant has ended neither.
"""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, ExcessError, ForgedError, LocalError, StaleError
from veilcast.machine import Entropy


class RefreshPolicy(msgspec.Struct, frozen=True):
    """How long a key serves: at most so many messages, and so many bytes if that is said."""

    messages: Annotated[int, msgspec.Meta(ge=1)] = 1
    bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.messages <= NUMBER_MAX or (self.bytes is not None and self.bytes < 1):
            raise ConfigError(f"a key serves for 1 to {NUMBER_MAX} messages, and for at least one byte")


class PublicationKey(NamedTuple):
    """What to seal a publication with: which key, its number in the bulk, and the key itself where it is new."""

    key_id: bytes
    number: int
    key: Secret
    shared: Scalar | None


class BulkSealer:
    """A publisher's keys on one topic."""

    def __init__(self, refresh: RefreshPolicy, publisher: bytes, entropy: Entropy) -> None:
        self._refresh, self._publisher, self._entropy = refresh, publisher, entropy
        self._key_id = b""
        self._chain: Secret | None = None
        self._number = self._bytes = 0

    def next_key(self, size: int, topic: Secret | None) -> PublicationKey:
        """For a publication of so many bytes. `shared` is the new key where one begins, and None elsewhere.

        A publication larger than a key's bytes gets a key of its own: what is sealed is not cut.
        """
        shared: Scalar | None = None
        if self._chain is None or self._number >= self._refresh.messages or self._full(size):
            shared = Scalar.draw(self._entropy)
            self._key_id = make_key_id(self._publisher, self._entropy(_NONCE_BYTES))
            self._chain, self._number, self._bytes = _first_chain_key(shared), 0, 0
        number, chain = self._number, self._chain
        self._chain = _next_chain_key(chain)
        self._number += 1
        self._bytes += size
        return PublicationKey(self._key_id, number, content_key(chain, topic, self._key_id, number), shared)

    def _full(self, size: int) -> bool:
        return self._refresh.bytes is not None and self._bytes + size > self._refresh.bytes


class BulkOpener:
    """A subscriber's end of one key: the publication keys of its bulk, each once, in nearly any order."""

    def __init__(self, key_id: bytes, shared: Secret, *, skipped: int = 256) -> None:
        if skipped < 0:
            raise LocalError("no fewer than none can be skipped")
        self._key_id, self._chain, self._most = key_id, _first_chain_key(shared), skipped
        self._next = 0
        self._skipped: dict[int, Secret] = {}

    def __len__(self) -> int:
        return len(self._skipped)

    def key(self, number: int, topic: Secret | None) -> Secret:
        """What publication `number` of the bulk is sealed with. Call `done` when it opened: until then it stays."""
        if not 0 <= number < NUMBER_MAX:
            raise StaleError("no bulk has a publication of this number")
        if number >= self._next + self._most + 1:
            raise ExcessError("a publication too far ahead in its bulk")
        while self._next <= number:
            self._skipped[self._next] = self._chain
            self._chain = _next_chain_key(self._chain)
            self._next += 1
        while len(self._skipped) > self._most + 1:
            del self._skipped[min(self._skipped)]
        if number not in self._skipped:
            raise StaleError("this publication was opened, or is too far behind in its bulk")
        return content_key(self._skipped[number], topic, self._key_id, number)

    def forget(self, number: int) -> None:
        """Forget what opened it."""
        self._skipped.pop(number, None)


def make_key_id(publisher: bytes, nonce: bytes) -> bytes:
    """What a key of this publisher is called: nobody else can call one of theirs the same.

    Brokers tell passages apart by this name, and everybody on the way sees it. A liar who could deal another
    publisher's key under it, before honest holders deal, would have their portions taken for lies.
    """
    return nonce + digest(nonce + publisher, purpose=b"vc/key-id", size=KEY_ID_BYTES - _NONCE_BYTES)


def check_key_id(key: bytes, publisher: bytes) -> None:
    """Raise unless this is the name of one of the publisher's keys."""
    if key != make_key_id(publisher, key[:_NONCE_BYTES]):
        raise ForgedError("a key under a name that is not its publisher's")


def content_key(chain: Secret, topic: Secret | None, key_id: bytes, number: int) -> Secret:
    """From the bulk's chain alone (`paper`), or from it and the topic's content key (`hardened`)."""
    place = (key_id, number.to_bytes(8, "big"))
    alone = derive(chain, b"vc/bulk-content", *place)
    return alone if topic is None else derive(topic, b"vc/bulk-topic", alone.reveal(), *place)


def _first_chain_key(shared: Secret) -> Secret:
    return derive(shared, b"vc/bulk-first")


def _next_chain_key(chain: Secret) -> Secret:
    return derive(chain, b"vc/bulk-next")


KEY_ID_BYTES: Final = 16
_NONCE_BYTES: Final = 8
NUMBER_MAX: Final = 1 << 32
