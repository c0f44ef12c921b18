"""Routes: for every advertised topic, the ways back to each origin, shortest first.

A hash chain identifies an origin (P1 2.1): two advertisements for one token have the same origin if hashing leads from
one value to the other; the value that comes first was nearer. For each origin a node keeps the nearest value it ever
saw, and one offer for each neighbour, as the number of additional hops.

Subscriptions follow the nearest offer. When that offer is lost, only an offer at most one hop further than the nearest
value ever seen may replace it.
Claim: this makes no loop.
Reason: the neighbour that made such an offer was no further from the origin than this node was at its nearest, so its
own way did not lead through this node. A further offer might, and following it could make a loop that feeds itself.

An origin without such an offer stays lost. It stays in the table, so that stale copies of it are recognised and
not forwarded. The way back in is a fresh chain, which the origin starts when it hears that a node has lost the old one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

from veilcast.core.bounded import PeerQuota
from veilcast.crypto import hash_chain
from veilcast.machine import Address
from veilcast.mesh.limits import NeighbourShares
from veilcast.wire.mesh import Advert

RoutePreference: TypeAlias = Callable[[Advert, Address], int]


class AdvertisedOrigin:
    """One advertised origin. `value` is the nearest value of its chain ever seen. An own origin has no offers."""

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
        """The neighbour that brought this origin, and whose quota it counts for."""
        self.via = via
        """The neighbour on the shortest safe way; None without a way, or if the origin is this node."""
        self.fresh_chain_requested_us = 0
        """Time at which this node last reported a lost chain towards the origin."""
        self.changed_us = 0
        """Time at which this node's distance to the origin last changed."""
        self._offers: dict[Address, int] = {} if via is None else {via: 0}

    def __len__(self) -> int:
        return len(self._offers)

    @property
    def is_reachable(self) -> bool:
        return self.is_own or self.via is not None

    @property
    def advertised_value(self) -> bytes | None:
        """The value that this node advertises: one hop further than its way. None while there is no way."""
        if self.via is None:
            return self.value if self.is_own else None
        return hash_chain.advance_chain(self.value, self._offers[self.via] + 1)

    def is_safe_via(self, neighbour: Address) -> bool:
        """True if this neighbour is on a safe way, which need not be the shortest."""
        return self._offers.get(neighbour, DETOUR_HOPS_MAX + 1) <= DETOUR_HOPS_MAX

    def offer(self, value: bytes, hops: int, via: Address) -> None:
        """Store a neighbour's offer, `hops` further than the nearest value. Only a nearer value revives a lost
        origin."""
        if self.is_own or (self.via is None and hops >= 0):
            return
        if hops < 0:
            self._offers = {neighbour: old - hops for neighbour, old in self._offers.items()}
            self.value = value
        self._offers[via] = max(0, hops)
        self._choose()

    def withdraw(self, neighbour: Address) -> None:
        """Forget a neighbour's offer."""
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

    Of equally near neighbours, the one that `prefer` ranks first is followed; without `prefer`, the first to offer.
    """

    def __init__(self, *, d_max: int, tokens_max: int, origins_max: int, prefer: RoutePreference | None = None) -> None:
        self._d_max, self._tokens_max, self._origins_max, self._prefer = d_max, tokens_max, origins_max, prefer
        self._origins: dict[bytes, list[AdvertisedOrigin]] = {}
        self._brought: PeerQuota[Address, AdvertisedOrigin] = PeerQuota()

    def origins(self, token: bytes) -> list[AdvertisedOrigin]:
        return self._origins.get(token, [])

    def tokens(self) -> list[bytes]:
        return list(self._origins)

    def admit(self, advert: Advert, now: int) -> None:
        """Raise unless a chain like this may enter. The papers' table accepts all."""

    def expired(self, now: int) -> list[AdvertisedOrigin]:
        """The origins whose time is over. The papers' origins never expire."""
        return []

    def find(self, token: bytes, value: bytes) -> tuple[AdvertisedOrigin, int] | None:
        """The origin that this value belongs to, and how many hops the value is further than the nearest known one."""
        for origin in reversed(self.origins(token)):
            hops = hash_chain.hops_between(origin.value, value, self._d_max)
            if hops is not None:
                return origin, hops
        return None

    def find_advert(self, advert: Advert) -> tuple[AdvertisedOrigin, int] | None:
        """The same for the value of an advertisement."""
        return self.find(advert.token, advert.value)

    def add(self, advert: Advert, via: Address | None) -> AdvertisedOrigin | None:
        """Add a new origin; None if the table is full. An unreachable origin makes room for it, and any makes room for
        an own one.

        A full table takes no other origin: beyond d_max a copy that comes round a long loop looks like a new origin,
        and if it could evict an old one, it would circulate forever.
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
            self._brought.charge(via, origin)
        return origin

    def remove(self, origin: AdvertisedOrigin) -> None:
        known = self._origins[origin.advert.token]
        self._take_out(known, origin)
        if not known:
            del self._origins[origin.advert.token]

    def find_excess(self, neighbour: Address, token: bytes, shares: NeighbourShares) -> AdvertisedOrigin | None:
        """The oldest origin that this neighbour brought, for this topic or for any, if it is over its share."""
        brought = [origin for origin in self.origins(token) if origin.charged_to == neighbour]
        return brought[0] if len(brought) > shares.origins else self._brought.oldest_over(neighbour, shares.chains)

    def reassign(self, origin: AdvertisedOrigin) -> None:
        """The neighbour that brought the origin offers it no more: charge it to the neighbour on the current way, or
        remove it if no way is left."""
        if origin.via is None or origin.charged_to is None:
            self.remove(origin)
            return
        self._brought.release(origin.charged_to, origin)
        origin.charged_to = origin.via
        self._brought.charge(origin.charged_to, origin)

    def count_offers(self) -> int:
        """Offers in the table, which the bounds limit."""
        return sum(max(1, len(origin)) for known in self._origins.values() for origin in known)

    def _make(self, advert: Advert, via: Address | None) -> AdvertisedOrigin:
        return AdvertisedOrigin(advert, via, self._prefer)

    def _take_out(self, known: list[AdvertisedOrigin], origin: AdvertisedOrigin) -> None:
        known.remove(origin)
        if origin.charged_to is not None:
            self._brought.release(origin.charged_to, origin)


DETOUR_HOPS_MAX: Final = 1
"""A way may be this many hops further than the nearest value ever seen, and still be safe."""
