"""Identity: the certificate and keys of this node in handshakes, and the check of a peer's certificate.

Everything comes from the keyring. The link key is the static key of Noise. The member certificate, which travels in the
handshake, binds that key to a member. The network key gives the pre-shared key of every handshake and the key that
seals handshake packets, so an outsider has neither.

A certificate admits a peer if the authority of this network issued it, it is valid in this epoch, the peer holds the
certified key, the certificate is not known to be revoked, and the peer is not this node itself.
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
    """One object for all handshakes of a node. A renewed keyring makes a new one."""

    def __init__(
        self, keyring: Keyring, entropy: Entropy, *, uniform: bool = True, revoked: RevokedKeys | None = None
    ) -> None:
        """`uniform`: links carry cells of one size. A peer with another setting is refused."""
        self._keyring, self._revoked = keyring, revoked
        self.entropy: Final = entropy
        self.uniform: Final = uniform
        self.static: Final = Keypair(keyring.membership.link)
        self.psk: Final = derive(keyring.membership.network, b"vc/link-psk")
        self.envelope: Final = derive(keyring.membership.network, b"vc/link-envelope")

    def own_certificate(self, now: int) -> bytes:
        """This node's certificate, encoded; raises `ExpiredError` outside its epochs."""
        chain = self._keyring.membership.certificate
        if not chain.leaf.first <= self._epoch(now) <= chain.leaf.last:
            raise ExpiredError("our membership is over, or has not begun")
        return msgspec.msgpack.encode(chain)

    def check_certificate(self, encoded: bytes, static: bytes, now: int) -> CertificateChain:
        """The certificate of a peer that holds this static key; raises unless it admits the peer."""
        if static == self.static.public:
            raise ForgedError("our own key, used by another node")
        chain = _DECODER.decode(encoded)
        if chain.leaf.subject != static:
            raise ForgedError("the certificate is for another key")
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
