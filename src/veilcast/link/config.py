"""Settings of the links of a node."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.link.pacing import RATES

Wire: TypeAlias = Literal["cells", "prompt"]


class LinkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults are those of the hardened profile."""

    wire: Wire = "cells"
    """"cells": every datagram has one size and leaves at one rate. "prompt": every message leaves at once, in datagrams
    of the length that it needs, encrypted and no more, as in P0."""
    rate: int = 4
    """Cells per second to each peer."""
    links_max: int = 64
    """Largest number of links at a time."""

    def __post_init__(self) -> None:
        if self.rate not in RATES:
            raise ConfigError(f"link.rate must be one of {', '.join(map(str, RATES))}")
        if not 1 <= self.links_max <= LINKS_MAX:
            raise ConfigError(f"link.links_max must be between 1 and {LINKS_MAX}")


LINKS_MAX: Final = 128
"""The bound on handshakes in progress."""
