"""Limits of the attempts to open links in a certified neighbourhood. Periods are heartbeats."""

from __future__ import annotations

from typing import Final

TRIES_MAX: Final = 4
LOOKS_MAX: Final = 32
"""Simultaneous tries after most neighbours fell silent: with one in five addresses alive, some are found."""
LONELY_LEAST: Final = 4
LONELY_SHARE: Final = 3
"""A node is lonely if it has at least `LONELY_LEAST` links and hears less than one in `LONELY_SHARE` of them."""
PATIENCE_PERIODS: Final = 8
"""Heartbeats that a try may take: four messages, one in each, and a margin for the network."""
REST_PERIODS: Final = 60
"""Heartbeats for which a node that had no room is not tried again."""
RESTING_MAX: Final = 64
FAILED_MAX: Final = 16
FAILED_PERIODS: Final = 3600
"""Heartbeats for which a failed node is tried again at intervals."""
ISOLATION_PERIODS: Final = 20
"""Heartbeats without one from others, after which a node drops all links and begins again."""
