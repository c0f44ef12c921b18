"""Handshakes: two members prove their identities to one another and get a session.

Noise does the proof (`crypto.noise`), and certificates in its payloads identify the proven keys. Peers that meet for
the first time use XXpsk3, in three messages. A peer that knows the other's static key uses IKpsk2, in two:

    ours = InitiatorHandshake(identity, now)               theirs = ResponderHandshake(identity, first, now)
    send(ours.first_message)                               send(theirs.answer)
    result = ours.read(answer, now)                        result = theirs.read(last, now)
    send(result.last_message)

    ours = InitiatorHandshake(identity, now, remote=key)   theirs = ResponderHandshake(identity, first, now, known=True)
    send(ours.first_message)                               send(theirs.answer)
    result = ours.read(answer, now)                        result = theirs.result

Input and output are plain bytes. Between strangers they travel in packets (`admission`). Inside a link they are
messages like any other; that is how a link gets its next generation of keys: IKpsk2 with `generation` one higher, and
`expected` set to the peer's key. Both sides must name the same generation and the same kind of session, or the
handshake fails. So no message of one handshake is of use in another.

Identity exposure: the initiator of XX shows its certificate last, to a member that has proved itself. The responder of
XX shows its certificate to the initiator, which holds the network key or could not have written. The first message of
IK can be replayed, and an adversary that later gets the responder's key can read the initiator's identity in it; hence
XX for peers that have not met. Any fault in a message is a `RemoteError` and ends the handshake.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.crypto.certificate import CertificateChain
from veilcast.crypto.noise import Handshake, HandshakeRole, NoiseProtocol
from veilcast.errors import ForgedError, LocalError
from veilcast.link.identity import LinkIdentity
from veilcast.link.session import LinkSession, generation_bytes


class HandshakeResult(msgspec.Struct, frozen=True):
    """The result of a handshake: keys, and the identity of the peer. `is_initiator`: this node began it.

    `last_message` is the message without which the peer has no session yet; empty if the peer needs none.
    """

    session: LinkSession
    certificate: CertificateChain
    remote_static: bytes
    is_initiator: bool
    last_message: bytes = b""


class InitiatorHandshake:
    """The initiator's side. It needs the peer's static key for IK."""

    def __init__(self, identity: LinkIdentity, now: int, *, remote: bytes | None = None, generation: int = 0) -> None:
        self._identity, self._generation = identity, generation
        self._noise = _noise(identity, HandshakeRole.INITIATOR, remote is not None, generation, remote)
        self.first_message: Final = self._noise.write(b"" if remote is None else identity.own_certificate(now))

    def read(self, answer: bytes, now: int) -> HandshakeResult:
        """Handle the peer's answer. The handshake is finished, but the peer may need `last_message`."""
        encoded = self._noise.read(answer)
        certificate = self._identity.check_certificate(encoded, self._noise.remote_static, now)
        last = b"" if self._noise.is_finished else self._noise.write(self._identity.own_certificate(now))
        return _make_result(self._noise, self._identity, certificate, self._generation, now, last)


class ResponderHandshake:
    """The responder's side. `result` is set at once if the peer used IK."""

    def __init__(
        self,
        identity: LinkIdentity,
        first: bytes,
        now: int,
        *,
        known: bool = False,
        generation: int = 0,
        expected: bytes | None = None,
    ) -> None:
        """`known`: the peer uses IK. `expected`: the only static key that is accepted."""
        if expected is not None and not known:
            raise LocalError("only a peer who begins with its own key can be expected")
        self._identity, self._generation = identity, generation
        self._noise = _noise(identity, HandshakeRole.RESPONDER, known, generation)
        encoded = self._noise.read(first)
        self.result: HandshakeResult | None = None
        if not known:
            # The recipient is any initiator: only a holder of the network key could open the envelope.
            self.answer = self._noise.write(identity.own_certificate(now), to_anyone=True)
            return
        if expected not in (None, self._noise.remote_static):
            raise ForgedError("a handshake of another peer than the link's")
        certificate = identity.check_certificate(encoded, self._noise.remote_static, now)
        self.answer = self._noise.write(identity.own_certificate(now))
        self.result = _make_result(self._noise, identity, certificate, generation, now)

    def read(self, last: bytes, now: int) -> HandshakeResult:
        """Handle the initiator's last message of XX, which carries its identity."""
        encoded = self._noise.read(last)
        certificate = self._identity.check_certificate(encoded, self._noise.remote_static, now)
        self.result = _make_result(self._noise, self._identity, certificate, self._generation, now)
        return self.result


def _noise(
    identity: LinkIdentity, role: HandshakeRole, known: bool, generation: int, remote: bytes | None = None
) -> Handshake:
    return Handshake(
        IK_LINK if known else XX_LINK,
        role,
        static=identity.static,
        entropy=identity.entropy,
        remote_static=remote,
        psk=identity.psk,
        prologue=_PROLOGUE + bytes((identity.uniform,)) + generation_bytes(generation),
    )


def _make_result(
    noise: Handshake,
    identity: LinkIdentity,
    certificate: CertificateChain,
    generation: int,
    now: int,
    last: bytes = b"",
) -> HandshakeResult:
    session = LinkSession(noise, generation=generation, born_us=now, uniform=identity.uniform)
    return HandshakeResult(session, certificate, noise.remote_static, noise.role is HandshakeRole.INITIATOR, last)


XX_LINK: Final = NoiseProtocol("Noise_XXpsk3_25519_AESGCM_BLAKE2s")
IK_LINK: Final = NoiseProtocol("Noise_IKpsk2_25519_AESGCM_BLAKE2s")
"""AES-GCM: with AES instructions it handles cells a quarter faster than ChaCha20-Poly1305."""
_PROLOGUE: Final = b"veilcast link 1"
