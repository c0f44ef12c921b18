"""Tokens: what a topic is called on the wire, so that only holders of its key can link the two.

Paper (P1, section 2.1): t_a = enc(a, K_a), deterministic, so forwarders match by comparing bytes. We encrypt a 16-byte
digest of the attribute with AES-SIV, so that every token has one size; nobody ever decrypts a token. Such a token never
changes, and so becomes a pseudonym of the topic. Hardened: a pseudorandom function of attribute and epoch under the
epoch's key; tokens of two epochs cannot be linked without the keys.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.secret import Secret


def paper_token(key: Secret, attribute: str) -> bytes:
    digest = hazmat.blake2b(attribute.encode(), size=TOKEN - _SIV, person=b"vc/paper-token")
    # AES-SIV wants two keys; the topic key is stretched for them, so that one 32-byte key serves both profiles.
    siv_key = hazmat.blake2b(b"", size=64, key=key.reveal(), person=b"vc/siv-key")
    return hazmat.siv_encrypt(siv_key, digest, b"token")


def epoch_token(key: Secret, attribute: str, epoch: int) -> bytes:
    message = epoch.to_bytes(8, "big") + attribute.encode()
    return hazmat.blake2b(message, size=TOKEN, key=key.reveal(), person=b"vc/epoch-token")


TOKEN: Final = 32
_SIV: Final = 16
