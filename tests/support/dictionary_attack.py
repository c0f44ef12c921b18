"""A dictionary attack: all names that an adversary computes from a guessed text and from keys that it holds."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import veilcast
from veilcast.crypto.derive import derive, digest
from veilcast.crypto.secret import Secret

SIZES = (8, 10, 12, 16, 20, 32)


def keyless_names(text: str, keys: Iterable[Secret] = ()) -> set[bytes]:
    """Eight bytes of each digest of `text`: plain, for every purpose that the code knows, and under each key."""
    told, held = text.encode(), list(keys)
    names = {hash_of(told).digest()[:8] for hash_of in (hashlib.sha256, hashlib.sha512, hashlib.blake2b, hashlib.sha1)}
    for purpose in _purposes():
        for size in SIZES:
            names.add(digest(told, purpose=purpose, size=size)[:8])
            for key in held:
                names.add(derive(key, purpose, told, size=size).reveal()[:8])
                names.add(derive(key, purpose, size=size).reveal()[:8])
    return names


@cache
def _purposes() -> list[bytes]:
    source = Path(veilcast.__file__).parent
    found = {each for path in source.rglob("*.py") for each in re.findall(r'b"(vc/[\w-]+)"', path.read_text())}
    assert len(found) > 60, "the code names its purposes in another way now"
    return sorted(each.encode() for each in found if len(each) <= 16)
