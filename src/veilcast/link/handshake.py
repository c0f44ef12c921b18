"""Handshakes: two members prove to one another who they are, and get a session.

Noise does the proving (`crypto.noise`), and certificates in its payloads say whose the proven keys are. Peers who meet
for the first time speak XXpsk3, in three messages; who knows the other's static key speaks IKpsk2, in two:

    ours = Initiation(party, now)                        theirs = Response(party, first, now)
    send(ours.first)                                     send(theirs.answer)
    contact = ours.read(answer, now)                     contact = theirs.read(last, now)
    send(contact.last)

    ours = Initiation(party, now, remote=static)         theirs = Response(party, first, now, known=True)
    send(ours.first)                                     send(theirs.answer)
    contact = ours.read(answer, now)                     contact = theirs.contact

What goes in and out is plain bytes. To strangers they travel in letters (`door`); inside a link they are messages like
any other, and that is how a link gets its next generation of keys: IKpsk2 with `generation` one higher, and `expected`
to be who the peer was so far. Both sides must name the same generation, and the same kind of sessions, or the handshake
fails; so nothing said in one handshake is of use in another.

Who shows itself to whom: the initiator of XX shows its certificate last, to a member that has proved itself. The
responder of XX shows its own to whoever began, who holds the network key or it could not have written. The first
message of IK can be replayed, and whoever gets hold of the responder's key later can read in it who began; hence XX for
those who have not met. Whatever is wrong with a message is a `RemoteError` and the end of the handshake.
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
    """What a handshake ends with: keys, and who is at the other end. `is_initiator` says whether it was us who asked.

    `last_message` is the message of ours without which the peer has no session yet; empty if it has all.
    """

    session: LinkSession
    certificate: CertificateChain
    remote_static: bytes
    is_initiator: bool
    last_message: bytes = b""


class InitiatorHandshake:
    """Our side of a handshake that we begin: with the peer's static key if we know it."""

    def __init__(self, party: LinkIdentity, now: int, *, remote: bytes | None = None, generation: int = 0) -> None:
        self._party, self._generation = party, generation
        self._noise = _noise(party, HandshakeRole.INITIATOR, remote is not None, generation, remote)
        self.first_message: Final = self._noise.write(b"" if remote is None else party.own_certificate(now))

    def read(self, answer: bytes, now: int) -> HandshakeResult:
        """Take the peer's answer: the handshake is done, except that the peer may need our `last` message."""
        shown = self._noise.read(answer)
        certificate = self._party.check_certificate(shown, self._noise.remote_static, now)
        last = b"" if self._noise.is_finished else self._noise.write(self._party.own_certificate(now))
        return _contact(self._noise, self._party, certificate, self._generation, now, last)


class ResponderHandshake:
    """Our side of a handshake that another began. `result` is there at once if the peer knew us."""

    def __init__(
        self,
        party: LinkIdentity,
        first: bytes,
        now: int,
        *,
        known: bool = False,
        generation: int = 0,
        expected: bytes | None = None,
    ) -> None:
        """`known`: the peer speaks IK. `expected`: the only static key that we take."""
        if expected is not None and not known:
            raise LocalError("only a peer who begins with its own key can be expected")
        self._party, self._generation = party, generation
        self._noise = _noise(party, HandshakeRole.RESPONDER, known, generation)
        shown = self._noise.read(first)
        self.result: HandshakeResult | None = None
        if not known:
            # For whoever began: the envelope has kept out all but holders of the network key.
            self.answer = self._noise.write(party.own_certificate(now), to_anyone=True)
            return
        if expected not in (None, self._noise.remote_static):
            raise ForgedError("a handshake of another peer than the link's")
        certificate = party.check_certificate(shown, self._noise.remote_static, now)
        self.answer = self._noise.write(party.own_certificate(now))
        self.result = _contact(self._noise, party, certificate, generation, now)

    def read(self, last: bytes, now: int) -> HandshakeResult:
        """Take the initiator's last message, if the peer did not know us; it says who that is."""
        shown = self._noise.read(last)
        certificate = self._party.check_certificate(shown, self._noise.remote_static, now)
        self.result = _contact(self._noise, self._party, certificate, self._generation, now)
        return self.result


def _noise(
    party: LinkIdentity, role: HandshakeRole, known: bool, generation: int, remote: bytes | None = None
) -> Handshake:
    return Handshake(
        IK_LINK if known else XX_LINK,
        role,
        static=party.static,
        entropy=party.entropy,
        remote_static=remote,
        psk=party.psk,
        prologue=_PROLOGUE + bytes((party.uniform,)) + generation_bytes(generation),
    )


def _contact(
    noise: Handshake, party: LinkIdentity, certificate: CertificateChain, generation: int, now: int, last: bytes = b""
) -> HandshakeResult:
    session = LinkSession(noise, generation=generation, born_us=now, uniform=party.uniform)
    return HandshakeResult(session, certificate, noise.remote_static, noise.role is HandshakeRole.INITIATOR, last)


XX_LINK: Final = NoiseProtocol("Noise_XXpsk3_25519_AESGCM_BLAKE2s")
IK_LINK: Final = NoiseProtocol("Noise_IKpsk2_25519_AESGCM_BLAKE2s")
"""AES-GCM, since with AES in the processor it takes cells a quarter faster than ChaCha20-Poly1305."""
_PROLOGUE: Final = b"veilcast link 1"
