"""A party to handshakes: this node as it shows itself to others, and as it judges them.

All of it comes from the keyring. The link key is the static key of Noise, and the member certificate, which travels in
the handshake, says whose it is. From the network key come the pre-shared key of every handshake and the key of the
envelopes that handshakes travel in: who is no member gets neither.

Whom a certificate admits is a member of this authority, in this epoch, who holds the key that it certifies, is not
revoked as far as we know, and is not ourselves.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.authority.epoch import epoch_of
from veilcast.authority.keyring import Keyring
from veilcast.authority.revocation import RevokedKeys
from veilcast.crypto.certificate import CertificateChain, CertificateKind
from veilcast.crypto.derive import derive
from veilcast.crypto.noise import Keypair
from veilcast.decoding import MsgpackDecoder
from veilcast.errors import ExpiredError, ForgedError, MalformedError
from veilcast.machine import Entropy
from veilcast.wire.geometry import MESSAGE_MAX


class LinkIdentity:
    """One for all handshakes of a node; a keyring that was renewed makes a new one."""

    def __init__(
        self, keyring: Keyring, entropy: Entropy, *, uniform: bool = True, revoked: RevokedKeys | None = None
    ) -> None:
        """`uniform`: whether our links carry cells of one size. A peer that thinks otherwise is refused."""
        self._keyring, self._revoked = keyring, revoked
        self.entropy: Final = entropy
        self.uniform: Final = uniform
        self.static: Final = Keypair(keyring.membership.link)
        self.psk: Final = derive(keyring.membership.network, b"vc/link-psk")
        self.envelope: Final = derive(keyring.membership.network, b"vc/link-envelope")

    def own_certificate(self, now: int) -> bytes:
        """Our certificate, as others get it; `ExpiredError` if it is not for this epoch."""
        chain = self._keyring.membership.certificate
        if not chain.leaf.first <= self._epoch(now) <= chain.leaf.last:
            raise ExpiredError("our membership is over, or has not begun")
        return msgspec.msgpack.encode(chain)

    def check_certificate(self, shown: bytes, static: bytes, now: int) -> CertificateChain:
        """The certificate of the peer who proved to hold this static key; raises unless it admits that peer."""
        if static == self.static.public:
            raise ForgedError("our own key, in somebody else's hand")
        chain = _DECODER.decode(shown)
        if chain.leaf.subject != static:
            raise ForgedError("the certificate is another's")
        epoch = self._epoch(now)
        chain.verify(self._keyring.root, CertificateKind.MEMBER, epoch)
        if chain.delegation is not None and self._keyring.void.get(chain.delegation.subject, epoch + 1) <= epoch:
            raise ForgedError("the root has ended the sub-authority that certified the peer")
        if self._revoked is not None:
            self._revoked.check(chain, epoch)
        return chain

    def _epoch(self, now: int) -> int:
        return epoch_of(now, self._keyring.epoch_us)


_DECODER: Final = MsgpackDecoder(CertificateChain, MalformedError, "not a certificate", MESSAGE_MAX)
