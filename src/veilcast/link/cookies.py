"""Cookies: who brings one back receives at the address that it sends from, and it cost us one hash and no memory.

A cookie is a keyed hash of the address, of what the stranger said, and of the time, under a key of our own. It is good
for the rest of the stretch of time that it was made in, and for the next one.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret
from veilcast.errors import StaleError
from veilcast.machine import Address, Entropy
from veilcast.wire.geometry import COOKIE


class Cookies:
    """Good for `lasts_us` at least, and at most for twice that."""

    def __init__(self, entropy: Entropy, lasts_us: int) -> None:
        self._key, self._lasts_us = Secret(entropy(32)), lasts_us

    def make(self, stranger: Address, nonce: bytes, now: int) -> bytes:
        return self._of(stranger, nonce, now // self._lasts_us).reveal()

    def check(self, stranger: Address, nonce: bytes, cookie: bytes, now: int) -> None:
        """Raise unless we made it, for this stranger and this nonce, not long ago."""
        stretch, shown = now // self._lasts_us, Secret(cookie)
        if all(self._of(stranger, nonce, at) != shown for at in (stretch, stretch - 1)):
            raise StaleError("not a cookie of ours, or an old one")

    def _of(self, stranger: Address, nonce: bytes, stretch: int) -> Secret:
        made = derive(self._key, _PURPOSE, stranger.encode(), nonce, stretch.to_bytes(8, "big"))
        return Secret(made.reveal()[:COOKIE])


_PURPOSE: Final = b"vc/knock-cookie"
