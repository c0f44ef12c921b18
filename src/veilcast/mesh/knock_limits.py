"""How often and for how long a node of certified members knocks at others; periods are heartbeats."""

from __future__ import annotations

from typing import Final

TRIES_MAX: Final = 4
LOOKS_MAX: Final = 32
"""Tries at once of one whose neighbours fell silent together: one in five still there is enough to find some."""
LONELY_LEAST: Final = 4
LONELY_SHARE: Final = 3
"""Lonely is who has some links and hears of less than a third."""
PATIENCE_PERIODS: Final = 8
"""Heartbeats that a try may take: four words, each in one, and some for the way."""
REST_PERIODS: Final = 60
"""Heartbeats for which one that had no room for us is left alone."""
RESTING_MAX: Final = 64
FAILED_MAX: Final = 16
FAILED_PERIODS: Final = 3600
"""Heartbeats for which one that failed is tried again now and then."""
ISOLATION_PERIODS: Final = 20
"""Heartbeats without any from others, after which we give up all links and begin anew."""
