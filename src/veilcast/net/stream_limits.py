"""What a driver of streams takes on, of strangers, of members and in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veilcast.errors import ConfigError
from veilcast.net.driver import FRAMES


@dataclass(frozen=True, kw_only=True)
class StreamLimits:
    """The defaults are for a host of thousands; who only calls has no use for most of them."""

    record_max: int = 1 << 16
    """Bytes of one record, in either direction."""
    write_max: int = 16 << 20
    """Bytes that wait for one peer to read; who lets more gather is dropped."""
    patience_s: float = 0.05
    """When a quarter of that has gathered, the machine is asked for nothing more until it is gone, but no longer than
    this: for as long, one peer can hold up all others. Who has few peers, and needs each, can have more of it."""
    waiting_max: int = 256 << 20
    """Bytes that wait for all of them; past it, the one with the most is dropped."""
    callers: int = 16_384
    """Streams of those who called us."""
    calls: int = 64
    """Peers that we call, or try to."""
    handshakes: int = 256
    """Handshakes of strangers at a time; `handshake_slots` says which gives way to a new one."""
    handshake_s: float = 5.0
    """For all of it, from the connection to the welcome."""
    backoff_s: float = 0.25
    """At most so long before a peer is called again; doubles with every failure."""
    backoff_max_s: float = 30.0
    review_s: float = 10.0
    """How often the certificate of everybody who is here is looked at again. In the same time, a peer for whom
    something waits must have read some of it."""

    def __post_init__(self) -> None:
        if self.frames_per_turn < 1:
            raise ConfigError("write_max must be several times record_max")

    @property
    def high_water(self) -> int:
        """Bytes for one peer at which it is time to be patient."""
        return self.write_max // 4

    @property
    def frames_per_turn(self) -> int:
        """Frames that can be for one peer, whatever their sizes, with nobody dropped who was below the mark."""
        return min(FRAMES, (self.write_max - self.high_water) // (self.record_max + OVERHEAD))


OVERHEAD: Final = 32
"""More than length and TLS add to a record, on the whole: TLS adds 22 bytes to every 16,384."""
