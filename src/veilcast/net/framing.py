"""How a stream of bytes holds frames: what goes before each on its way out, and what cuts them out again.

It is one thing that differs between those whom a driver of streams talks to; what they are wrapped in (`wrap`) is the
other. Our own processes send records (`records`). Others have a protocol of their own, whose packets say themselves how
long they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol


class Cutter(Protocol):
    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The frames that end in this chunk. `ExcessError` where one is too long; `MalformedError` for bytes that no
        frames are made of."""


class Framing(NamedTuple):
    cutter: Callable[[int], Cutter]
    """Made from the bytes that one frame may have."""
    head: Callable[[bytes], bytes]
    """What goes before a frame."""
    welcome: bool
    """Whether who is called sends an empty frame to say that the caller is let in."""
