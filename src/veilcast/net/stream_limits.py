"""The limits of a stream driver: for strangers, for each peer and in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veilcast.errors import ConfigError
from veilcast.net.driver import FRAMES


@dataclass(frozen=True, kw_only=True)
class StreamLimits:
    """The defaults fit a host with thousands of peers; a member that only dials needs few of them."""

    record_max: int = 1 << 16
    """Bytes of one record, in either direction."""
    write_max: int = 16 << 20
    """Unsent bytes of one peer; a peer with more is disconnected."""
    patience_s: float = 0.05
    """Seconds that the machine waits for one peer whose unsent bytes pass a quarter of `write_max`. One peer can delay
    all others for this time. A process with few peers that needs each of them can allow more."""
    waiting_max: int = 256 << 20
    """Unsent bytes of all peers together; beyond it, the peer with the most is disconnected."""
    callers: int = 16_384
    """Inbound streams of peers that were let in."""
    calls: int = 64
    """Peers that this process dials."""
    handshakes: int = 256
    """Concurrent handshakes of strangers; `handshake_slots` decides which one gives way to a new one."""
    handshake_s: float = 5.0
    """Seconds from the connection to the welcome."""
    backoff_s: float = 0.25
    """Longest pause, in seconds, before a peer is dialled again; doubles with every failure."""
    backoff_max_s: float = 30.0
    review_s: float = 10.0
    """Seconds between two reviews. A review checks the certificates of all connected peers again, and disconnects a
    peer that has unsent bytes and has read nothing since the last review."""

    def __post_init__(self) -> None:
        if self.frames_per_turn < 1:
            raise ConfigError("write_max must be several times record_max")

    @property
    def high_water(self) -> int:
        """Unsent bytes of one peer at which the machine starts to wait for it."""
        return self.write_max // 4

    @property
    def frames_per_turn(self) -> int:
        """Frames of one turn that may all go to one peer, whatever their sizes, without exceeding `write_max` if the
        peer was below the high-water mark."""
        return min(FRAMES, (self.write_max - self.high_water) // (self.record_max + OVERHEAD))


OVERHEAD: Final = 32
"""Bytes, more than the length and TLS add to a record: TLS adds 22 bytes to every 16,384."""
