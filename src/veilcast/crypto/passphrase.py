"""Bytes locked with a passphrase: Argon2id, then a seal.

The stretched passphrase gives two keys. One seals; the other makes a check value in the header. The check value tells a
wrong passphrase from a damaged file, and commits the file to one key, so that no file opens under two passphrases. Cost
parameters travel in the header and are authenticated with it. They are bounded on reading, so a hostile file cannot ask
for all of the machine's memory.

Locked bytes: "VEIL" | version (1) | passes (1) | memory in MiB (2) | salt (16) | check (16) | sealed. The sealed part
is the length (4), the plaintext and zeros. In version 1, which is still read, it is the plaintext alone.
"""

from __future__ import annotations

from typing import Final

import msgspec

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.seal import OVERHEAD, seal, unseal
from veilcast.crypto.secret import Secret
from veilcast.errors import ForgedError, LocalError, PassphraseError, TamperedError
from veilcast.machine import Entropy


class PassphraseCost(msgspec.Struct, frozen=True):
    """The cost of one guess. The default is the second recommendation of RFC 9106: three passes over 64 MiB."""

    passes: int = 3
    memory_mib: int = 64

    def __post_init__(self) -> None:
        if not 1 <= self.passes <= PASSES_MAX or not 1 <= self.memory_mib <= MEMORY_MIB_MAX:
            raise LocalError(f"a passphrase costs 1 to {PASSES_MAX} passes over 1 to {MEMORY_MIB_MAX} MiB")


def lock_bytes(
    plaintext: bytes, passphrase: Secret, *, purpose: bytes, cost: PassphraseCost, entropy: Entropy
) -> bytes:
    return make_lock(passphrase, cost, entropy).lock(plaintext, purpose=purpose, entropy=entropy)


def unlock_bytes(locked: bytes, passphrase: Secret, *, purpose: bytes) -> bytes:
    """The plaintext. Raises `PassphraseError` for a wrong passphrase, `TamperedError` for a damaged file."""
    return open_lock(locked, passphrase).unlock(locked, purpose=purpose)


class PassphraseLock:
    """A stretched passphrase with its header: locks and unlocks again without stretching again.

    An adversary that reads it from memory can open the file. Such an adversary can read the keys from memory, too.
    """

    __slots__ = ("_key", "_parameters")

    def __init__(self, parameters: bytes, key: Secret) -> None:
        self._parameters, self._key = parameters, key

    def fits(self, locked: bytes) -> bool:
        """True if these bytes were locked with this passphrase, salt and cost."""
        return locked[_PARAMETERS:_HEADER] == self._parameters

    def lock(self, plaintext: bytes, *, purpose: bytes, entropy: Entropy, least: int = 0) -> bytes:
        """Lock bytes. They are padded to `least` bytes, doubled as often as needed; with 0 they are not padded."""
        size = max(least, 0) or len(plaintext)
        while size < len(plaintext):
            size *= 2
        padded = len(plaintext).to_bytes(_LENGTH, "big") + plaintext.ljust(size, b"\0")
        header = _MAGIC + bytes((_VERSION,)) + self._parameters
        return header + seal(self._key, padded, context=purpose + header, entropy=entropy)

    def unlock(self, locked: bytes, *, purpose: bytes) -> bytes:
        header, sealed = locked[:_HEADER], locked[_HEADER:]
        try:
            plain = unseal(self._key, sealed, context=purpose + header)
        except ForgedError as error:
            raise TamperedError("the file has been changed or damaged") from error
        if header[len(_MAGIC)] == _UNPADDED:
            return plain
        return plain[_LENGTH : _LENGTH + int.from_bytes(plain[:_LENGTH], "big")]


def make_lock(passphrase: Secret, cost: PassphraseCost, entropy: Entropy) -> PassphraseLock:
    salt = entropy(_SALT)
    key, check = _stretch(passphrase, salt, cost)
    return PassphraseLock(bytes((cost.passes,)) + cost.memory_mib.to_bytes(2, "big") + salt + check, key)


def open_lock(locked: bytes, passphrase: Secret) -> PassphraseLock:
    """The lock of a locked file. Raises `PassphraseError` for a wrong passphrase."""
    if len(locked) < _HEADER + OVERHEAD or locked[: len(_MAGIC)] != _MAGIC or locked[4] not in (_UNPADDED, _VERSION):
        raise TamperedError("not a locked file of a known version")
    parameters = locked[_PARAMETERS:_HEADER]
    try:
        cost = PassphraseCost(parameters[0], int.from_bytes(parameters[1:3], "big"))
    except LocalError as error:
        raise TamperedError("the file's cost parameters are out of bounds") from error
    key, check = _stretch(passphrase, parameters[3 : 3 + _SALT], cost)
    if not hazmat.equal(check, parameters[-_CHECK:]):
        raise PassphraseError("the passphrase does not open the file")
    return PassphraseLock(parameters, key)


def _stretch(passphrase: Secret, salt: bytes, cost: PassphraseCost) -> tuple[Secret, bytes]:
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
_VERSION: Final = 2
_UNPADDED: Final = 1
_LENGTH: Final = 4
_SALT: Final = 16
_CHECK: Final = 16
_PARAMETERS: Final = len(_MAGIC) + 1
_HEADER: Final = _PARAMETERS + 3 + _SALT + _CHECK
