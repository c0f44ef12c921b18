"""When a node may replace its first relay; the rules' meaning is in `first_relay`."""

from __future__ import annotations

from typing import Literal

import msgspec

from veilcast.errors import ConfigError


class RelayRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All times are epochs of the node's own uptime, in which it hears neighbours."""

    rule: Literal["kept", "any"] = "kept"
    """"any" is a weakness for the lab to measure: the neighbour whose address ranks first, whoever came last."""
    away_epochs: int = 72
    """How long the first relay must have been away without a break before it is replaced: three days."""
    refill_epochs: int = 1440
    """One replacement is earned in this time: sixty days."""
    spares: int = 2
    """Replacements that a node may have saved up, and has at its first start."""

    def __post_init__(self) -> None:
        for name in ("away_epochs", "refill_epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"hardening.relay.{name} must be at least 1")
        if self.spares < 0:
            raise ConfigError("hardening.relay.spares must not be negative")
