"""Cookies: a stranger that returns one receives at its claimed address. A cookie costs one hash and no memory.

A cookie is a keyed hash of the address, the stranger's nonce and the time, under a secret key of this node. It is valid
for the rest of the time interval in which it was made, and for the next interval.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import StaleError
from veilcast.machine import Address, Entropy
from veilcast.wire.geometry import COOKIE


class Cookies:
    """Cookies that are valid for at least `lasts_us`, and at most for twice that."""

    def __init__(self, entropy: Entropy, lasts_us: int) -> None:
        self._key, self._lasts_us = Secret(entropy(32)), lasts_us

    def make(self, stranger: Address, nonce: bytes, now: int) -> bytes:
        return self._of(stranger, nonce, now // self._lasts_us).reveal()

    def check(self, stranger: Address, nonce: bytes, cookie: bytes, now: int) -> None:
        """Raise unless this node made the cookie for this stranger and nonce within the last two intervals."""
        stretch, shown = now // self._lasts_us, Secret(cookie)
        if all(self._of(stranger, nonce, at) != shown for at in (stretch, stretch - 1)):
            raise StaleError("not a cookie of ours, or an old one")

    def _of(self, stranger: Address, nonce: bytes, stretch: int) -> Secret:
        made = derive(self._key, _PURPOSE, stranger.encode(), nonce, stretch.to_bytes(8, "big"))
        return Secret(made.reveal()[:COOKIE])


_PURPOSE: Final = b"vc/knock-cookie"
