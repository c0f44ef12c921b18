"""Which link a source address belongs to: the addresses in use of all links, and those that are being asked.

Bounded: three addresses for each link.
"""

from __future__ import annotations

from veilcast.link.link import Link
from veilcast.machine import Address


class PathTable:
    def __init__(self) -> None:
        self._links: dict[Address, Link] = {}

    def __len__(self) -> int:
        return len(self._links)

    def get(self, source: Address) -> Link | None:
        return self._links.get(source)

    def is_free(self, source: Address, link: Link) -> bool:
        """False if another link uses this address: a peer that forges its source cannot take the address of another.

        An address that another link is only asking does not count.
        """
        other = self._links.get(source)
        return other is None or other is link or other.route.path != source

    def begin(self, link: Link) -> None:
        """Enter a new link. Its address is its own, whatever link has moved there."""
        link.route.listed = link.route.addresses
        self._links[link.route.path] = link

    def update(self, link: Link) -> None:
        """Enter the link under the addresses that its route has now."""
        addresses = link.route.addresses
        if addresses == link.route.listed:
            return
        self.remove(link)
        link.route.listed = addresses
        for address in addresses:
            if self.is_free(address, link):
                self._links[address] = link

    def remove(self, link: Link) -> None:
        for address in link.route.listed:
            if self._links.get(address) is link:
                del self._links[address]
        link.route.listed = ()
