"""Anchors: only authorised members can start chains (the switch `anchors`; see `crypto.chain`).

The papers do not sign the values of a chain. A node that has seen a signed token can start fresh chains for it, and
every other node counts each chain as one more publisher. With anchors, the end of a chain is signed in advance, with an
expiry. A node then

1. accepts a value only if hashing leads from it to a signed end;
2. identifies an origin by that end, so one walk and a lookup place a value, however many chains there are;
3. keeps a limited number of chains of one signer for one topic, so a genuine publisher cannot flood either.

When a signer is over its quota, its oldest chain makes room for a newer one; a lost chain goes first. The newer chain
is the one that expires later. So all nodes come to keep the same chains, and an evicted chain cannot return and evict
its successor.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, TypeAlias

import msgspec

from veilcast.authority.keyring import TopicKeys
from veilcast.crypto import hash_chain
from veilcast.crypto.hash_chain import Anchor
from veilcast.errors import ForgedError, LocalError, StaleError
from veilcast.machine import Address
from veilcast.mesh.config import MeshConfig
from veilcast.mesh.routes import AdvertisedOrigin, RoutePreference, RouteTable
from veilcast.wire.mesh import Advert


class AnchorRules(Protocol):
    """The signer of an anchor. In the paper profile a publisher signs both advertisements and anchors."""

    def check(self, advert: Advert, anchor: Anchor, now: int) -> None:
        """Raise unless an authorised signer for this token gave this anchor, and it has not expired."""

    def signer(self, advert: Advert) -> bytes:
        """The signer whose quota the advertisement's anchor counts for."""

    def rank(self, advert: Advert) -> int:
        """Smaller is better. A full table drops the worst origin for a better one."""


class PublisherAnchorRules:
    """The publisher that the advertisement's certificate names signs the anchor."""

    def check(self, advert: Advert, anchor: Anchor, now: int) -> None:
        if now >= anchor.expires_us:
            raise StaleError("the chain's anchor has expired")
        _check_signature(anchor, advert.certificate.leaf.subject, advert.token)

    def signer(self, advert: Advert) -> bytes:
        return advert.certificate.leaf.subject

    def rank(self, advert: Advert) -> int:
        return 0


def anchor_advert(advert: Advert, keys: TopicKeys, length: int, expires_us: int) -> Advert:
    """An own advertisement with the end of its chain signed. It may travel `length` hops, until `expires_us`."""
    if keys.signing is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can anchor a chain for it")
    anchor = hash_chain.sign_anchor(advert.value, length, advert.token, expires_us, keys.signing)
    return msgspec.structs.replace(advert, anchor=anchor)


def make_route_table(config: MeshConfig, rules: AnchorRules, prefer: RoutePreference | None = None) -> RouteTable:
    """The route table for this configuration."""
    if config.defences.anchors:
        return AnchoredRouteTable(config, rules, prefer)
    return RouteTable(d_max=config.d_max, tokens_max=config.tokens_max, origins_max=config.origins_max, prefer=prefer)


class AnchoredOrigin(AdvertisedOrigin):
    """An origin with a known end of its chain. Values beyond the end are not advertised: no node would accept them."""

    __slots__ = ("_left",)

    def __init__(self, advert: Advert, via: Address | None, prefer: RoutePreference | None, left: int) -> None:
        super().__init__(advert, via, prefer)
        self._left = left

    @property
    def hashes_left(self) -> int:
        """Hashes from the nearest value to the end."""
        return self._left

    @property
    def advertised_value(self) -> bytes | None:
        past_the_end = self.via is not None and self._offers[self.via] >= self._left
        return None if past_the_end else super().advertised_value

    def offer(self, value: bytes, hops: int, via: Address) -> None:
        if not self.is_own and hops < 0:
            self._left -= hops
        super().offer(value, hops, via)


class AnchoredRouteTable(RouteTable):
    """Routes whose origins are identified by the ends of their chains. An origin expires with its anchor."""

    def __init__(self, config: MeshConfig, rules: AnchorRules, prefer: RoutePreference | None = None) -> None:
        super().__init__(
            d_max=config.d_max, tokens_max=config.tokens_max, origins_max=config.origins_max, prefer=prefer
        )
        self._rules, self._quota = rules, config.defences.anchor_quota
        self._life_us = config.defences.anchor_life_us
        self._ends: dict[_End, AnchoredOrigin] = {}
        self._soonest_us = 0
        """No origin expires before this time."""

    def admit(self, advert: Advert, now: int) -> None:
        anchor = _anchor_of(advert)
        if anchor.length > self._d_max or anchor.expires_us - now > 2 * self._life_us:
            raise StaleError("an anchor with a length or an expiry over the limit")
        self._rules.check(advert, anchor, now)
        anchor.hops_from_origin(advert.value)
        known = self._ends.get((advert.token, anchor.end))
        if known is not None and known.advert.root != advert.root:
            self._settle(known, advert)

    def expired(self, now: int) -> list[AdvertisedOrigin]:
        if now < self._soonest_us:
            return []
        ends = {origin: _anchor_of(origin.advert).expires_us for origin in self._ends.values()}
        self._soonest_us = min((end for end in ends.values() if end > now), default=now)
        return [origin for origin, end in ends.items() if end <= now]

    def find(self, token: bytes, value: bytes) -> tuple[AdvertisedOrigin, int] | None:
        """Search by the ends that lie ahead, mostly one. If several signers sign parts of one chain, the best
        counts."""
        found: list[tuple[AdvertisedOrigin, int]] = []
        for left in range(self._d_max + 1):
            value = hash_chain.advance_chain(value) if left else value
            if (origin := self._ends.get((token, value))) is not None:
                found.append((origin, origin.hashes_left - left))
        return min(found, key=lambda each: self._rules.rank(each[0].advert), default=None)

    def find_advert(self, advert: Advert) -> tuple[AdvertisedOrigin, int] | None:
        """Search by the advertisement's own end alone: the end of another signer of the chain may lie before it."""
        anchor = _anchor_of(advert)
        origin = self._ends.get((advert.token, anchor.end))
        if origin is None:
            return None
        return origin, origin.hashes_left - anchor.length + anchor.hops_from_origin(advert.value)

    def add(self, advert: Advert, via: Address | None) -> AdvertisedOrigin | None:
        """None also if the quota is full of newer chains. An own chain has no quota."""
        if via is not None and not self._make_room(advert):
            return None
        origin = super().add(advert, via)
        if origin is not None:
            self._soonest_us = min(self._soonest_us, _anchor_of(advert).expires_us)
        return origin

    def _settle(self, known: AdvertisedOrigin, advert: Advert) -> None:
        """Two roots sign one chain, whose end all nodes can see. It belongs to the better root, and to this node if it
        is its own."""
        if known.is_own or self._rules.rank(advert) >= self._rules.rank(known.advert):
            raise ForgedError("a chain that another root has signed")
        self.remove(known)

    def _make_room(self, advert: Advert) -> bool:
        signer = self._rules.signer(advert)
        theirs = [
            origin
            for origin in self.origins(advert.token)
            if not origin.is_own and self._rules.signer(origin.advert) == signer
        ]
        if len(theirs) < self._quota:
            self._drop_worse(advert)
            return True
        oldest = min(theirs, key=lambda origin: (origin.is_reachable, _age(origin.advert)))
        if _age(advert) <= _age(oldest.advert):
            return False
        self.remove(oldest)
        return True

    def _drop_worse(self, advert: Advert) -> None:
        """A full table keeps the best. Otherwise the first to come could fill it with useless chains and keep out the
        rest."""
        others = [origin for origin in self.origins(advert.token) if not origin.is_own]
        if len(self.origins(advert.token)) >= self._origins_max and others:
            worst = max(others, key=lambda origin: self._rules.rank(origin.advert))
            if self._rules.rank(advert) < self._rules.rank(worst.advert):
                self.remove(worst)

    def _make(self, advert: Advert, via: Address | None) -> AdvertisedOrigin:
        anchor = _anchor_of(advert)
        origin = AnchoredOrigin(advert, via, self._prefer, anchor.length - anchor.hops_from_origin(advert.value))
        self._ends[advert.token, anchor.end] = origin
        return origin

    def _take_out(self, known: list[AdvertisedOrigin], origin: AdvertisedOrigin) -> None:
        super()._take_out(known, origin)
        del self._ends[origin.advert.token, _anchor_of(origin.advert).end]


_End: TypeAlias = tuple[bytes, bytes]
"""A token, and the end of a chain for it."""


def _anchor_of(advert: Advert) -> Anchor:
    if advert.anchor is None:
        raise ForgedError("a chain without an anchor")
    return advert.anchor


def _age(advert: Advert) -> tuple[int, bytes]:
    """Smaller is older. The end breaks ties between equal expiries, in the same way at every node."""
    anchor = _anchor_of(advert)
    return anchor.expires_us, anchor.end


@lru_cache(maxsize=4096)
def _check_signature(anchor: Anchor, signer: bytes, token: bytes) -> None:
    """Cached without the time: the caller checks the expiry each time."""
    anchor.verify(signer, token, 0)
