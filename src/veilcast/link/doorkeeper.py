"""The doorkeeper: what those who want a link may cost us, before any operation on a curve.

Two gates. The first is for letters from addresses that anybody may have written on them: they get a cookie at most,
which is one letter for one letter and leaves nothing behind. The second is for those who bring a cookie back, and so
receive where they send from: these cost a handshake. Each gate has a rate for every host, so that one who asks too
often leaves room for others, and one for all together, so that many cannot take more of us than we can spare. Whose
address others write on letters to the first gate loses nothing at the second.

A cookie is asked for always, not only under load: it takes one round trip, once, as links renew their keys inside. In
exchange there is no load to measure, no other behaviour under attack, and nothing to remember of anybody unproven.
"""

from __future__ import annotations

from typing import Final

from veilcast.errors import ExcessError
from veilcast.link.bucket import TokenBucket
from veilcast.link.cookies import Cookies
from veilcast.link.doorbell import Doorbell
from veilcast.link.hosts import Host, host_of
from veilcast.machine import Address, Entropy


class Doorkeeper:
    """Raises `RemoteError` for whom it turns away."""

    def __init__(self, entropy: Entropy, host: Host = host_of) -> None:
        self._cookies = Cookies(entropy, COOKIE_US)
        self._host = host
        self._strangers = Gate(STRANGERS_EVERY_US, STRANGERS_BURST)
        self._proven = Gate(PROVEN_EVERY_US, PROVEN_BURST)

    def cookie(self, source: Address, thread: bytes, now: int) -> bytes:
        """A cookie for who says it is at `source`, and how often it may ask for one."""
        self._strangers.pass_through(self._host(source), now)
        return self._cookies.make(source, thread, now)

    def admit(self, source: Address, thread: bytes, cookie: bytes, now: int) -> None:
        """Raise unless this is our cookie, and the source may have a handshake now."""
        self._cookies.check(source, thread, cookie, now)
        self._proven.pass_through(self._host(source), now)


class Gate:
    """A rate for each host, and one for all."""

    def __init__(self, every_us: int, burst: int) -> None:
        self._each = Doorbell(HOST_EVERY_US, HOST_BURST)
        self._all = TokenBucket(every_us, burst)

    def __len__(self) -> int:
        """Hosts that are remembered."""
        return len(self._each)

    def pass_through(self, host: str, now: int) -> None:
        self._each.ring(host, now)
        if not self._all.take(now):
            raise ExcessError("more want a link than we can spare the time for")


HOST_EVERY_US: Final = 50_000
HOST_BURST: Final = 5
"""20 handshakes a second from one host, and 5 at once."""

STRANGERS_EVERY_US: Final = 5_000
STRANGERS_BURST: Final = 64
"""Cookies: some 15 microseconds each, so a third of a percent of our time."""

PROVEN_EVERY_US: Final = 20_000
PROVEN_BURST: Final = 32
"""Handshakes: about a millisecond each, so a twentieth of our time."""

COOKIE_US: Final = 10_000_000
