"""The Noise handshakes in use, as a table that `veilcast.crypto.noise` interprets.

Pure data, after revision 34 of the Noise specification. A handshake is a list of messages that alternate, the first
from the initiator. A message is a list of tokens, then a payload. Both sides walk the same list:

    e            the writer's fresh public key, in clear
    s            the writer's static public key, encrypted as soon as there is a key to encrypt with
    ee es se ss  a key agreement; the first letter names the initiator's key, the second the responder's
    psk          the pre-shared key is mixed in

XX is for peers that meet for the first time. Each learns the other's static key, and no observer learns either. The
initiator shows its own key last, to a responder that has proved its own.

IK is for an initiator that knows the responder's key already. It saves one message, at a price: its first message, with
the initiator's identity and payload, can be replayed, and an adversary that later gets the responder's static key can
read it.

IKpsk2 and XXpsk3 also require a key shared beforehand, and fail in the last message without it.

Two facts about each message follow from the tokens, and are computed here once: how much longer it is than its payload,
and whether a stranger can read the payload. The second differs from whether the payload is encrypted. With a pre-shared
key the fresh public keys are key material too, and everybody on the path knows those. Message two of XX is encrypted to
a fresh key that any node may have sent: no observer reads it, but the initiator does. A payload is for the peer alone
once the peer's static key, or the pre-shared one, is part of its encryption key.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from veilcast.errors import LocalError


@dataclass(frozen=True, slots=True)
class NoiseProtocol:
    """A handshake with its algorithms, from a full Noise name such as `Noise_XX_25519_ChaChaPoly_BLAKE2s`."""

    name: str
    pattern: HandshakePattern = field(init=False, repr=False)
    cipher: str = field(init=False, repr=False)
    hash: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        match self.name.split("_"):
            case ["Noise", pattern, "25519", cipher, hash_] if (
                pattern in PATTERNS and cipher in CIPHERS and hash_ in HASHES
            ):
                object.__setattr__(self, "pattern", PATTERNS[pattern])
                object.__setattr__(self, "cipher", cipher)
                object.__setattr__(self, "hash", hash_)
            case _:
                raise LocalError(f"no Noise protocol of ours: {self.name!r}")


@dataclass(frozen=True, slots=True)
class HandshakePattern:
    messages: tuple[HandshakeMessage, ...]
    responder_known: bool
    """True if the initiator must know the responder's static key beforehand."""
    psk: bool


@dataclass(frozen=True, slots=True)
class HandshakeMessage:
    tokens: tuple[str, ...]
    overhead: int
    """Bytes that the message is longer than its payload."""
    hides_payload: bool
    """True if only the holder of the peer's static key, or of the pre-shared key, can read the payload."""


def _pattern(*lines: str, responder_known: bool = False) -> HandshakePattern:
    messages = [tuple(line.split()) for line in lines]
    psk = any("psk" in tokens for tokens in messages)
    return HandshakePattern(tuple(_measure_messages(messages, psk)), responder_known, psk)


def _measure_messages(messages: list[tuple[str, ...]], psk: bool) -> Iterable[HandshakeMessage]:
    encrypts = False
    agreed: set[str] = set()
    for number, tokens in enumerate(messages):
        overhead = 0
        for token in tokens:
            match token:
                case "e":
                    overhead += KEY_SIZE
                    encrypts = encrypts or psk
                case "s":
                    overhead += KEY_SIZE + TAG_SIZE * encrypts
                case _:
                    encrypts = True
                    agreed.add(token)
        of_reader = {"es", "ss", "psk"} if number % 2 == 0 else {"se", "ss", "psk"}
        yield HandshakeMessage(tokens, overhead + TAG_SIZE * encrypts, not agreed.isdisjoint(of_reader))


KEY_SIZE: Final = 32
TAG_SIZE: Final = 16
MAX_MESSAGE: Final = 65_535

PATTERNS: Final = {
    "XX": _pattern("e", "e ee s es", "s se"),
    "XXpsk3": _pattern("e", "e ee s es", "s se psk"),
    "IK": _pattern("e es s ss", "e ee se", responder_known=True),
    "IKpsk2": _pattern("e es s ss", "e ee se psk", responder_known=True),
}

CIPHERS: Final = ("ChaChaPoly", "AESGCM")
HASHES: Final = ("BLAKE2s", "BLAKE2b", "SHA256", "SHA512")

XX: Final = NoiseProtocol("Noise_XX_25519_ChaChaPoly_BLAKE2s")
XX_PSK3: Final = NoiseProtocol("Noise_XXpsk3_25519_ChaChaPoly_BLAKE2s")
IK: Final = NoiseProtocol("Noise_IK_25519_ChaChaPoly_BLAKE2s")
IK_PSK2: Final = NoiseProtocol("Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s")
