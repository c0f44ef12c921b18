from __future__ import annotations

import pytest
from nacl import bindings as sodium
from nacl import exceptions as sodium_errors

from veilcast.crypto import _primitives as hazmat
from veilcast.crypto.passphrase import MEMORY_MIB_MAX, PASSES_MAX, PassphraseCost, lock_bytes, unlock_bytes
from veilcast.crypto.secret import Secret
from veilcast.errors import LocalError, PassphraseError, TamperedError, VeilcastError
from veilcast.machine import Entropy

CHEAP = PassphraseCost(passes=1, memory_mib=1)
RIGHT, WRONG = Secret(b"correct horse"), Secret(b"battery staple")


def test_the_right_passphrase_opens_and_a_wrong_one_differs_from_damage(entropy: Entropy) -> None:
    locked = lock_bytes(b"keys", RIGHT, purpose=b"p", cost=CHEAP, entropy=entropy)
    assert unlock_bytes(locked, RIGHT, purpose=b"p") == b"keys"
    with pytest.raises(PassphraseError):
        unlock_bytes(locked, WRONG, purpose=b"p")
    with pytest.raises(TamperedError):
        unlock_bytes(locked[:-1] + bytes([locked[-1] ^ 1]), RIGHT, purpose=b"p")
    with pytest.raises(TamperedError):
        unlock_bytes(locked, RIGHT, purpose=b"another kind of file")


def test_no_changed_byte_and_no_cut_gives_anything_but_an_error_of_ours(entropy: Entropy) -> None:
    locked = lock_bytes(b"keys", RIGHT, purpose=b"p", cost=CHEAP, entropy=entropy)
    for position in range(len(locked)):
        # Bytes 5 to 7 are the cost: a larger one would only be slow, and one past the bounds is tested below.
        change = 1 if position not in (5, 6, 7) else 0
        changed = bytearray(locked)
        changed[position] ^= change
        if change:
            with pytest.raises(VeilcastError):
                unlock_bytes(bytes(changed), RIGHT, purpose=b"p")
    for length in range(len(locked)):
        with pytest.raises(VeilcastError):
            unlock_bytes(locked[:length], RIGHT, purpose=b"p")


def test_a_hostile_file_cannot_ask_for_endless_work(entropy: Entropy) -> None:
    locked = bytearray(lock_bytes(b"keys", RIGHT, purpose=b"p", cost=CHEAP, entropy=entropy))
    for passes, memory in ((PASSES_MAX + 1, 1), (0, 1), (1, MEMORY_MIB_MAX + 1), (1, 0)):
        locked[5], locked[6:8] = passes, memory.to_bytes(2, "big")
        with pytest.raises(TamperedError):
            unlock_bytes(bytes(locked), RIGHT, purpose=b"p")
        with pytest.raises(LocalError):
            PassphraseCost(passes, memory)


@pytest.mark.parametrize("failure", [MemoryError(), sodium_errors.RuntimeError("key derivation")], ids=repr)
def test_without_enough_memory_the_error_says_how_much_is_needed(
    failure: Exception, entropy: Entropy, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked = lock_bytes(b"keys", RIGHT, purpose=b"p", cost=CHEAP, entropy=entropy)

    def fail(*_: object) -> bytes:
        raise failure

    monkeypatch.setattr(sodium, "crypto_pwhash_alg", fail)
    with pytest.raises(LocalError, match=r"memory.* 1 MiB"):
        unlock_bytes(locked, RIGHT, purpose=b"p")
    with pytest.raises(LocalError, match=r"memory.* 64 MiB"):
        lock_bytes(b"keys", RIGHT, purpose=b"p", cost=PassphraseCost(), entropy=entropy)


def test_two_locks_of_the_same_bytes_have_nothing_in_common(entropy: Entropy) -> None:
    first = lock_bytes(b"keys", RIGHT, purpose=b"p", cost=CHEAP, entropy=entropy)
    second = lock_bytes(b"keys", RIGHT, purpose=b"p", cost=CHEAP, entropy=entropy)
    assert first[8:] != second[8:]
    assert b"keys" not in first


def test_argon2id_agrees_with_an_independent_implementation() -> None:
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    salt = bytes(range(16))
    theirs = Argon2id(salt=salt, length=48, iterations=2, lanes=1, memory_cost=8 * 1024).derive(b"passphrase")
    assert hazmat.argon2id(b"passphrase", salt, size=48, passes=2, memory_bytes=8 << 20) == theirs
