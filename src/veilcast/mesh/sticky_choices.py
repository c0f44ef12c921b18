"""Sticky choices: choices that a node makes once and keeps, drawn with a secret key and so never stored.

Every fresh choice is one more sample for an observer. Covers that are redrawn, parents that change and stems that start
another way reveal in fifty epochs what each of them hides in one. So every lasting choice is a pseudo-random function
of the node's own secret and of what is chosen: it is the same after a restart, and no other node can predict it.

A neighbour's identity is its certified link key, so a member has one rank from however many addresses it comes. Without
certificates the identity is the address, and the owner has named it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from veilcast.crypto.derive import derive
from veilcast.crypto.secret import Secret


class StickyChoices:
    """Drawn from the secret half of a member's link key."""

    def __init__(self, link: Secret) -> None:
        self._key = derive(link, b"vc/habits")
        # Called for every offer of every advertisement. A pure function, so the cache may evict.
        self._ranked = lru_cache(maxsize=_RANKS_MAX)(self._rank)

    def parent_rank(self, lineage: bytes, neighbour: bytes) -> int:
        """Rank of this neighbour as a parent in the meshes of this lineage. Smaller is preferred."""
        return self._ranked(b"vc/parents", lineage, neighbour)

    def choose_first_relay(self, neighbours: Iterable[bytes], lineage: bytes = b"") -> bytes | None:
        """The identity to choose as the first relay."""
        return min(neighbours, key=lambda identity: self._ranked(b"vc/stems", lineage, identity), default=None)

    def relay_rank(self, predecessor: bytes, neighbour: bytes) -> int:
        """Rank of a neighbour as the next hop after this predecessor. Smaller is preferred."""
        return self._ranked(b"vc/relays", predecessor, neighbour)

    def continues_stem(self, predecessor: bytes, probability: float) -> bool:
        """True if a stem from the neighbour with this identity goes on past this node; False if it ends here."""
        return self._ranked(b"vc/coins", predecessor, b"") < probability * _RANKS

    def is_cover(self, lineage: bytes, share: float) -> bool:
        """True if this node acts as a subscriber of this lineage without a grant, for as long as it keeps its key.

        A cover that ended would distinguish covers from subscribers that stay: with a mean life of 200 epochs the AUC
        of insiders rises to .63 after 720. With covers for life, all that insiders can ever find is who acts. So their
        AUC is at most 1 - share / 2, however long they watch.
        """
        return self._ranked(b"vc/covers", lineage, b"") < share * _RANKS

    def send_offset_us(self, lineage: bytes, stretch: int, within_us: int) -> int:
        """Offset of this lineage's send slot from the beginning of a stretch, in microseconds."""
        return self._at(b"vc/moments", lineage, stretch) * within_us // _RANKS

    def _at(self, purpose: bytes, lineage: bytes, epoch: int) -> int:
        return self._ranked(purpose, lineage, epoch.to_bytes(8, "big"))

    def _rank(self, purpose: bytes, about: bytes, choice: bytes) -> int:
        return int.from_bytes(derive(self._key, purpose, about, choice).reveal()[:8], "big")


_RANKS: Final = 1 << 64
_RANKS_MAX: Final = 4096
