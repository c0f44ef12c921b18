"""Routes: for every topic that was advertised, the ways back to each origin, nearest first.

An origin is known by its hash chain (P1 2.1): two adverts for one token are of the same origin if hashing leads from
one value to the other, and the value that comes first was nearer. Of each origin a node keeps the nearest value it ever
saw, and one offer per neighbour, as the number of hops that it is further.

Subscriptions follow the nearest offer. When that is lost, only an offer at most one hop further than the nearest value
ever seen may take its place: whoever made it was no further from the origin than we were at our nearest, so its own way
did not lead through us. Anything further might, and following it could make a loop that feeds itself. An origin without
such an offer is kept as unreachable, so that its stale copies are known for what they are; the way back in is a fresh
chain, which the origin starts when it hears that somebody lost the old one.
"""

from __future__ import annotations

from typing import Final

from veilcast.crypto import chain
from veilcast.machine import Address
from veilcast.wire.messages import Advert


class Origin:
    """One advertised origin; `value` is the nearest of its chain that we ever saw. Our own has no offers."""

    __slots__ = ("advert", "appealed_us", "offers", "own", "value")

    def __init__(self, advert: Advert, via: Address | None) -> None:
        self.advert = advert
        self.value = advert.value
        self.own = via is None
        self.offers: dict[Address, int] = {} if via is None else {via: 0}
        self.appealed_us = 0
        """When we last told the origin, by our own way to it, that somebody lost the chain."""

    @property
    def via(self) -> Address | None:
        """The neighbour on the nearest way that is safe to follow; None if there is none, or if this is our own."""
        nearest = min(self.offers, key=self.offers.__getitem__, default=None)
        return nearest if nearest is not None and self.offers[nearest] <= DETOUR else None

    @property
    def reachable(self) -> bool:
        return self.own or self.via is not None

    @property
    def told(self) -> bytes | None:
        """The value we tell others: one hop from our way. None while there is no way."""
        if self.own:
            return self.value
        via = self.via
        return chain.advance(self.value, self.offers[via] + 1) if via is not None else None

    def offer(self, value: bytes, hops: int, via: Address) -> None:
        """Note what a neighbour offers, `hops` further than our nearest value; a nearer one becomes that."""
        if self.own:
            return
        if hops < 0:
            self.offers = {neighbour: old - hops for neighbour, old in self.offers.items()}
            self.value = value
        self.offers[via] = max(0, hops)

    def withdraw(self, neighbour: Address) -> None:
        self.offers.pop(neighbour, None)


class Routes:
    """The table (token, chain value, neighbour) of P1, bounded in tokens and in origins per token."""

    def __init__(self, *, d_max: int, tokens_max: int, origins_max: int) -> None:
        self._d_max, self._tokens_max, self._origins_max = d_max, tokens_max, origins_max
        self._origins: dict[bytes, list[Origin]] = {}

    def origins(self, token: bytes) -> list[Origin]:
        return self._origins.get(token, [])

    def tokens(self) -> list[bytes]:
        return list(self._origins)

    def find(self, token: bytes, value: bytes) -> tuple[Origin, int] | None:
        """The origin this value belongs to, and how many hops it is further than the nearest known of it."""
        for origin in reversed(self.origins(token)):
            hops = chain.same_chain(origin.value, value, self._d_max)
            if hops is not None:
                return origin, hops
        return None

    def add(self, advert: Advert, via: Address | None) -> Origin | None:
        """Keep a new origin; None if the table is full. Unreachable ones make room for it, and any for our own.

        A full table takes nothing else in: past d_max a copy that comes round a long loop is taken for a new origin,
        and if it could push an old one out, it would go round for ever.
        """
        if advert.token not in self._origins and len(self._origins) >= self._tokens_max:
            return None
        known = self._origins.setdefault(advert.token, [])
        if len(known) >= self._origins_max:
            gone = next((old for old in known if not old.reachable or via is None), None)
            if gone is None:
                return None
            known.remove(gone)
        origin = Origin(advert, via)
        known.append(origin)
        return origin

    def remove(self, origin: Origin) -> None:
        known = self._origins[origin.advert.token]
        known.remove(origin)
        if not known:
            del self._origins[origin.advert.token]

    def size(self) -> int:
        """Offers held in all: what the bounds bound."""
        return sum(max(1, len(origin.offers)) for known in self._origins.values() for origin in known)


DETOUR: Final = 1
"""How many hops further than the nearest value ever seen a way may be, and be safe to follow."""
