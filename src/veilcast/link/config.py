"""How a node keeps its links."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

from veilcast.errors import ConfigError
from veilcast.link.pacing import RATES

Wire: TypeAlias = Literal["cells", "prompt"]


class LinkConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The defaults are those of the hardened profile."""

    wire: Wire = "cells"
    """"cells": all that leaves is of one size, at one rate; "prompt": every message leaves at once in datagrams as long
    as it needs, encrypted and no more, as P0 has it."""
    rate: int = 4
    """Cells a second to each peer."""
    links_max: int = 64
    """Peers at a time."""

    def __post_init__(self) -> None:
        if self.rate not in RATES:
            raise ConfigError(f"link.rate must be one of {', '.join(map(str, RATES))}")
        if not 1 <= self.links_max <= LINKS_MAX:
            raise ConfigError(f"link.links_max must be between 1 and {LINKS_MAX}")


LINKS_MAX: Final = 128
"""As many as can knock at a time."""
