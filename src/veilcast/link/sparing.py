"""Sparing: which link makes room for another, when there are as many as there may be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from veilcast.link.link import Link
from veilcast.link.pacing import SECOND_US


def to_spare(links: Collection[Link], now: int) -> Link | None:
    """None if none can be spared.

    First one of a peer that knocks from many places and has not used its keys. Then the one that our machine has had no
    use for the longest; what strangers say on theirs does not keep a place for them.
    """
    lines = {link.name: link.line.generations for link in links if link.line is not None}
    places = Counter(line.remote for line in lines.values())
    for link in links:
        line = lines.get(link.name)
        if line is not None and not link.up and not line.began and places[line.remote] > 1:
            return link
    spare = min(links, key=_useless_since)
    return spare if now - _useless_since(spare) >= SPARE_US else None


def _useless_since(link: Link) -> int:
    """A peer that does not answer is of no use, however much we have to say to it."""
    return link.said_us if link.up else link.since_us


SPARE_US: Final = 10 * SECOND_US
"""How long a link must have been of no use."""
