"""Credentials: a node's membership, and the proof to others that it holds the certified key.

Two nodes that meet show their certificates and prove that they hold the certified link keys. Each proof is a keyed hash
under the X25519 secret of the two keys, over both addresses, both nonces, the epoch and both keys. No third node can
make it, a proof of one meeting is invalid in another, and neither side's proof passes for the other's. So a certificate
without its key is worth nothing. The link's own handshake proves the same with its own keys; this proof works over any
link, and over none.

The answerer of a knock stores nothing: its nonce is a cookie, a keyed hash of the knock. A knocker that returns the
cookie receives at its address. Only then is a signature checked.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import EpochKeyCache, EpochKeys, Keyring
from veilcast.crypto.certificate import CertificateChain, CertificateKind
from veilcast.crypto.derive import derive
from veilcast.crypto.key_agreement import agree
from veilcast.crypto.secret import Secret
from veilcast.errors import ExpiredError, ForgedError
from veilcast.link.cookies import Cookies
from veilcast.machine import Address, Entropy
from veilcast.wire.geometry import NONCE


class ProofContext(msgspec.Struct, frozen=True):
    """The facts of one meeting that both sides know and both proofs cover."""

    knocker: Address
    answerer: Address
    nonce: bytes
    cookie: bytes
    epoch: int


class LinkProofs(msgspec.Struct, frozen=True):
    knocker: Secret
    answerer: Secret


class LinkAttempt:
    """The state of a knocker about the node that it knocked at."""

    def __init__(self, nonce: bytes, stay: bool, again: bool, until_us: int) -> None:
        self.nonce, self.wants_link, self.is_reunion, self.deadline_us = nonce, stay, again, until_us
        self.certificate: CertificateChain | None = None
        self.expected: Secret | None = None


class Credentials:
    """The credentials of the node at `name`. A cookie is valid for at least `cookie_us`, and at most for twice that."""

    def __init__(self, keyring: Keyring, name: Address, entropy: Entropy, cookie_us: int) -> None:
        self._keyring, self._name, self._entropy = keyring, name, entropy
        self._cookies = Cookies(entropy, cookie_us)
        self._cache = EpochKeyCache(keyring, 1)

    def is_member(self, now: int) -> bool:
        """True if this node is a member now."""
        try:
            self._at(now)
        except ExpiredError:
            return False
        return True

    def epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)

    def certificate(self, now: int) -> CertificateChain:
        return self._at(now).membership

    def nonce(self) -> bytes:
        return self._entropy(NONCE)

    def cookie(self, stranger: Address, nonce: bytes, now: int) -> bytes:
        return self._cookies.make(stranger, nonce, now)

    def check_cookie(self, stranger: Address, nonce: bytes, cookie: bytes, now: int) -> None:
        self._cookies.check(stranger, nonce, cookie, now)

    def check_member(self, chain: CertificateChain, now: int) -> None:
        """Raise unless this certifies a member in this epoch, other than this node."""
        if chain.leaf.subject == self.certificate(now).leaf.subject:
            raise ForgedError("our own certificate, shown by another node")
        chain.verify(self._keyring.root, CertificateKind.MEMBER, self.epoch(now))

    def prove(self, peer: CertificateChain, meeting: ProofContext, now: int) -> LinkProofs:
        """This node's proof, and the proof that the holder of the peer's certificate must show."""
        keys = self._at(now)
        subjects = [keys.membership.leaf.subject, peer.leaf.subject]
        if meeting.knocker != self._name:
            subjects.reverse()
        secret = agree(keys.link, peer.leaf.subject)
        parts = (
            meeting.knocker.encode(),
            meeting.answerer.encode(),
            meeting.nonce,
            meeting.cookie,
            meeting.epoch.to_bytes(4, "big"),
            *subjects,
        )
        return LinkProofs(derive(secret, _KNOCKER, *parts), derive(secret, _ANSWERER, *parts))

    def _at(self, now: int) -> EpochKeys:
        return self._cache.at(self.epoch(now))


COOKIE_PERIODS: Final = 16
"""Heartbeats for which a cookie is valid: many more than a meeting takes."""
_KNOCKER: Final = b"vc/proof-knock"
_ANSWERER: Final = b"vc/proof-answer"
