"""Anchors: chains that only those who may can start (the switch `anchors`; see `crypto.chain`).

In the papers a chain's value is bare, and whoever saw a signed token can start fresh chains for it, each of which every
node books as one more publisher. Here the end of a chain is signed beforehand, with an expiry. A node then believes a
value only if hashing leads from it to a signed end; it knows an origin by that end, so that a value is placed by one
walk and a look-up however many chains there are; and it keeps no more chains of one signer for one topic than a quota,
so that a genuine publisher cannot flood either.

Past its quota a signer's older chain makes room for a newer one, first one that is lost already. Newer is what expires
later: every node comes to keep the same, and a chain that was let go cannot come back and push out its successor.
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
    """Who stands behind an anchor. The paper's adverts are the publishers', and so are their anchors."""

    def check(self, advert: Advert, anchor: Anchor, now: int) -> None:
        """Raise unless somebody who may start chains for this token gave this anchor, and it still stands."""

    def signer(self, advert: Advert) -> bytes:
        """Whose quota the advert's anchor counts for."""

    def rank(self, advert: Advert) -> int:
        """The less, the better: where there is no room for all, the worst makes room for a better one."""


class PublisherAnchorRules:
    """The publisher whom the advert's certificate names signs the anchor."""

    def check(self, advert: Advert, anchor: Anchor, now: int) -> None:
        if now >= anchor.expires_us:
            raise StaleError("the chain's anchor has expired")
        _check_signature(anchor, advert.certificate.leaf.subject, advert.token)

    def signer(self, advert: Advert) -> bytes:
        return advert.certificate.leaf.subject

    def rank(self, advert: Advert) -> int:
        return 0


def anchor_advert(advert: Advert, keys: TopicKeys, length: int, expires_us: int) -> Advert:
    """Our own advert with the end of its chain signed: it may travel `length` hops, until `expires_us`."""
    if keys.signing is None:
        raise LocalError(f"only a publisher of {keys.record.topic!r} can anchor a chain for it")
    anchor = hash_chain.sign_anchor(advert.value, length, advert.token, expires_us, keys.signing)
    return msgspec.structs.replace(advert, anchor=anchor)


def make_route_table(config: MeshConfig, vouching: AnchorRules, prefer: RoutePreference | None = None) -> RouteTable:
    """The table that a node of this configuration keeps."""
    if config.defences.anchors:
        return AnchoredRouteTable(config, vouching, prefer)
    return RouteTable(d_max=config.d_max, tokens_max=config.tokens_max, origins_max=config.origins_max, prefer=prefer)


class AnchoredOrigin(AdvertisedOrigin):
    """An origin of whose chain the end is known: what lies past it is told to nobody, for nobody would believe it."""

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
    """Routes whose origins are known by their ends. One expires with its anchor."""

    def __init__(self, config: MeshConfig, vouching: AnchorRules, prefer: RoutePreference | None = None) -> None:
        super().__init__(
            d_max=config.d_max, tokens_max=config.tokens_max, origins_max=config.origins_max, prefer=prefer
        )
        self._vouching, self._quota = vouching, config.defences.anchor_quota
        self._life_us = config.defences.anchor_life_us
        self._ends: dict[_End, AnchoredOrigin] = {}
        self._soonest_us = 0
        """Nothing expires before this."""

    def admit(self, advert: Advert, now: int) -> None:
        anchor = _anchor_of(advert)
        if anchor.length > self._d_max or anchor.expires_us - now > 2 * self._life_us:
            raise StaleError("an anchor for longer than we allow")
        self._vouching.check(advert, anchor, now)
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
        """By the ends that lie ahead: mostly one. Of several that sign parts of one chain the best is meant."""
        found: list[tuple[AdvertisedOrigin, int]] = []
        for left in range(self._d_max + 1):
            value = hash_chain.advance_chain(value) if left else value
            if (origin := self._ends.get((token, value))) is not None:
                found.append((origin, origin.hashes_left - left))
        return min(found, key=lambda each: self._vouching.rank(each[0].advert), default=None)

    def find_advert(self, advert: Advert) -> tuple[AdvertisedOrigin, int] | None:
        """By its own end alone: that of somebody who signs a part of the chain may lie before it."""
        anchor = _anchor_of(advert)
        origin = self._ends.get((advert.token, anchor.end))
        if origin is None:
            return None
        return origin, origin.hashes_left - anchor.length + anchor.hops_from_origin(advert.value)

    def add(self, advert: Advert, via: Address | None) -> AdvertisedOrigin | None:
        """None also if the quota is full of newer ones; ours has none."""
        if via is not None and not self._make_room(advert):
            return None
        origin = super().add(advert, via)
        if origin is not None:
            self._soonest_us = min(self._soonest_us, _anchor_of(advert).expires_us)
        return origin

    def _settle(self, known: AdvertisedOrigin, advert: Advert) -> None:
        """Two roots sign one chain, whose end all can see: it is that of the better, and ours if it is ours."""
        if known.is_own or self._vouching.rank(advert) >= self._vouching.rank(known.advert):
            raise ForgedError("a chain that somebody else has signed")
        self.remove(known)

    def _make_room(self, advert: Advert) -> bool:
        voucher = self._vouching.signer(advert)
        theirs = [
            origin
            for origin in self.origins(advert.token)
            if not origin.is_own and self._vouching.signer(origin.advert) == voucher
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
        """A full table keeps the best: who comes first could fill it with what nobody wants, and keep out the rest."""
        others = [origin for origin in self.origins(advert.token) if not origin.is_own]
        if len(self.origins(advert.token)) >= self._origins_max and others:
            worst = max(others, key=lambda origin: self._vouching.rank(origin.advert))
            if self._vouching.rank(advert) < self._vouching.rank(worst.advert):
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
        raise ForgedError("nobody stands behind this chain")
    return advert.anchor


def _age(advert: Advert) -> tuple[int, bytes]:
    """The older the less; the end decides between two that expire together, at every node alike."""
    anchor = _anchor_of(advert)
    return anchor.expires_us, anchor.end


@lru_cache(maxsize=4096)
def _check_signature(anchor: Anchor, signer: bytes, token: bytes) -> None:
    """Time zero: that the anchor still stands is asked every time, and not of this memory."""
    anchor.verify(signer, token, 0)
