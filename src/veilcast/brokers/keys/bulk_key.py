"""One shared key for many publications, and the key of each publication (P4, "Adaptations").

The transfer of a key is expensive. So a publisher transfers one key for a bulk of publications, bounded by their number
and their bytes. Within a bulk the key advances by hashing, one step per publication. So a subscriber's state that is
captured later opens nothing that was sealed before. Skipped keys are kept for late publications, up to a bound. A
shared key is a scalar, which can be dealt and redistributed; for `paper`, which splits bytes, it is its 32 bytes.

A key can have a successor, which is drawn before it is needed: its transfer takes a while. When the successor takes
over is the publisher's decision (`content.publisher`); `is_due` says that the key in use has served its bulk.

A publication's key is derived from the shared key alone in `paper`. In `hardened` it is derived from the shared key and
the topic's content key, which the authority gives to members for an epoch. So brokers that get a majority of the shares
at some hop, by any means, still read nothing, and neither does a subscriber whose grant has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

import msgspec

from veilcast.crypto.derive import derive, digest
from veilcast.crypto.group import Scalar
from veilcast.crypto.secret import Secret
from veilcast.errors import ConfigError, ForgedError, LocalError, StaleError
from veilcast.machine import Entropy


class RefreshPolicy(msgspec.Struct, frozen=True):
    """Lifetime of a key: at most this many messages and, if given, bytes."""

    messages: Annotated[int, msgspec.Meta(ge=1)] = 1
    bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.messages <= BULK_MAX or (self.bytes is not None and self.bytes < 1):
            raise ConfigError(f"a key serves for 1 to {BULK_MAX} messages, and for at least one byte")


class PublicationKey(NamedTuple):
    """The key of a publication: the id of the shared key, the number within the bulk, and the derived key."""

    key_id: bytes
    number: int
    key: Secret


class BulkSealer:
    """A publisher's keys on one topic: the one in use, and its successor."""

    def __init__(self, refresh: RefreshPolicy, publisher: bytes, entropy: Entropy) -> None:
        self._refresh, self._publisher, self._entropy = refresh, publisher, entropy
        self._current: _SealingKey | None = None
        self._successor: _SealingKey | None = None

    def is_due(self, size: int) -> bool:
        """True if the next publication, of this size, ought to get another key.

        A publication larger than a key's bytes gets a key of its own: sealed content is not cut.
        """
        current = self._current
        if current is None or current.served >= self._refresh.messages:
            return True
        return self._refresh.bytes is not None and current.bytes + size > self._refresh.bytes

    @property
    def is_spent(self) -> bool:
        """True if the key in use seals nothing more."""
        return self._current is None or self._current.number >= BULK_MAX

    def draw_successor(self) -> tuple[bytes, Scalar]:
        """Draw the key after the one in use. Returns its id and the shared key to be dealt."""
        shared = Scalar.draw(self._entropy)
        key_id = make_key_id(self._publisher, self._entropy(_NONCE_BYTES))
        self._successor = _SealingKey(key_id, _first_chain_key(shared))
        return key_id, shared

    def drop_successor(self) -> None:
        self._successor = None

    def advance(self) -> None:
        """The successor takes over."""
        if self._successor is None:
            raise LocalError("no key was drawn to take over")
        self._current, self._successor = self._successor, None

    def next_key(self, size: int, topic: Secret | None) -> PublicationKey:
        """The key for a publication of this size."""
        if self._current is None:
            raise LocalError("no key was drawn")
        self._current.served += 1
        self._current.bytes += size
        return self._take(self._current, topic)

    def trial_key(self, topic: Secret | None) -> PublicationKey:
        """The key for a trial of the successor, which is none of the publications that a key serves for."""
        if self._successor is None:
            raise LocalError("no key was drawn")
        return self._take(self._successor, topic)

    def _take(self, key: _SealingKey, topic: Secret | None) -> PublicationKey:
        number, chain = key.number, key.chain
        key.chain = _next_chain_key(chain)
        key.number += 1
        return PublicationKey(key.id, number, content_key(chain, topic, key.id, number))


@dataclass(slots=True)
class _SealingKey:
    id: bytes
    chain: Secret
    number: int = 0
    served: int = 0
    bytes: int = 0


class BulkOpener:
    """A subscriber's end of one shared key: the publication keys of its bulk, each once, in nearly any order.

    The keys of the last `skipped` numbers before the highest one are kept. A subscriber that joins late, or that few
    publications match, may begin anywhere in the bulk; `BULK_MAX` bounds the work for that.
    """

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
        if not 0 <= number < BULK_MAX:
            raise StaleError("no bulk has a publication of this number")
        while self._next <= number:
            if self._next >= number - self._skipped_max:
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
BULK_MAX: Final = 1 << 16
"""Most publications of one bulk. A subscriber that begins at its end hashes for a tenth of a second."""
