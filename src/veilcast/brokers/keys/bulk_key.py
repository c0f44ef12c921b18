"""One shared key for many publications, and the key of each publication (P4, "Adaptations").

The transfer of a key is expensive. So a publisher transfers one key for a bulk of publications, bounded by their number
and their bytes. Within a bulk the key advances by hashing, one step per publication. So a subscriber's state that is
captured later opens nothing that was sealed before. Skipped keys are kept for late publications, up to a bound. A
shared key is a scalar, which can be dealt and redistributed; for `paper`, which splits bytes, it is its 32 bytes.

A publication's key is derived from the shared key alone in `paper`. In `hardened` it is derived from the shared key and
the topic's content key, which the authority gives to members for an epoch. So brokers that get a majority of the shares
at some hop, by any means, still read nothing, and neither does a subscriber whose grant has ended.
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
    """Lifetime of a key: at most this many messages and, if given, bytes."""

    messages: Annotated[int, msgspec.Meta(ge=1)] = 1
    bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.messages <= NUMBER_MAX or (self.bytes is not None and self.bytes < 1):
            raise ConfigError(f"a key serves for 1 to {NUMBER_MAX} messages, and for at least one byte")


class PublicationKey(NamedTuple):
    """The key of a publication: the id of the shared key, the number within the bulk, the derived key, and the shared
    key if it is new."""

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
        """The key for a publication of this size. `shared` is the shared key where a new one begins, and None
        otherwise.

        A publication larger than a key's bytes gets a key of its own: sealed content is not cut.
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
    """A subscriber's end of one shared key: the publication keys of its bulk, each once, in nearly any order."""

    def __init__(self, key_id: bytes, shared: Secret, *, skipped: int = 256) -> None:
        if skipped < 0:
            raise LocalError("no fewer than none can be skipped")
        self._key_id, self._chain, self._skipped_max = key_id, _first_chain_key(shared), skipped
        self._next = 0
        self._skipped: dict[int, Secret] = {}

    def __len__(self) -> int:
        return len(self._skipped)

    def key(self, number: int, topic: Secret | None) -> Secret:
        """The key of publication `number`. It stays available until `forget`, which the caller calls once the
        publication is open."""
        if not 0 <= number < NUMBER_MAX:
            raise StaleError("no bulk has a publication of this number")
        if number >= self._next + self._skipped_max + 1:
            raise ExcessError("a publication too far ahead in its bulk")
        while self._next <= number:
            self._skipped[self._next] = self._chain
            self._chain = _next_chain_key(self._chain)
            self._next += 1
        while len(self._skipped) > self._skipped_max + 1:
            del self._skipped[min(self._skipped)]
        if number not in self._skipped:
            raise StaleError("this publication was opened, or is too far behind in its bulk")
        return content_key(self._skipped[number], topic, self._key_id, number)

    def forget(self, number: int) -> None:
        """Forget the key of an opened publication."""
        self._skipped.pop(number, None)


def make_key_id(publisher: bytes, nonce: bytes) -> bytes:
    """The id of a key of this publisher. No other publisher can have a key with the same id.

    Brokers distinguish transfers by this id, and everyone on the path sees it. If an adversary could deal another
    publisher's key under the same id, before honest holders deal, the honest dealings would look Byzantine.
    """
    return nonce + digest(nonce + publisher, purpose=b"vc/key-id", size=KEY_ID_BYTES - _NONCE_BYTES)


def check_key_id(key: bytes, publisher: bytes) -> None:
    """Raise unless this is the id of one of the publisher's keys."""
    if key != make_key_id(publisher, key[:_NONCE_BYTES]):
        raise ForgedError("a key under a name that is not its publisher's")


def content_key(chain: Secret, topic: Secret | None, key_id: bytes, number: int) -> Secret:
    """Derived from the bulk's chain alone (`paper`), or from the chain and the topic's content key (`hardened`)."""
    position = (key_id, number.to_bytes(8, "big"))
    alone = derive(chain, b"vc/bulk-content", *position)
    return alone if topic is None else derive(topic, b"vc/bulk-topic", alone.reveal(), *position)


def _first_chain_key(shared: Secret) -> Secret:
    return derive(shared, b"vc/bulk-first")


def _next_chain_key(chain: Secret) -> Secret:
    return derive(chain, b"vc/bulk-next")


KEY_ID_BYTES: Final = 16
_NONCE_BYTES: Final = 8
NUMBER_MAX: Final = 1 << 32
