"""Links: when a frame arrives, and whether it does.

The latency of a link is drawn once from the quantiles of `LinkDelays.latency_us`, the same in both directions. Each
frame adds a draw from `LinkDelays.jitter_us`. Frames of one link keep their order, with jitter, too. Only the weather
breaks it: the rates of loss, duplication, reordering and replay on all links, in parts per million. Replay is an
adversary that listens everywhere and sends old frames again.

The random words of a frame are one keyed hash of (link, number of earlier frames). This needs no generator for each
link, and makes a frame's fate independent of all other links.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from struct import Struct as Packed
from typing import TYPE_CHECKING, Any, Final

import msgspec

from veilcast.errors import ConfigError
from veilcast.machine import Address
from veilcast.sim.rng import derive_bytes, draw_quantile, happens

if TYPE_CHECKING:
    from veilcast.sim.host import SimulatedHost


class LinkDelays(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Delays of frames, as evenly spaced quantiles: one number is a constant, two are a uniform range."""

    latency_us: tuple[int, ...] = (10_000, 100_000)
    """Drawn once for each link; at least 1, so that time passes whatever machines send."""
    jitter_us: tuple[int, ...] = (0,)
    """Drawn for each frame and added."""
    wander_us: int = 0
    """Each direction of a link is up to this much slower at times: a draw every `wander_every_us`, and a straight line
    from each to the next."""
    wander_every_us: int = 600_000_000

    def __post_init__(self) -> None:
        for name, points, least in (("latency_us", self.latency_us, 1), ("jitter_us", self.jitter_us, 0)):
            if not points or points[0] < least or list(points) != sorted(points):
                raise ConfigError(f"links.{name} must be rising quantiles, the first at least {least}")
        if self.wander_us < 0 or self.wander_every_us < 1:
            raise ConfigError("links.wander_us must not be negative, and links.wander_every_us must be at least 1")

    @property
    def is_constant(self) -> bool:
        return self.jitter_us == (0,) and not self.wander_us

    def latency_between(self, u: Address, v: Address, seed: int) -> int:
        low, high = sorted((u, v))
        return draw_quantile(self.latency_us, int.from_bytes(derive_bytes(seed, "latency", low, high)[:8], "little"))


class Weather(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Faults of every link: rates in parts per million of frames, and the longest delay of a reordered or replayed
    frame."""

    loss_ppm: int = 0
    duplicate_ppm: int = 0
    reorder_ppm: int = 0
    reorder_us: int = 0
    replay_ppm: int = 0
    replay_us: int = 0

    def __post_init__(self) -> None:
        for name in ("loss_ppm", "duplicate_ppm", "reorder_ppm", "replay_ppm"):
            if not 0 <= getattr(self, name) <= 1_000_000:
                raise ConfigError(f"{name} must be between 0 and 1000000")
        for kind in ("reorder", "replay"):
            late_us = getattr(self, f"{kind}_us")
            if late_us < 0 or (getattr(self, f"{kind}_ppm") and not late_us):
                raise ConfigError(f"{kind}_us must say how late a frame of that kind may be")


class DirectedLink:
    """One direction of a link: its target, and the state of its frames."""

    __slots__ = (
        "_frames",
        "_key",
        "_latest",
        "back",
        "blocks",
        "connection",
        "connections",
        "latency_us",
        "number",
        "source",
        "target",
        "waiting",
    )

    def __init__(self, number: int, source: Address, target: SimulatedHost, latency_us: int) -> None:
        self.number = number
        self.source = source
        """The name by which the target knows the sender."""
        self.target = target
        self.back: DirectedLink | None = None
        """The other direction, for a stream whose ends do not know each other's addresses (`AnonymousLinkEngine`)."""
        self.latency_us = latency_us
        self.connection = DISCONNECTED
        self.connections = 0  # Number of connections so far, which identifies the current or last one.
        # Notices that a block has stopped; the last two are enough: a loss and a return.
        self.waiting: deque[Callable[[Any, int], None]] | None = None
        self.blocks = 0  # Partitions that block it now.
        self._key = b""
        self._frames = 0
        self._latest = 0  # The arrival that later frames must not overtake.

    def wait(self, notice: Callable[[Any, int], None]) -> None:
        """Keep a notice until the link is open again."""
        if self.waiting is None:
            self.waiting = deque(maxlen=2)
        self.waiting.append(notice)

    def arrivals(self, time: int, seed: int, delays: LinkDelays, weather: Weather) -> tuple[int, ...]:
        """The arrival times of a frame sent at `time`: none, one, or more."""
        if not self._key:
            self._key = derive_bytes(seed, "link", self.source, self.target.address)
        words = _WORDS.unpack(blake2b(self._frames.to_bytes(8, "little"), key=self._key).digest())
        self._frames += 1
        if self.blocks or happens(weather.loss_ppm, words[0]):
            return ()
        delay_us = self.latency_us + draw_quantile(delays.jitter_us, words[1])
        if delays.wander_us:
            delay_us += self._wander_us(time, delays)
        arrival = max(self._latest, time + delay_us)
        if happens(weather.reorder_ppm, words[2]):
            arrival += draw_quantile((1, weather.reorder_us), words[3])
        else:
            self._latest = arrival
        arrivals: tuple[int, ...] = (arrival,)
        if happens(weather.duplicate_ppm, words[4]):
            arrivals += (arrival + draw_quantile((1, self.latency_us), words[5]),)
        if happens(weather.replay_ppm, words[6]):
            arrivals += (arrival + draw_quantile((1, weather.replay_us), words[7]),)
        return arrivals

    def _wander_us(self, time: int, delays: LinkDelays) -> int:
        number, rest = divmod(time, delays.wander_every_us)
        before, after = (
            int.from_bytes(blake2b(b"wander %d" % each, key=self._key, digest_size=4).digest(), "little") / 2**32
            for each in (number, number + 1)
        )
        return int(delays.wander_us * (before + (after - before) * rest / delays.wander_every_us))


CALM: Final = Weather()
DISCONNECTED: Final = 0
CONNECTED: Final = 1
"""A machine asked for this connection; it ends when either machine dies."""
ALWAYS_CONNECTED: Final = 2
"""The world's owner made this connection; a restarted machine has it again."""
_WORDS: Final = Packed("<8Q")
