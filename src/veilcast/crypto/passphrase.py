"""Locking bytes with a passphrase: Argon2id, then a seal.

The stretched passphrase gives two keys: one seals, one makes a check value in the header. The check tells a wrong
passphrase from a damaged file, and commits the file to one key, so that no file opens under two passphrases. Cost
parameters travel in the header, authenticated with it, and are bounded on reading: a hostile file cannot ask for all of
the machine's memory.

Locked bytes: "VEIL" | version (1) | passes (1) | memory in MiB (2) | salt (16) | check (16) | sealed.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError, PassphraseError, TamperedError
from veilcast.machine import Entropy


class Cost(msgspec.Struct, frozen=True):
    """What one guess costs. The default is the second recommendation of RFC 9106: three passes over 64 MiB."""

    passes: int = 3
    memory_mib: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= PASSES_MAX or not 1 <= self.memory_mib <= MEMORY_MIB_MAX:
            raise LocalError(f"a passphrase costs 1 to {PASSES_MAX} passes over 1 to {MEMORY_MIB_MAX} MiB")


def lock(plaintext: bytes, passphrase: Secret, *, purpose: bytes, cost: Cost, entropy: Entropy) -> bytes:
    salt = entropy(_SALT)
    key, check = _stretch(passphrase, salt, cost)
    header = _MAGIC + bytes((_VERSION, cost.passes)) + cost.memory_mib.to_bytes(2, "big") + salt + check
    return header + seal(key, plaintext, context=purpose + header, entropy=entropy)


def unlock(locked: bytes, passphrase: Secret, *, purpose: bytes) -> bytes:
    """Give the plaintext back; `PassphraseError` for the wrong passphrase, `TamperedError` for a damaged file."""
    if len(locked) < _HEADER + OVERHEAD or not locked.startswith(_MAGIC + bytes((_VERSION,))):
        raise TamperedError("not a locked file of a known version")
    header, sealed = locked[:_HEADER], locked[_HEADER:]
    passes, memory_mib = header[5], int.from_bytes(header[6:8], "big")
    try:
        cost = Cost(passes, memory_mib)
    except LocalError as error:
        raise TamperedError("the file's cost parameters are out of bounds") from error
    key, check = _stretch(passphrase, header[8 : 8 + _SALT], cost)
    if not hazmat.equal(check, header[-_CHECK:]):
        raise PassphraseError("the passphrase does not open the file")
    try:
        return unseal(key, sealed, context=purpose + header)
    except ForgedError as error:
        raise TamperedError("the file has been changed or damaged") from error


def _stretch(passphrase: Secret, salt: bytes, cost: Cost) -> tuple[Secret, bytes]:
    try:
        stretched = hazmat.argon2id(
            passphrase.reveal(), salt, size=32 + _CHECK, passes=cost.passes, memory_bytes=cost.memory_mib << 20
        )
    except (MemoryError, RuntimeError) as error:
        # libsodium fails in one way only once the parameters are in bounds: it gets no memory.
        raise LocalError(
            f"not enough memory to stretch the passphrase: {cost.memory_mib} MiB are needed; "
            "free some or raise this process's limit, and try again"
        ) from error
    return Secret(stretched[:32]), stretched[32:]


PASSES_MAX: Final = 10
MEMORY_MIB_MAX: Final = 1024
_MAGIC: Final = b"VEIL"
_VERSION: Final = 1
_SALT: Final = 16
_CHECK: Final = 16
_HEADER: Final = len(_MAGIC) + 4 + _SALT + _CHECK
