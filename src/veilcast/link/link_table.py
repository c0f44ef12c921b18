"""State over all links of a node: their addresses, the choice of a link to evict, and the status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

from veilcast.link.link import Link
from veilcast.link.pacing import SECOND_US
from veilcast.machine import Address


class PathTable:
    """The link of each source address."""

    def __init__(self) -> None:
        self._links: dict[Address, Link] = {}

    def __len__(self) -> int:
        return len(self._links)

    def get(self, source: Address) -> Link | None:
        return self._links.get(source)

    def is_free(self, source: Address, link: Link) -> bool:
        """False if another link uses this address: a peer that forges its source cannot take the address of another.

        An address that another link only validates does not count.
        """
        other = self._links.get(source)
        return other is None or other is link or other.route.path != source

    def begin(self, link: Link) -> None:
        """Enter a new link. Its address is its own, even if another link has moved there."""
        link.route.listed_addresses = link.route.addresses
        self._links[link.route.path] = link

    def update(self, link: Link) -> None:
        """Enter the link under its route's current addresses."""
        addresses = link.route.addresses
        if addresses == link.route.listed_addresses:
            return
        self.remove(link)
        link.route.listed_addresses = addresses
        for address in addresses:
            if self.is_free(address, link):
                self._links[address] = link

    def remove(self, link: Link) -> None:
        for address in link.route.listed_addresses:
            if self._links.get(address) is link:
                del self._links[address]
        link.route.listed_addresses = ()


def choose_link_to_evict(links: Collection[Link], now: int) -> Link | None:
    """The link to evict for a new one; None if every link is in use.

    The first choice is a link of a peer that has several links from different addresses and has not used its keys. The
    second is the link that the wrapped machine has not used for the longest time. Messages from strangers do not count
    as use.
    """
    lines = {link.name: link.channel.generations for link in links if link.channel is not None}
    places = Counter(line.remote_static for line in lines.values())
    for link in links:
        line = lines.get(link.name)
        if line is not None and not link.is_up and not line.is_initiator and places[line.remote_static] > 1:
            return link
    spare = min(links, key=_useless_since)
    return spare if now - _useless_since(spare) >= UNUSED_US else None


def summarize_links(links: Collection[Link], counts: Mapping[str, int], now: int) -> dict[str, int | float]:
    """Sums over all links; `counts` adds the closed ones. No number concerns a single peer."""
    waiting_us = [oldest_us for link in links if (oldest_us := link.oldest_waiting_us) is not None]
    transfers = [link.channel.transfer for link in links if link.channel is not None]
    cells = counts.get("cells", 0)
    padding = counts.get("padding", 0) + sum(transfer.padding for transfer in transfers)
    return {
        "links": len(links),
        "links up": sum(link.is_up for link in links),
        "messages waiting": sum(transfer.waiting for transfer in transfers),
        "messages dropped": counts.get("messages dropped", 0) + sum(transfer.dropped for transfer in transfers),
        "queue age us": now - min(waiting_us, default=now),
        "slots missed": counts.get("slots missed", 0) + sum(link.slots.missed for link in links),
        "padding share": padding / max(1, cells),
        **{kind: counts.get(kind, 0) for kind in ("cells", "letters", "datagrams", "cells taken")},
        **{kind: times for kind, times in sorted(counts.items()) if kind.startswith("refused")},
    }


def _useless_since(link: Link) -> int:
    """A link that is not up is of no use, even if this node has messages for it."""
    return link.last_sent_us if link.is_up else link.since_us


UNUSED_US: Final = 10 * SECOND_US
"""A link may be evicted after this time without use."""
