"""What a driver of streams takes on, of strangers, of members and in all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The defaults are for a host of thousands; who only calls has no use for most of them."""

    record_max: int = 1 << 18
    """Bytes of one record, in either direction."""
    write_max: int = 16 << 20
    """Bytes that wait for one peer to read; who lets more gather is dropped. A machine that may have more under way
    to one peer holds back by itself."""
    waiting_max: int = 256 << 20
    """Bytes that wait for all of them; past it, the one with the most is dropped."""
    callers: int = 4096
    """Streams of those who called us."""
    calls: int = 64
    """Peers that we call, or try to."""
    handshakes: int = 256
    """Of strangers, at a time; the oldest gives way to a new one."""
    handshake_s: float = 5.0
    """For all of it, from the connection to the welcome."""
    backoff_s: float = 0.25
    """At most so long before a peer is called again; doubles with every failure."""
    backoff_max_s: float = 30.0
    review_s: float = 10.0
    """How often the certificate of everybody who is here is looked at again. In the same time, a peer for whom
    something waits must have read some of it."""
