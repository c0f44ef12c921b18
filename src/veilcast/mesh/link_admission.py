"""Link slots: the links of a certified neighbourhood, and which link ends when a better peer comes.

1. Chosen links have slots of their own, so a flood of strangers cannot take all slots.
2. The other slots are for peers that come. Such a peer cannot be told from an attacker with stolen certificates; but
   attackers have few prefixes, or come late. So no prefix holds more than a few slots.
3. The oldest half of the peers that came keep their slots. A later peer cannot take them.
4. The rest compete: a prefix that has come less often goes before one that has come more often, admitted or not.
   Attackers with many certificates and few prefixes compete with one another, and lose their priority by coming again
   and again. An honest node that comes for the first time finds room.
5. If both have come equally often, a coin decides, mostly for the peer in the slot: every ended link costs repair.
6. The traffic of a link has no influence. Otherwise an adversary that fills a node would learn from every eviction
   which links carry publications.

A certificate counts once, however many addresses show it.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.core.bounded import BoundedMap
from veilcast.crypto.certificate import CertificateChain
from veilcast.machine import Address


class CertifiedLink(msgspec.Struct, frozen=True):
    """One link: the prefix and the certified key of the peer, and the last epoch for which the key is valid."""

    prefix: str
    subject: bytes
    last: int
    chosen: bool

    @staticmethod
    def to_member(prefix: str, peer: CertificateChain, *, chosen: bool) -> CertifiedLink:
        """A link to the holder of this certificate, until the certificate or its delegation ends."""
        last = peer.leaf.last if peer.delegation is None else min(peer.leaf.last, peer.delegation.last)
        return CertifiedLink(prefix, peer.leaf.subject, last, chosen)


class NeighbourAdmission:
    """Bounded: `chosen_max` chosen links, `come_max` peers that came, `prefix_max` of one prefix among either."""

    def __init__(self, *, chosen_max: int, come_max: int, prefix_max: int, rng: Random) -> None:
        self._chosen_max, self._come_max, self._prefix_max, self._rng = chosen_max, come_max, prefix_max, rng
        self.links: dict[Address, CertifiedLink] = {}
        """Oldest first."""
        self._visits: BoundedMap[str, int] = BoundedMap(VISITS_MAX)

    def __contains__(self, name: Address) -> bool:
        return name in self.links

    def chosen(self) -> list[Address]:
        return [name for name, link in self.links.items() if link.chosen]

    def holder(self, subject: bytes) -> Address | None:
        """The peer that is linked with this certified key."""
        return next((name for name, link in self.links.items() if link.subject == subject), None)

    def may_choose(self, prefix: str, extra: int = 0) -> bool:
        """True if there is room for one more chosen link, with `extra` additional slots."""
        return len(self.chosen()) < self._chosen_max + extra and self._has_room(prefix, chosen=True)

    def choose(self, name: Address, link: CertifiedLink) -> None:
        self.links[name] = link

    def adopt(self, name: Address) -> CertifiedLink:
        """Turn a peer that came into a chosen link."""
        self.links[name] = msgspec.structs.replace(self.links[name], chosen=True)
        return self.links[name]

    def admit(self, name: Address, link: CertifiedLink) -> Address | None:
        """Admit a peer that came. Returns the peer that must leave for it, or the peer itself if it is not admitted."""
        self._visits.renew(link.prefix, self._visits.get(link.prefix, 0) + 1)
        if not self._has_room(link.prefix, chosen=False):
            return name
        came = [other for other, linked in self.links.items() if not linked.chosen]
        leaver = None
        if len(came) >= self._come_max:
            leaver = self._leaver(came[self._come_max // 2 :], self._visits[link.prefix])
            if leaver is None:
                return name
            del self.links[leaver]
        self.links[name] = link
        return leaver

    def free(self, name: Address) -> bool:
        return self.links.pop(name, None) is not None

    def count_visited_prefixes(self) -> int:
        """Prefixes whose visits are counted."""
        return len(self._visits)

    def _leaver(self, young: list[Address], visits: int) -> Address | None:
        """A peer of the prefix that came most often, if that is more often than the newcomer's."""
        counts = {name: self._visits.get(self.links[name].prefix, 0) for name in young}
        ahead = max(counts.values(), default=0) - visits
        if ahead > 0 or (ahead == 0 and self._rng.random() < TIE_REPLACEMENT_PROBABILITY):
            return self._rng.choice([name for name, count in counts.items() if count - visits == ahead])
        return None

    def _has_room(self, prefix: str, *, chosen: bool) -> bool:
        alike = [link for link in self.links.values() if link.chosen is chosen and link.prefix == prefix]
        return len(alike) < self._prefix_max


VISITS_MAX: Final = 1024
"""Prefixes whose visits are counted. The prefix that came longest ago is forgotten first."""
TIE_REPLACEMENT_PROBABILITY: Final = 1 / 8
"""Probability that a newcomer replaces a peer of equal priority."""
