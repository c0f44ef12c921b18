"""Noise handshakes: two parties agree on fresh keys, and each proves to the other which static key it holds.

No I/O, no clock; fresh keys are drawn from the `entropy` handed in. The code follows revision 34 of the Noise
specification. `noise_patterns` has the handshakes, and says what each message hides from which party.

Theory. Both sides keep a transcript hash of all messages and a chaining key of all agreements. Each key agreement moves
the chaining key on and yields a new message key; each encryption is bound to the transcript. So two sides can read one
another only if they saw the same bytes and hold the keys that the pattern asks for: the next encryption after any
change fails. At the end the chaining key becomes two keys, one for each direction, and the transcript hash is a name
for the channel.

    ours = Handshake(XX, HandshakeRole.INITIATOR, static=keypair, entropy=entropy)
    send(ours.write())
    ours.read(receive())
    send(ours.write())
    sender, receiver = ours.split()

Keys for other uses than the messages come from `ours.export()`. A call out of turn is a `LocalError` and changes
nothing. Every defect of the peer's message is a `RemoteError`, and ends the handshake: start a new one. A handshake
that has finished or failed drops its secrets at once. No handshake can be copied, as a copy would use a fresh key
twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Final, NoReturn

from veilcast.crypto import _primitives as primitives
from veilcast.crypto.noise_patterns import (
    IK,
    IK_PSK2,
    KEY_SIZE,
    MAX_MESSAGE,
    TAG_SIZE,
    XX,
    XX_PSK3,
    HandshakeMessage,
    NoiseProtocol,
)
from veilcast.crypto.noise_session import Cipher, Receiver, Sender
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, MalformedError
from veilcast.machine import Entropy

__all__ = [
    "Handshake",
    "HandshakeRole",
    "Keypair",
    "Sender",
    "Receiver",
    "NoiseProtocol",
    "XX",
    "XX_PSK3",
    "IK",
    "IK_PSK2",
    "MAX_MESSAGE",
]


class HandshakeRole(Enum):
    INITIATOR = "initiator"
    RESPONDER = "responder"


class Keypair:
    """An X25519 key for any number of handshakes. To compute its public key costs half as much as an agreement."""

    __slots__ = ("_private", "public")

    def __init__(self, private: Secret) -> None:
        if len(private) != KEY_SIZE:
            raise LocalError(f"an X25519 key has {KEY_SIZE} bytes, not {len(private)}")
        self._private = private
        self.public: Final = primitives.x25519_public(private.reveal())

    @classmethod
    def draw(cls, entropy: Entropy) -> Keypair:
        return cls(Secret(entropy(KEY_SIZE)))

    def agree(self, public: bytes) -> bytes:
        return primitives.x25519(self._private.reveal(), public)

    def __repr__(self) -> str:
        return f"<Keypair {self.public.hex()}>"


class Handshake:
    """One side of one handshake: `write` and `read` in turn, then `split`."""

    def __init__(
        self,
        protocol: NoiseProtocol,
        role: HandshakeRole,
        *,
        static: Keypair,
        entropy: Entropy,
        remote_static: bytes | None = None,
        psk: Secret | None = None,
        prologue: bytes = b"",
    ) -> None:
        """`prologue` is data that both sides must agree on and do not send, such as a version.

        The initiator of IK, and nobody else, gives `remote_static`, because the pattern starts from it. XX learns the
        peer's key, and the caller decides by `Handshake.remote_static` whether to go on.
        """
        pattern = protocol.pattern
        knows_peer = pattern.responder_known and role is HandshakeRole.INITIATOR
        if knows_peer != (remote_static is not None):
            verb = "needs" if knows_peer else "does not take"
            raise LocalError(f"the {role.value} of {protocol.name} {verb} the peer's static key beforehand")
        if remote_static is not None and not _is_usable(remote_static):
            raise LocalError("the peer's static key is not a usable X25519 public key")
        if pattern.psk != (psk is not None):
            raise LocalError(f"{protocol.name} {'needs' if pattern.psk else 'does not take'} a pre-shared key")
        if psk is not None and len(psk) != KEY_SIZE:
            raise LocalError(f"a pre-shared key has {KEY_SIZE} bytes, not {len(psk)}")

        self.protocol: Final = protocol
        self.role: Final = role
        self._entropy = entropy
        self._mine = {"s": static}
        self._theirs = {} if remote_static is None else {"s": remote_static}
        self._psk = psk
        self._step = 0
        self._sessions: tuple[Sender, Receiver] | None = None
        self._exported: Secret | None = None
        self._symmetric = _Symmetric(protocol)
        self._symmetric.mix_hash(prologue)
        if pattern.responder_known:
            self._symmetric.mix_hash(static.public if remote_static is None else remote_static)

    def write(self, payload: bytes = b"", *, to_anyone: bool = False) -> bytes:
        """Our next message. Raises `LocalError` for a payload that a stranger could read, unless it may go `to_anyone`.

        In XX a stranger can read message one, which is open to all on the path, and message two, which is open to the
        initiator before it has proven its key.
        """
        message = self._expect(writing=True)
        if payload and not (message.hides_payload or to_anyone):
            raise LocalError("this message of the handshake would carry its payload to an unproven peer")
        if message.overhead + len(payload) > MAX_MESSAGE:
            raise LocalError(f"a Noise message has at most {MAX_MESSAGE} bytes")

        parts = []
        with self._one_step():
            for token in message.tokens:
                match token:
                    case "e":
                        self._mine["e"] = Keypair.draw(self._entropy)
                        parts.append(self._mix_ephemeral(self._mine["e"].public))
                    case "s":
                        parts.append(self._symmetric.encrypt(self._mine["s"].public))
                    case _:
                        self._mix_secret(token)
            parts.append(self._symmetric.encrypt(payload))
        return b"".join(parts)

    def read(self, data: bytes) -> bytes:
        """The payload of the peer's next message. A payload in clear is authenticated by the message after it."""
        message = self._expect(writing=False)
        with self._one_step():
            if not message.overhead <= len(data) <= MAX_MESSAGE:
                raise MalformedError(f"a handshake message of {len(data)} bytes")
            at = 0
            for token in message.tokens:
                match token:
                    case "e":
                        self._theirs["e"] = self._mix_ephemeral(_usable(data[at : at + KEY_SIZE]))
                        at += KEY_SIZE
                    case "s":
                        size = KEY_SIZE + self._symmetric.tag_size
                        self._theirs["s"] = _usable(self._symmetric.decrypt(data[at : at + size]))
                        at += size
                    case _:
                        self._mix_secret(token)
            return self._symmetric.decrypt(data[at:])

    @property
    def is_finished(self) -> bool:
        return self._step == len(self.protocol.pattern.messages)

    @property
    def remote_static(self) -> bytes:
        """The peer's static key, available from the message on that brought it and proved it to be the peer's."""
        if self._step == _FAILED or "s" not in self._theirs:
            raise LocalError("the peer's static key is not known")
        return self._theirs["s"]

    @property
    def handshake_hash(self) -> bytes:
        """A name for this channel: the same on both sides, and of no other channel."""
        if not self.is_finished:
            raise LocalError("the handshake is not finished")
        return self._symmetric.hash

    def split(self) -> tuple[Sender, Receiver]:
        """Both directions of the channel. They are returned once, so that no nonce can repeat."""
        if self._sessions is None:
            raise LocalError("a handshake gives its sessions once, when it is finished")
        sessions, self._sessions = self._sessions, None
        return sessions

    def export(self) -> Secret:
        """One more secret of the channel, for keys other than those of its messages. It is returned once, as by
        `split`.

        It is the third output of the derivation that gives `split` its two: nobody learns one from the others.
        """
        if self._exported is None:
            raise LocalError("a handshake gives its exported secret once, when it is finished")
        exported, self._exported = self._exported, None
        return exported

    def _expect(self, *, writing: bool) -> HandshakeMessage:
        if self._step == _FAILED:
            raise LocalError("the handshake has failed; start a new one")
        if self.is_finished:
            raise LocalError("the handshake is finished")
        our_turn = (self._step % 2 == 0) is (self.role is HandshakeRole.INITIATOR)
        if our_turn is not writing:
            raise LocalError("it is our turn to write" if our_turn else "it is the peer's turn to write")
        return self.protocol.pattern.messages[self._step]

    @contextmanager
    def _one_step(self) -> Iterator[None]:
        """One message. The handshake has failed unless the message is read or written to its end."""
        step, self._step = self._step, _FAILED
        try:
            yield
            self._step = step + 1
            if self.is_finished:
                of_initiator, of_responder, self._exported = self._symmetric.split()
                if self.role is HandshakeRole.INITIATOR:
                    self._sessions = Sender(of_initiator), Receiver(of_responder)
                else:
                    self._sessions = Sender(of_responder), Receiver(of_initiator)
        finally:
            if self.is_finished or self._step == _FAILED:
                self._forget()

    def _forget(self) -> None:
        """Forward secrecy: drop now everything that could compute the keys again, and not when this object goes."""
        self._mine.clear()
        self._psk = None
        self._symmetric.forget()

    def _mix_ephemeral(self, public: bytes) -> bytes:
        self._symmetric.mix_hash(public)
        if self._psk is not None:
            self._symmetric.mix_key(public)
        return public

    def _mix_secret(self, token: str) -> None:
        match token:
            case "psk" if self._psk is not None:
                self._symmetric.mix_key_and_hash(self._psk.reveal())
            case _:
                mine, theirs = (0, 1) if self.role is HandshakeRole.INITIATOR else (1, 0)
                self._symmetric.mix_key(self._mine[token[mine]].agree(self._theirs[token[theirs]]))

    def __repr__(self) -> str:
        state = "failed" if self._step == _FAILED else "finished" if self.is_finished else f"step {self._step}"
        return f"<Handshake {self.protocol.name}, {self.role.value}, {state}>"

    def __reduce__(self) -> NoReturn:
        raise LocalError("a handshake cannot be copied or pickled")


class _Symmetric:
    """The transcript hash, the chaining key, and the message key that follows from it, once there is one."""

    def __init__(self, protocol: NoiseProtocol) -> None:
        self._cipher_name = protocol.cipher
        self._algorithm = protocol.hash.lower()
        name = protocol.name.encode()
        hashed_name = primitives.digest(self._algorithm, name)
        self.hash = name.ljust(len(hashed_name), b"\0") if len(name) <= len(hashed_name) else hashed_name
        self._chain = self.hash
        self._cipher: Cipher | None = None
        self._nonce = 0

    @property
    def tag_size(self) -> int:
        return 0 if self._cipher is None else TAG_SIZE

    def mix_hash(self, data: bytes) -> None:
        self.hash = primitives.digest(self._algorithm, self.hash + data)

    def mix_key(self, material: bytes) -> None:
        self._chain, key = self._derive(material, 2)
        self._cipher, self._nonce = Cipher(self._cipher_name, key), 0

    def mix_key_and_hash(self, material: bytes) -> None:
        self._chain, extra, key = self._derive(material, 3)
        self.mix_hash(extra)
        self._cipher, self._nonce = Cipher(self._cipher_name, key), 0

    def encrypt(self, plaintext: bytes) -> bytes:
        sealed = plaintext
        if self._cipher is not None:
            sealed = self._cipher.seal(self._nonce, plaintext, self.hash)
            self._nonce += 1
        self.mix_hash(sealed)
        return sealed

    def decrypt(self, sealed: bytes) -> bytes:
        plaintext = sealed
        if self._cipher is not None:
            plaintext = self._cipher.open(self._nonce, sealed, self.hash)
            self._nonce += 1
        self.mix_hash(sealed)
        return plaintext

    def split(self) -> tuple[Cipher, Cipher, Secret]:
        """The keys of the initiator's and of the responder's messages, and one for other uses."""
        first, second, third = self._derive(b"", 3)
        return Cipher(self._cipher_name, first), Cipher(self._cipher_name, second), Secret(third[:KEY_SIZE])

    def forget(self) -> None:
        """Drop everything that could derive or decrypt. The transcript hash, which is no secret, stays."""
        self._chain, self._cipher = b"", None

    def _derive(self, material: bytes, count: int) -> list[bytes]:
        """Noise's HKDF: over HMAC with every hash, even with BLAKE2, which has a keyed mode of its own."""
        secret = primitives.hmac_digest(self._algorithm, self._chain, material)
        outputs = [b""]
        for number in range(1, count + 1):
            outputs.append(primitives.hmac_digest(self._algorithm, secret, outputs[-1] + bytes([number])))
        return outputs[1:]


def _usable(public: bytes) -> bytes:
    if not _is_usable(public):
        raise MalformedError("not a usable X25519 public key")
    return public


def _is_usable(public: bytes) -> bool:
    """True if a key has the right size and not a small order.

    An agreement rejects small orders too, but it may come only with our own next message. A stranger's key must be
    rejected when the stranger's message is read.
    """
    point = int.from_bytes(public, "little") % 2**255 % _PRIME
    return len(public) == KEY_SIZE and point not in _SMALL_ORDER


_FAILED: Final = -1

_PRIME: Final = 2**255 - 19
# The coordinates of the points of order 1, 2, 4 and 8, on the curve and on its twist.
_SMALL_ORDER: Final = (
    0,
    1,
    _PRIME - 1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
)
