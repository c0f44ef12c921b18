"""Slots: whom a node is linked to, and who has to go when somebody better comes.

Links that we chose ourselves have slots of their own, so a flood of strangers cannot take all. The other slots are for
those who come to us, and who comes cannot be told from an attacker with stolen certificates; but attackers are few in
prefixes, or late. So no prefix holds more than a few slots; the oldest half of those who came keep theirs, which
nobody gets by coming later; and the rest go by right of way: a prefix that has come less often goes before one that
has come more often, let in or not. Attackers with many certificates and few prefixes thus compete with one another, and
lose their way by coming again and again; an honest node that never came before finds room. Where both have come as
often a coin decides, and mostly for who is there: every link that ends costs repair. What a link carries has no say:
otherwise an adversary that fills a node would learn from every eviction which links carry publications.

A certificate counts once, whatever the number of addresses that show it.
"""

from __future__ import annotations

from random import Random
from typing import Final

import msgspec

from veilcast.crypto.certificate import CertificateChain
from veilcast.machine import Address


class CertifiedLink(msgspec.Struct, frozen=True):
    """One link: the prefix at its other end, the certified key there and the last epoch it is good for."""

    prefix: str
    subject: bytes
    last: int
    chosen: bool

    @staticmethod
    def to_member(prefix: str, peer: CertificateChain, *, chosen: bool) -> CertifiedLink:
        """A link to the holder of this certificate, until the certificate or its delegation ends."""
        last = peer.leaf.last if peer.delegation is None else min(peer.leaf.last, peer.delegation.last)
        return CertifiedLink(prefix, peer.leaf.subject, last, chosen)


class LinkSlots:
    """Bounded: `chosen_max` that we chose, `come_max` that came, `prefix_max` of one prefix among either."""

    def __init__(self, *, chosen_max: int, come_max: int, prefix_max: int, rng: Random) -> None:
        self._chosen_max, self._come_max, self._prefix_max, self._rng = chosen_max, come_max, prefix_max, rng
        self.links: dict[Address, CertifiedLink] = {}
        """The oldest first."""
        self._visits: dict[str, int] = {}

    def __contains__(self, name: Address) -> bool:
        return name in self.links

    def chosen(self) -> list[Address]:
        return [name for name, link in self.links.items() if link.chosen]

    def holder(self, subject: bytes) -> Address | None:
        """Who is linked to us by this certified key."""
        return next((name for name, link in self.links.items() if link.subject == subject), None)

    def may_choose(self, prefix: str, extra: int = 0) -> bool:
        """Whether we have room for one more of our own choice, with so many slots beside the usual ones."""
        return len(self.chosen()) < self._chosen_max + extra and self._has_room(prefix, chosen=True)

    def choose(self, name: Address, link: CertifiedLink) -> None:
        self.links[name] = link

    def adopt(self, name: Address) -> CertifiedLink:
        """Let a peer that came be one of our own choice."""
        self.links[name] = msgspec.structs.replace(self.links[name], chosen=True)
        return self.links[name]

    def admit(self, name: Address, link: CertifiedLink) -> Address | None:
        """Let somebody in who came; gives who must leave for it, or itself if it is not let in."""
        self._visit(link.prefix)
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
        """How many prefixes we have counted visits of."""
        return len(self._visits)

    def _leaver(self, young: list[Address], visits: int) -> Address | None:
        """Somebody of the prefix that came most often, if that is more often than the newcomer's."""
        counts = {name: self._visits.get(self.links[name].prefix, 0) for name in young}
        ahead = max(counts.values(), default=0) - visits
        if ahead > 0 or (ahead == 0 and self._rng.random() < TIE_REPLACEMENT_PROBABILITY):
            return self._rng.choice([name for name, count in counts.items() if count - visits == ahead])
        return None

    def _has_room(self, prefix: str, *, chosen: bool) -> bool:
        alike = [link for link in self.links.values() if link.chosen is chosen and link.prefix == prefix]
        return len(alike) < self._prefix_max

    def _visit(self, prefix: str) -> None:
        count = self._visits.pop(prefix, 0)
        if len(self._visits) >= VISITS_MAX:
            del self._visits[next(iter(self._visits))]
        self._visits[prefix] = count + 1


VISITS_MAX: Final = 1024
"""Prefixes whose visits are counted; the one that came longest ago is forgotten first."""
TIE_REPLACEMENT_PROBABILITY: Final = 1 / 8
"""How often who comes takes the place of who is there, where it is a close thing."""
