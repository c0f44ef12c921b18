"""Routes: for every topic that was advertised, the ways back to each origin, nearest first.

An origin is known by its hash chain (P1 2.1): two adverts for one token are of the same origin if hashing leads from
one value to the other, and the value that comes first was nearer. Of each origin a node keeps the nearest value it ever
saw, and one offer per neighbour, as the number of hops that it is further.

Subscriptions follow the nearest offer. When that is lost, only an offer at most one hop further than the nearest value
ever seen may take its place: whoever made it was no further from the origin than we were at our nearest, so its own way
did not lead through us. Anything further might, and following it could make a loop that feeds itself. An origin without
such an offer is lost for good. It is kept, so that stale copies of it are known for what they are and not passed round;
the way back in is a fresh chain, which the origin starts when it hears that somebody lost the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from veilcast.crypto import hash_chain
from veilcast.machine import Address
from veilcast.mesh.limits import NeighbourQuota, NeighbourShares
from veilcast.wire.mesh import Advert

RoutePreference: TypeAlias = Callable[[Advert, Address], int]


class AdvertisedOrigin:
    """One advertised origin; `value` is the nearest of its chain that we ever saw. Our own has no offers."""

    __slots__ = (
        "_offers",
        "_prefer",
        "advert",
        "changed_us",
        "charged_to",
        "fresh_chain_requested_us",
        "is_own",
        "value",
        "via",
    )

    def __init__(self, advert: Advert, via: Address | None, prefer: RoutePreference | None = None) -> None:
        self.advert, self._prefer = advert, prefer
        self.value = advert.value
        self.is_own = via is None
        self.charged_to = via
        """Who brought it to us."""
        self.via = via
        """The neighbour on the nearest way that is safe to follow; None if there is none, or if this is our own."""
        self.fresh_chain_requested_us = 0
        """When we last told the origin, by our own way to it, that somebody lost the chain."""
        self.changed_us = 0
        """When our way to it last became nearer or further."""
        self._offers: dict[Address, int] = {} if via is None else {via: 0}

    def __len__(self) -> int:
        return len(self._offers)

    @property
    def is_reachable(self) -> bool:
        return self.is_own or self.via is not None

    @property
    def advertised_value(self) -> bytes | None:
        """The value we tell others: one hop from our way. None while there is no way."""
        if self.via is None:
            return self.value if self.is_own else None
        return hash_chain.advance_chain(self.value, self._offers[self.via] + 1)

    def is_safe_via(self, neighbour: Address) -> bool:
        """Whether this neighbour is on a way that is safe to follow, if perhaps not the nearest."""
        return self._offers.get(neighbour, DETOUR_HOPS_MAX + 1) <= DETOUR_HOPS_MAX

    def offer(self, value: bytes, hops: int, via: Address) -> None:
        """Note what a neighbour offers, `hops` further than our nearest value. Only a nearer one revives the lost."""
        if self.is_own or (self.via is None and hops >= 0):
            return
        if hops < 0:
            self._offers = {neighbour: old - hops for neighbour, old in self._offers.items()}
            self.value = value
        self._offers[via] = max(0, hops)
        self._choose()

    def withdraw(self, neighbour: Address) -> None:
        """Forget what a neighbour offered."""
        if self._offers.pop(neighbour, None) is not None:
            self._choose()

    def _choose(self) -> None:
        nearest = min(self._offers, key=self._offers.__getitem__, default=None)
        if nearest is None or self._offers[nearest] > DETOUR_HOPS_MAX:
            self.via, self._offers = None, {}
        elif self._prefer is not None:
            equals = [name for name, hops in self._offers.items() if hops == self._offers[nearest]]
            self.via = min(equals, key=partial(self._prefer, self.advert))
        elif self.via is None or self._offers.get(self.via, DETOUR_HOPS_MAX + 1) > self._offers[nearest]:
            self.via = nearest


class RouteTable:
    """The table (token, chain value, neighbour) of P1, bounded in tokens and in origins per token.

    Of neighbours equally near the one that `prefer` ranks first is followed; without it, the first to say so.
    """

    def __init__(self, *, d_max: int, tokens_max: int, origins_max: int, prefer: RoutePreference | None = None) -> None:
        self._d_max, self._tokens_max, self._origins_max, self._prefer = d_max, tokens_max, origins_max, prefer
        self._origins: dict[bytes, list[AdvertisedOrigin]] = {}
        self._brought: NeighbourQuota[AdvertisedOrigin] = NeighbourQuota()

    def origins(self, token: bytes) -> list[AdvertisedOrigin]:
        return self._origins.get(token, [])

    def tokens(self) -> list[bytes]:
        return list(self._origins)

    def admit(self, advert: Advert, now: int) -> None:
        """Raise unless a chain like this may enter. The papers' table asks for nothing."""

    def expired(self, now: int) -> list[AdvertisedOrigin]:
        """The origins whose time is over. The papers' have none."""
        return []

    def find(self, token: bytes, value: bytes) -> tuple[AdvertisedOrigin, int] | None:
        """The origin this value belongs to, and how many hops it is further than the nearest known of it."""
        for origin in reversed(self.origins(token)):
            hops = hash_chain.hops_between(origin.value, value, self._d_max)
            if hops is not None:
                return origin, hops
        return None

    def find_advert(self, advert: Advert) -> tuple[AdvertisedOrigin, int] | None:
        """The same, for the value of an advert."""
        return self.find(advert.token, advert.value)

    def add(self, advert: Advert, via: Address | None) -> AdvertisedOrigin | None:
        """Keep a new origin; None if the table is full. Unreachable ones make room for it, and any for our own.

        A full table takes nothing else in: past d_max a copy that comes round a long loop is taken for a new origin,
        and if it could push an old one out, it would go round for ever.
        """
        if advert.token not in self._origins and len(self._origins) >= self._tokens_max:
            return None
        known = self._origins.setdefault(advert.token, [])
        if len(known) >= self._origins_max:
            gone = next((old for old in known if not old.is_reachable or via is None), None)
            if gone is None:
                return None
            self._take_out(known, gone)
        origin = self._make(advert, via)
        known.append(origin)
        if via is not None:
            self._brought.add(via, origin)
        return origin

    def remove(self, origin: AdvertisedOrigin) -> None:
        known = self._origins[origin.advert.token]
        self._take_out(known, origin)
        if not known:
            del self._origins[origin.advert.token]

    def find_excess(self, neighbour: Address, token: bytes, shares: NeighbourShares) -> AdvertisedOrigin | None:
        """The oldest of the origins that it brought, for this topic or for any, if there are more than its share."""
        brought = [origin for origin in self.origins(token) if origin.charged_to == neighbour]
        return brought[0] if len(brought) > shares.origins else self._brought.find_excess(neighbour, shares.chains)

    def reassign(self, origin: AdvertisedOrigin) -> None:
        """Who brought it offers it no more: whose way we follow instead has brought it; if there is none, it goes."""
        if origin.via is None or origin.charged_to is None:
            self.remove(origin)
            return
        self._brought.discard(origin.charged_to, origin)
        origin.charged_to = origin.via
        self._brought.add(origin.charged_to, origin)

    def count_offers(self) -> int:
        """Offers held in all: what the bounds bound."""
        return sum(max(1, len(origin)) for known in self._origins.values() for origin in known)

    def _make(self, advert: Advert, via: Address | None) -> AdvertisedOrigin:
        return AdvertisedOrigin(advert, via, self._prefer)

    def _take_out(self, known: list[AdvertisedOrigin], origin: AdvertisedOrigin) -> None:
        known.remove(origin)
        if origin.charged_to is not None:
            self._brought.discard(origin.charged_to, origin)


DETOUR_HOPS_MAX: Final = 1
"""How many hops further than the nearest value ever seen a way may be, and be safe to follow."""
