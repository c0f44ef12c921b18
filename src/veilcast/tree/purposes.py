"""Purposes: what a stream is for, as a part of its peer's name.

Pure. Who dials two purposes dials two streams (`parts.ways`), and the anonymous network takes each another way. So
whoever is reached for two cannot tell that it was by one node; what must not be linked to anything else has a fresh
purpose.
"""

from __future__ import annotations

from typing import Final

from veilcast.machine import Entropy


def fresh(purpose: str, entropy: Entropy) -> str:
    """A purpose that serves once."""
    return f"{purpose}-{entropy(_FRESH).hex()}"


DIRECTORY: Final = "directory"
"""To be listed: one stream, on which a node says who it is."""

FETCH: Final = "fetch"
"""To get the listing, and made fresh each time: whoever could tell who asks could show it a listing of its own."""

HOP: Final = "hop"
"""One stream to each parent, for all that climbs there."""

PUBLISH: Final = "publish"
INSTALL: Final = "install"
PROBE: Final = "probe"
"""These three are made fresh each time."""

_FRESH: Final = 16
